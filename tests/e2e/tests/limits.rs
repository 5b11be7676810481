//! The settings that limit how many runs execute at the same time, with several executors at work (R001-40, R001-61,
//! R002-9).
//!
//! Each run of a test takes the first free seat of its scope for as long as its transaction lasts, writes the number of
//! the seat down, and waits behind a gate that the test holds. So a scope in which N runs execute at the same time uses
//! the seats 0 to N - 1.

use e2e::{Cluster, Database};

const ROOM: &str = "
    CREATE TABLE seat (scope text NOT NULL, no int NOT NULL);
    CREATE FUNCTION sit(scope text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
    BEGIN
        FOR n IN 0..63 LOOP
            IF pg_try_advisory_xact_lock(hashtext(scope), n) THEN
                INSERT INTO seat VALUES (scope, n);
                PERFORM pg_advisory_xact_lock_shared(0, 0);
                RETURN;
            END IF;
        END LOOP;
    END $$;
    CREATE FUNCTION seated(scope text) RETURNS bigint LANGUAGE sql AS $$
        SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = (hashtext(scope)::bigint & 4294967295)::oid AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) $$;
    CREATE TABLE asked (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, scope text NOT NULL, org text);
    GRANT SELECT ON asked TO PUBLIC;
    SELECT automation.watch_table('asked', tenant_column => 'org');
    SELECT automation.define('by_event', trigger => automation.on_created('asked'),
        steps => ARRAY[automation.sql('SELECT sit({{ new.scope }})')]);
    SELECT automation.define('by_hand', trigger => automation.on_call(),
        steps => ARRAY[automation.sql('SELECT sit({{ payload.scope }})')])";

/// A server with more executors than any limit of these tests, and a database with the gate closed.
struct Room<'c> {
    db: Database<'c>,
    /// The session that holds the gate.
    gate: Database<'c>,
}

fn server(setting: &str) -> Cluster {
    Cluster::build()
        .setting("automation_engine.executors", "6")
        .setting("max_worker_processes", "16")
        .setting(setting, "2")
        .start()
}

impl<'c> Room<'c> {
    fn open(cluster: &'c Cluster) -> Self {
        let db = cluster.database("room");
        db.execute(ROOM);
        let gate = db.another_session();
        gate.execute("SELECT pg_advisory_lock(0, 0)");
        Room { db, gate }
    }

    fn by_event(&self, scope: &str, org: Option<&str>) {
        let org = org.map_or("NULL".to_owned(), |org| format!("'{org}'"));
        self.db.execute(&format!("INSERT INTO asked (scope, org) VALUES ('{scope}', {org})"));
    }

    fn by_hand(&self, scope: &str) {
        self.db.execute(&format!("SELECT automation.start_run('by_hand', '{{\"scope\": \"{scope}\"}}')"));
    }

    #[track_caller]
    fn expect_seated(&self, scope: &str, count: i64) {
        self.db.wait_until(&format!("{count} runs of {scope} execute"), &format!("SELECT seated('{scope}') = {count}"));
    }

    /// Starts five runs of the limited scope one by one, of which two execute, then a run of another scope, which
    /// executes at once; with the gate open all of them end, never more than two of the limited scope at the same time.
    #[track_caller]
    fn expect_two_at_a_time(&self, start_limited: impl Fn(), start_other: impl Fn()) {
        for started in 1..=5 {
            start_limited();
            self.expect_seated("limited", started.min(2));
        }
        start_other();
        self.expect_seated("other", 1);
        assert_eq!(self.db.number("SELECT seated('limited')"), 2, "the run of the other scope had its turn after them");
        self.gate.execute("SELECT pg_advisory_unlock(0, 0)");
        self.db.wait_until("every run has executed", "SELECT count(*) = 6 FROM seat");
        assert_eq!(self.db.number("SELECT max(no) FROM seat WHERE scope = 'limited'"), 1);
        self.db.wait_until_drained(std::time::Duration::from_secs(30));
        assert_eq!(self.db.number("SELECT count(*) FROM automation.runs WHERE status <> 'completed'"), 0);
    }
}

#[test]
fn no_more_runs_of_events_execute_than_max_event_runs_r001_40() {
    let cluster = server("automation_engine.max_event_runs");
    let room = Room::open(&cluster);
    room.expect_two_at_a_time(|| room.by_event("limited", None), || room.by_hand("other"));
}

