//! default_transaction_read_only, by which a database is frozen: workers leave it alone, say so without flooding the
//! server's log, and go on by themselves when the setting is gone.

use std::time::Instant;

use e2e::{AT_ONCE, Cluster, Database};

/// The lines of the server's log that workers wrote from `from` on.
fn told(cluster: &Cluster, from: usize) -> Vec<String> {
    cluster.log()[from..]
        .lines()
        .filter(|line| line.contains("WARNING:") || line.contains("ERROR:") || line.contains("FATAL:"))
        .filter(|line| line.contains("automation_engine"))
        .map(str::to_owned)
        .collect()
}

/// How often the conductor has looked.
const LOOKS: &str = "SELECT batches FROM automation.stat_workers WHERE worker = 'conductor'";

/// Sets the whole database read-only, makes changes that wake the workers many times, and sets it free again.
fn freeze_and_thaw(cluster: &Cluster, db: &Database<'_>, freeze: &str, thaw: &str, place: &str) {
    db.expect_work_goes_on();
    let from = cluster.log().len();
    // One command at a time: ALTER SYSTEM cannot run in a transaction with others.
    freeze.split(';').for_each(|command| db.execute(command));
    let writer = db.another_session();
    writer.execute("SET default_transaction_read_only = off");
    writer.wait_until(
        "status() says what is read-only",
        &format!(
            "SELECT EXISTS (SELECT FROM automation.status()
                             WHERE item = 'read_only' AND status = 'frozen' AND detail LIKE '% is on for {place}: %')"
        ),
    );
    // Workers that have just read the setting believe it for a moment.
    writer.execute("INSERT INTO job (note) VALUES ('may still be done')");
    let since = Instant::now();
    while told(cluster, from).is_empty() {
        assert!(since.elapsed() < AT_ONCE, "no worker says that it leaves the database alone");
        writer.execute("SELECT pg_sleep(0.01)");
    }
    let looks = writer.number(LOOKS);
    for _ in 0..300 {
        writer.execute("INSERT INTO job (note) VALUES ('while it is read-only')");
    }
    writer.wait_until("the conductor has looked in vain", &format!("SELECT ({LOOKS}) >= {looks} + 3"));
    let done =
        "SELECT count(*) FROM effect AS e JOIN job AS j ON j.id = e.job_id WHERE j.note = 'while it is read-only'";
    assert_eq!(writer.number(done), 0, "work was done in a database that is read-only");
    let lines = told(cluster, from);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("default_transaction_read_only is on for"), "{lines:#?}");

    thaw.split(';').for_each(|command| writer.execute(command));
    writer.expect_each_job_done_once();
    writer.wait_until(
        "the log says that it was read-only",
        "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'read_only' AND message LIKE 'work goes on%')",
    );
    assert_eq!(writer.number("SELECT count(*) FROM automation.status() WHERE item = 'read_only'"), 0);
    let lines = told(cluster, from);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    writer.expect_work_goes_on();
}

#[test]
fn a_server_that_is_read_only_is_left_alone_and_the_work_goes_on_by_itself() {
    let cluster = Cluster::start();
    let db = cluster.database("frozen");
    db.open_shop();
    let freeze = "ALTER SYSTEM SET default_transaction_read_only = on;SELECT pg_reload_conf()";
    let thaw = "ALTER SYSTEM RESET default_transaction_read_only;SELECT pg_reload_conf()";
    freeze_and_thaw(&cluster, &db, freeze, thaw, "the server");
}

#[test]
fn a_database_that_is_read_only_is_left_alone_and_the_work_goes_on_by_itself() {
    let cluster = Cluster::start();
    let db = cluster.database("frozen");
    db.open_shop();
    let freeze = "ALTER DATABASE frozen SET default_transaction_read_only = on";
    let thaw = "ALTER DATABASE frozen RESET default_transaction_read_only";
    freeze_and_thaw(&cluster, &db, freeze, thaw, "database \"frozen\"");
    // Also with workers that log in while it is read-only.
    db.execute(freeze);
    cluster.restart();
    let writer = db.another_session();
    writer.execute("SET default_transaction_read_only = off");
    writer.execute("INSERT INTO job (note) VALUES ('before the workers could write')");
    writer.wait_until(
        "a conductor is there",
        "SELECT EXISTS (SELECT FROM automation.status() WHERE item = 'conductor' AND status = 'running')",
    );
    writer.execute(thaw);
    writer.expect_each_job_done_once();
}

#[test]
fn the_runs_of_an_owner_that_is_read_only_stay_queued_and_no_others() {
    let cluster = Cluster::start();
    let db = cluster.database("frozen_owner");
    db.open_shop();
    db.execute(
        "CREATE ROLE dora LOGIN;
         CREATE TABLE doras (n bigint NOT NULL);
         GRANT INSERT ON doras TO dora;
         GRANT SELECT ON job TO dora;
         SELECT automation.define('doras', run_as => 'dora', trigger => automation.on_created('job'),
             steps => ARRAY[automation.sql($$ INSERT INTO doras VALUES ({{ new.id }}) $$)])",
    );
    db.expect_work_goes_on();
    db.wait_until("dora's run is done", "SELECT count(*) = 1 FROM doras");
    let from = cluster.log().len();
    db.execute("ALTER ROLE dora SET default_transaction_read_only = on");
    // Workers that have just read the setting believe it for a moment, and may do the first of these runs.
    db.wait_until(
        "status() names the owner",
        "WITH more AS (INSERT INTO job (note) VALUES ('for both'))
         SELECT EXISTS (SELECT FROM automation.status() WHERE item = 'owner dora' AND status = 'refused'
                          AND detail LIKE 'role \"dora\" has default_transaction_read_only on; % queued')",
    );
    for _ in 0..200 {
        db.execute("INSERT INTO job (note) VALUES ('for both')");
    }
    db.expect_each_job_done_once();
    db.wait_until(
        "the log says why",
        "SELECT EXISTS (SELECT FROM automation.log WHERE code = 'owner_refused' AND message LIKE '%read_only on')",
    );
    assert_eq!(told(&cluster, from), [""; 0]);
    db.execute("ALTER ROLE dora RESET default_transaction_read_only");
    db.wait_until("dora's runs are done", "SELECT count(*) = (SELECT count(*) FROM job) FROM doras");
    assert_eq!(told(&cluster, from), [""; 0]);
}
