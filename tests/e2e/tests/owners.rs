//! Steps run as the automation's owner; an owner that cannot work any more stops only its own automations.

use std::sync::OnceLock;

use e2e::{Cluster, Database};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

/// A database with a shop of its own for `role`.
fn shop_of<'c>(db: &Database<'c>, role: &str) -> Database<'c> {
    db.execute(&format!(
        "CREATE ROLE {role} LOGIN;
         CREATE SCHEMA AUTHORIZATION {role};
         SELECT automation.grant_usage('{role}', tier => 'author')"
    ));
    db.as_role(role)
}

#[test]
fn a_step_runs_as_its_owner() {
    let db = shared().database("owner");
    let alice = shop_of(&db, "alice");
    alice.open_shop();
    alice.expect_work_goes_on();
    assert_eq!(alice.text("SELECT DISTINCT by_role FROM effect"), "alice");
}

#[test]
fn an_owner_that_may_not_log_in_stops_its_automations_and_no_other() {
    let db = shared().database("nologin");
    db.open_shop();
    let bob = shop_of(&db, "bob");
    bob.execute(
        "SELECT automation.define('bobs', trigger => automation.on_event('bob.calls'),
        steps => ARRAY[automation.sql($$ CREATE TABLE bob.called () $$)])",
    );
    db.execute("ALTER ROLE bob NOLOGIN");
    db.execute("SELECT automation.emit('bob.calls')");
    db.wait_until(
        "the log says why nothing runs",
        "SELECT EXISTS (SELECT FROM automation.log WHERE message = 'role \"bob\" is not permitted to log in')",
    );
    assert_eq!(db.text("SELECT status FROM automation.runs WHERE automation = 'bobs'"), "pending");
    db.expect_work_goes_on();

    db.execute("ALTER ROLE bob LOGIN");
    db.wait_until("the run that waited is done", "SELECT to_regclass('bob.called') IS NOT NULL");
}

#[test]
fn a_dropped_owner_stops_its_automations_and_no_other() {
    let db = shared().database("gone");
    db.open_shop();
    let carol = shop_of(&db, "carol");
    carol.execute(
        "SELECT automation.define('carols', trigger => automation.on_event('carol.calls'),
        steps => ARRAY[automation.sql($$ SELECT 1 $$)])",
    );
    carol.disconnect();
    db.execute("DROP OWNED BY carol; DROP ROLE carol");
    db.execute("SELECT automation.emit('carol.calls')");
    db.wait_until(
        "the automation is stopped with its reason",
        "SELECT status = 'paused' AND disable_details ->> 'reason' = 'owner_dropped'
           FROM automation.automations WHERE name = 'carols'",
    );
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status = 'pending'"), 0);
    db.expect_work_goes_on();
}