#[test]
fn no_more_runs_started_by_hand_execute_than_max_scheduled_runs_r001_40() {
    let cluster = server("automation_engine.max_scheduled_runs");
    let room = Room::open(&cluster);
    room.expect_two_at_a_time(|| room.by_hand("limited"), || room.by_event("other", None));
}

#[test]
fn no_more_runs_of_a_tenant_execute_than_max_runs_per_tenant_r002_9() {
    let cluster = server("automation_engine.max_runs_per_tenant");
    let room = Room::open(&cluster);
    room.expect_two_at_a_time(|| room.by_event("limited", Some("acme")), || room.by_event("other", Some("zenith")));
}

/// Defines an automation of another owner that hears of rows with scope `other`.
fn define_other_owner(db: &Database<'_>) {
    db.execute(
        "CREATE ROLE neighbour LOGIN;
         SELECT automation.define('by_event', trigger => automation.on_created('asked', filter => 'new.scope = ''limited'''),
             steps => ARRAY[automation.sql('SELECT sit({{ new.scope }})')]);
         SELECT automation.define('of_neighbour', run_as => 'neighbour',
             trigger => automation.on_created('asked', filter => 'new.scope = ''other'''),
             steps => ARRAY[automation.sql('SELECT sit({{ new.scope }})')])",
    );
}

#[test]
fn no_more_runs_of_an_owner_execute_than_max_runs_per_role() {
    let cluster = server("automation_engine.max_runs_per_role");
    let room = Room::open(&cluster);
    define_other_owner(&room.db);
    room.expect_two_at_a_time(|| room.by_event("limited", None), || room.by_event("other", None));
}

#[test]
fn no_more_runs_execute_than_max_concurrent_runs_but_the_first_of_another_owner_does() {
    let cluster = server("automation_engine.max_concurrent_runs");
    let room = Room::open(&cluster);
    define_other_owner(&room.db);
    room.expect_two_at_a_time(|| room.by_event("limited", None), || room.by_event("other", None));
}

#[test]
fn ten_runs_of_events_and_five_by_hand_execute_at_the_same_time_by_default_r001_61() {
    let cluster = Cluster::build()
        .setting("automation_engine.executors", "20")
        .setting("max_worker_processes", "40")
        .setting("max_connections", "60")
        .start();
    let room = Room::open(&cluster);
    for started in 1..=12 {
        room.by_event("events", None);
        room.expect_seated("events", started.min(10));
    }
    for started in 1..=7 {
        room.by_hand("hand");
        room.expect_seated("hand", started.min(5));
    }
    room.gate.execute("SELECT pg_advisory_unlock(0, 0)");
    room.db.wait_until("every run has executed", "SELECT count(*) = 19 FROM seat");
    let most = room.db.column("SELECT scope || ' ' || max(no) + 1 FROM seat GROUP BY scope ORDER BY scope");
    assert_eq!(most, ["events 10", "hand 5"]);
}

/// A server on which every execution can pause an automation, and an automation that counts rows.
fn count_everything(cluster: &Cluster) -> Database<'_> {
    let db = cluster.database("hot");
    db.execute(
        "CREATE TABLE item (id int PRIMARY KEY, n int NOT NULL DEFAULT 0);
         CREATE TABLE effect (item int NOT NULL);
         SELECT automation.watch_table('item');
         SELECT automation.define('count', trigger => automation.on_changed('item'),
             steps => ARRAY[automation.sql('INSERT INTO effect VALUES ({{ new.id }})')])",
    );
    db
}

#[track_caller]
fn expect_hot_after(db: &Database<'_>, executions: i64) {
    db.wait_until(
        "the automation is paused by the system",
        "SELECT status = 'paused' AND disabled_by = 'system' FROM automation.automations WHERE name = 'count'",
    );
    db.wait_until_drained(std::time::Duration::from_secs(30));
    assert_eq!(db.number("SELECT count(*) FROM effect"), executions);
    let runs = db.column("SELECT status || ' ' || count(*) FROM automation.runs WHERE status IN ('completed', 'failed', 'hot') GROUP BY status ORDER BY status");
    assert_eq!(runs, [format!("completed {executions}"), "hot 1".to_owned()]);
}

