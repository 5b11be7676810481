//! An executor asks in every turn whether its owner may still work here. Each test changes the owner's rights under a
//! live executor, sees the work stay queued with the reason in the log and in status(), and gives the right back.

use std::sync::OnceLock;

use e2e::{Cluster, Database, Worker};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::build().setting("automation_engine.allow_superuser_automations", "off").start())
}

/// A role with a shop of its own and a live executor that has done a job.
fn at_work<'c>(db: &Database<'c>, role: &str) -> Database<'c> {
    db.execute(&format!(
        "CREATE ROLE {role} LOGIN;
         CREATE SCHEMA AUTHORIZATION {role};
         SELECT automation.grant_usage('{role}', tier => 'author')"
    ));
    let owner = db.as_role(role);
    owner.open_shop();
    owner.expect_work_goes_on();
    assert_eq!(db.worker_pids(Worker::Executor).len(), 1, "the executor is alive");
    owner
}

fn add_job(db: &Database<'_>, role: &str) {
    db.execute(&format!("INSERT INTO {role}.job (note) VALUES ('later')"));
}

fn done(db: &Database<'_>, role: &str) -> i64 {
    db.number(&format!("SELECT count(*) FROM {role}.effect"))
}

/// The job added now stays queued, log and status() say why, the log only once.
#[track_caller]
fn expect_refused(db: &Database<'_>, role: &str, reason: &str) {
    let before = done(db, role);
    add_job(db, role);
    let reason = format!("role \"{role}\" {reason}");
    db.wait_until(
        "the log says why nothing runs, or the job was done",
        &format!(
            "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'owner_refused' AND message = '{reason}')
                 OR (SELECT count(*) FROM {role}.effect) > {before}"
        ),
    );
    assert_eq!(done(db, role), before, "nothing was done after: {reason}");
    db.wait_until(
        "status() says why",
        &format!(
            "SELECT EXISTS (SELECT FROM automation.status()
                             WHERE item = 'owner {role}' AND status = 'refused' AND detail LIKE '{reason}%')"
        ),
    );
    db.wait_until(
        "no executor of the owner is left",
        &format!("SELECT NOT EXISTS (SELECT FROM automation.stat_workers WHERE owner = '{role}')"),
    );
    assert_eq!(done(db, role), before, "nothing was done after: {reason}");
    let times = db.number(&format!("SELECT count(*) FROM automation.log WHERE message = '{reason}'"));
    assert_eq!(times, 1, "logged once: {reason}");
}

#[track_caller]
fn expect_goes_on(db: &Database<'_>, role: &str) {
    db.wait_until(
        "every job is done",
        &format!("SELECT NOT EXISTS (SELECT FROM {role}.job WHERE id NOT IN (SELECT job_id FROM {role}.effect))"),
    );
    assert_eq!(done(db, role), db.number(&format!("SELECT count(*) FROM {role}.job")), "each job was done once");
    let refused = format!("SELECT count(*) FROM automation.status() WHERE item = 'owner {role}'");
    assert_eq!(db.number(&refused), 0, "status() has nothing to say about {role} any more");
}

#[test]
fn an_owner_made_superuser_is_refused_by_its_live_executor() {
    let db = shared().database("made_superuser");
    at_work(&db, "sue");
    db.execute("ALTER ROLE sue SUPERUSER");
    expect_refused(&db, "sue", "is a superuser and automation_engine.allow_superuser_automations is off");
    db.execute("ALTER ROLE sue NOSUPERUSER");
    expect_goes_on(&db, "sue");
}

#[test]
fn an_owner_made_superuser_between_two_steps_does_not_get_the_second() {
    let db = shared().database("between_steps");
    let owner = at_work(&db, "max");
    owner.set_pace(2);
    let before = done(&db, "max");
    add_job(&db, "max");
    db.wait_until_a_step_sleeps();
    db.execute("ALTER ROLE max SUPERUSER");
    db.wait_until(
        "the log says why the run does not go on, or its second step was done",
        &format!(
            "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'owner_refused')
                 OR (SELECT count(*) FROM max.effect) > {before}"
        ),
    );
    assert_eq!(done(&db, "max"), before, "the second step did not run as a superuser");
    owner.set_pace(0);
    db.execute("ALTER ROLE max NOSUPERUSER");
    expect_goes_on(&db, "max");
}

