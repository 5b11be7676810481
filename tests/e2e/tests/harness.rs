//! The harness itself, on a server without the extension: each of its functions does as its name says.

use std::sync::OnceLock;

use e2e::{Cluster, Shutdown, Signal, is_alive, kill};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::build().without_library().start())
}

#[test]
fn values_come_back_as_psql_shows_them() {
    let db = shared().empty_database("values");
    assert_eq!(db.number("SELECT 42"), 42);
    assert_eq!(db.text("SELECT 1.50::numeric"), "1.50");
    assert!(db.boolean("SELECT true"));
    assert_eq!(db.value("SELECT NULL"), None);
    assert_eq!(
        db.rows("VALUES (1, NULL), (2, 'x')"),
        [[Some("1".to_owned()), None], [Some("2".to_owned()), Some("x".to_owned())]]
    );
}

#[test]
fn an_error_keeps_its_sqlstate() {
    let db = shared().empty_database("errors");
    assert_eq!(db.error("SELECT 1/0").sqlstate, "22012");
    assert_eq!(db.number("SELECT 1"), 1, "the session goes on");
}

#[test]
#[should_panic(expected = "until pigs fly")]
fn a_wait_in_vain_fails_with_its_sentence() {
    let db = shared().connect("postgres");
    db.wait_at_most(std::time::Duration::from_millis(50), "pigs fly", "SELECT false");
}

#[test]
fn a_closed_session_is_opened_again() {
    let db = shared().empty_database("closed");
    let pid = db.number("SELECT pg_backend_pid()");
    kill(pid as i32, Signal::Term);
    db.wait_until("there is a new session", &format!("SELECT pg_backend_pid() <> {pid}"));
}

#[test]
fn committed_rows_survive_stops_and_a_killed_postmaster() {
    let cluster = Cluster::build().without_library().setting("fsync", "on").start();
    let db = cluster.connect("postgres");
    db.execute("CREATE TABLE kept (how text)");
    for how in ["fast", "immediate", "crash"] {
        db.execute(&format!("INSERT INTO kept VALUES ('{how}')"));
        let postmaster = cluster.postmaster_pid();
        match how {
            "fast" => drop(cluster.stop(Shutdown::Fast)),
            "immediate" => drop(cluster.stop(Shutdown::Immediate)),
            _ => cluster.crash(),
        }
        assert!(!is_alive(postmaster));
        cluster.start_again();
    }
    assert_eq!(db.column("SELECT how FROM kept ORDER BY how"), ["crash", "fast", "immediate"]);
    assert!(cluster.log().contains("was not properly shut down"));
}

#[test]
fn a_killed_backend_is_recovered_from() {
    let cluster = Cluster::build().without_library().start();
    let db = cluster.connect("postgres");
    kill(db.number("SELECT pg_backend_pid()") as i32, Signal::Kill);
    db.wait_until("the server is back", "SELECT true");
    assert!(cluster.log().contains("was terminated by signal 9"));
}

#[test]
fn a_reload_changes_settings() {
    let cluster = Cluster::build().without_library().start();
    let db = cluster.connect("postgres");
    cluster.reload(&[("work_mem", "7MB")]);
    db.wait_until("the setting is new", "SELECT current_setting('work_mem') = '7MB'");
}

#[test]
fn a_standby_follows_and_can_be_promoted() {
    let primary = Cluster::build().without_library().start();
    primary.connect("postgres").execute("CREATE TABLE t AS SELECT 1 AS n");
    let standby = primary.standby();
    let db = standby.connect("postgres");
    assert!(db.boolean("SELECT pg_is_in_recovery()"));
    primary.connect("postgres").execute("INSERT INTO t VALUES (2)");
    db.wait_until("the row has arrived", "SELECT count(*) = 2 FROM t");
    standby.promote();
    db.execute("INSERT INTO t VALUES (3)");
    assert_eq!(db.number("SELECT count(*) FROM t"), 3);
}