#[test]
fn with_hot_flow_all_the_hundred_and_first_execution_within_half_a_minute_pauses_r002_13() {
    let cluster = Cluster::build().setting("automation_engine.hot_flow", "all").start();
    let db = count_everything(&cluster);
    db.execute("INSERT INTO item SELECT generate_series(1, 100)");
    db.wait_until("a hundred have executed", "SELECT count(*) = 100 FROM effect");
    assert_eq!(db.text("SELECT status FROM automation.automations WHERE name = 'count'"), "active");
    db.execute("INSERT INTO item SELECT generate_series(101, 120)");
    expect_hot_after(&db, 100);
}

#[test]
fn with_hot_flow_all_the_fifty_first_update_of_an_entity_within_a_minute_pauses_r002_13() {
    let cluster = Cluster::build().setting("automation_engine.hot_flow", "all").start();
    let db = count_everything(&cluster);
    db.execute("INSERT INTO item VALUES (1)");
    for n in 1..=60 {
        db.execute(&format!("UPDATE item SET n = {n} WHERE id = 1"));
    }
    // The creation is an execution, but not an update.
    expect_hot_after(&db, 51);
}

#[test]
fn with_hot_flow_off_no_number_of_executions_pauses_an_automation_without_a_limit() {
    let cluster = Cluster::build().setting("automation_engine.hot_flow", "off").start();
    let db = count_everything(&cluster);
    db.execute("INSERT INTO item SELECT generate_series(1, 300)");
    db.wait_until("all have executed", "SELECT count(*) = 300 FROM effect");
    assert_eq!(db.text("SELECT status FROM automation.automations WHERE name = 'count'"), "active");
}

/// The runs of a noisy tenant and of quiet ones come at the same time to several executors. Only the noisy one is held
/// back: by the limit of executions, then by the breaker.
#[test]
fn one_noisy_tenant_stops_only_itself_r002_13_r003_9() {
    let cluster = Cluster::build().setting("automation_engine.executors", "4").start();
    let db = cluster.database("tenants");
    db.execute(
        "CREATE TABLE item (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, org text NOT NULL, bad boolean NOT NULL DEFAULT false);
         CREATE TABLE effect (org text NOT NULL);
         SELECT automation.watch_table('item', tenant_column => 'org');
         SELECT automation.define('shared', trigger => automation.on_created('item'), max_executions => '50 per 1 hour',
             steps => ARRAY[automation.sql('INSERT INTO effect SELECT {{ new.org }} WHERE 1 / CASE WHEN {{ new.bad }} THEN 0 ELSE 1 END = 1')])",
    );
    for round in 0..10 {
        db.execute(&format!(
            "INSERT INTO item (org) SELECT 'noisy' FROM generate_series(1, 20) UNION ALL SELECT 'quiet' || n FROM generate_series({round}, {round} + 3) AS n"
        ));
    }
    db.wait_until(
        "the noisy tenant is held back",
        "SELECT count(*) = 1 FROM automation.paused_tenants WHERE tenant = 'noisy' AND reason = 'hot_flow'",
    );
    db.wait_until("every quiet tenant's run has executed", "SELECT count(*) = 40 FROM effect WHERE org LIKE 'quiet%'");
    db.wait_until_drained(std::time::Duration::from_secs(30));
    assert_eq!(db.number("SELECT count(*) FROM effect WHERE org = 'noisy'"), 50);
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE status = 'hot'"), 1);
    db.execute("INSERT INTO item (org, bad) SELECT 'quiet3', true FROM generate_series(1, 12)");
    db.wait_until(
        "the failing tenant is held back",
        "SELECT count(*) = 1 FROM automation.paused_tenants WHERE tenant = 'quiet3' AND reason = 'failure_breaker'",
    );
    db.execute("INSERT INTO item (org) VALUES ('quiet2'), ('noisy')");
    db.wait_until("the other tenants go on", "SELECT count(*) = 41 FROM effect WHERE org LIKE 'quiet%'");
    db.execute(
        "SELECT automation.resume('shared', tenant => 'noisy'); INSERT INTO item (org) VALUES ('noisy'), ('quiet3')",
    );
    db.wait_until(
        "the noisy tenant goes on when it is resumed",
        "SELECT count(*) = 51 FROM effect WHERE org = 'noisy'",
    );
    assert_eq!(db.column("SELECT tenant FROM automation.paused_tenants"), ["quiet3"]);
    assert_eq!(db.text("SELECT status FROM automation.automations WHERE name = 'shared'"), "active");
}