#[test]
fn an_owner_that_may_not_log_in_any_more_is_refused_by_its_live_executor() {
    let db = shared().database("made_nologin");
    at_work(&db, "nora");
    db.execute("ALTER ROLE nora NOLOGIN");
    expect_refused(&db, "nora", "is not permitted to log in");
    db.execute("ALTER ROLE nora LOGIN");
    expect_goes_on(&db, "nora");
}

#[test]
fn an_owner_expires_under_its_live_executor_by_the_clock_alone() {
    let db = shared().database("expires");
    at_work(&db, "vera");
    db.execute("DO $$ BEGIN EXECUTE format('ALTER ROLE vera VALID UNTIL %L', clock_timestamp() + '1 second'); END $$");
    db.wait_until("the time has come", "SELECT rolvaliduntil < clock_timestamp() FROM pg_roles WHERE rolname = 'vera'");
    expect_refused(&db, "vera", "has expired");
    db.execute("ALTER ROLE vera VALID UNTIL 'infinity'");
    expect_goes_on(&db, "vera");
}

#[test]
fn an_owner_that_may_not_connect_any_more_is_refused_by_its_live_executor() {
    let db = shared().database("no_connect");
    at_work(&db, "conny");
    db.execute("REVOKE CONNECT ON DATABASE no_connect FROM PUBLIC");
    expect_refused(&db, "conny", "may not connect to this database");
    db.execute("GRANT CONNECT ON DATABASE no_connect TO conny");
    expect_goes_on(&db, "conny");
}

#[test]
fn an_owner_that_lost_the_membership_it_connects_by_is_refused_by_its_live_executor() {
    let db = shared().database("membership");
    db.execute("REVOKE CONNECT ON DATABASE membership FROM PUBLIC");
    db.execute("CREATE ROLE gate; GRANT CONNECT ON DATABASE membership TO gate");
    db.execute("CREATE ROLE mia LOGIN IN ROLE gate");
    db.execute("CREATE SCHEMA AUTHORIZATION mia; SELECT automation.grant_usage('mia', tier => 'author')");
    let mia = db.as_role("mia");
    mia.open_shop();
    mia.expect_work_goes_on();
    db.execute("REVOKE gate FROM mia");
    expect_refused(&db, "mia", "may not connect to this database");
    db.execute("GRANT gate TO mia");
    expect_goes_on(&db, "mia");
}

#[test]
fn a_role_without_connections_is_refused_and_not_started_again_and_again() {
    let db = shared().database("no_connections");
    at_work(&db, "lim");
    db.execute("ALTER ROLE lim CONNECTION LIMIT 0");
    expect_refused(&db, "lim", "has a connection limit of 0");
    db.execute("ALTER ROLE lim CONNECTION LIMIT -1");
    expect_goes_on(&db, "lim");
}

#[test]
fn a_dropped_owner_leaves_no_work_to_its_live_executor() {
    let db = shared().database("dropped_live");
    let owner = at_work(&db, "gwen");
    db.execute("CREATE TABLE witness (by_role name)");
    db.execute("GRANT INSERT ON witness TO PUBLIC");
    owner.execute(
        "SELECT automation.define('gwens', trigger => automation.on_event('gwen.calls'),
        steps => ARRAY[automation.sql($$ INSERT INTO public.witness VALUES (current_user) $$)])",
    );
    owner.disconnect();
    db.execute("DROP OWNED BY gwen; DROP ROLE gwen");
    db.execute("SELECT automation.emit('gwen.calls')");
    db.wait_until(
        "the automation is stopped with its reason",
        "SELECT status = 'paused' AND disable_details ->> 'reason' = 'owner_dropped'
           FROM automation.automations WHERE name = 'gwens'",
    );
    assert_eq!(db.number("SELECT count(*) FROM witness"), 0);
}

#[test]
fn rights_do_not_depend_on_those_of_the_extensions_owner() {
    let db = shared().empty_database("ext_owner");
    db.execute("CREATE ROLE keeper SUPERUSER LOGIN");
    let keeper = db.as_role("keeper");
    keeper.execute("CREATE EXTENSION automation_engine");
    keeper.disconnect();
    at_work(&db, "eve");
    db.execute("ALTER ROLE keeper NOSUPERUSER");
    db.execute("ALTER ROLE eve SUPERUSER");
    expect_refused(&db, "eve", "is a superuser and automation_engine.allow_superuser_automations is off");
    db.execute("ALTER ROLE eve NOSUPERUSER");
    expect_goes_on(&db, "eve");
}
