//! Derived events, the engine's own events, tenants: conductor and executors know of the definitions that other
//! sessions commit.

use std::sync::OnceLock;
use std::time::Duration;

use e2e::{Cluster, Database};
use postgres::fallible_iterator::FallibleIterator;

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

#[test]
fn a_derived_event_starts_runs_and_ends_waits_as_soon_as_its_rule_is_committed_r000_8() {
    let db = shared().database("derived");
    db.execute(
        "CREATE TABLE battle (id int PRIMARY KEY, status text, n int);
         CREATE TABLE effect (what text);
         SELECT automation.watch_table('battle');
         SELECT automation.define('started', trigger => automation.on_event('battle.over'), steps => ARRAY[
             automation.sql($$ INSERT INTO effect VALUES ({{ event.topic + ' ' + event.id }}) $$)]);
         SELECT automation.define('waits', trigger => automation.on_call(), steps => ARRAY[
             automation.wait_for_event('battle.over', id => 'w'),
             automation.sql($$ INSERT INTO effect VALUES ('woken by ' || {{ steps.w.event.topic }}) $$)]);
         INSERT INTO battle SELECT n, 'open' FROM generate_series(1, 3) AS n;
         SELECT automation.start_run('waits')",
    );
    db.wait_until("the run waits", "SELECT EXISTS (SELECT FROM automation.waiting)");
    // No rule yet: the conductor has routed this, and nothing came of it.
    db.execute("UPDATE battle SET status = 'closed' WHERE id = 1; UPDATE battle SET status = 'open' WHERE id = 1");
    db.execute("SELECT automation.derive_event('battle', 'battle.over', $$ new.status becomes 'closed' $$)");
    db.execute("UPDATE battle SET status = 'closed' WHERE id = 2");
    db.wait_until("both have noticed", "SELECT count(*) = 2 FROM effect");
    assert_eq!(db.column("SELECT what FROM effect ORDER BY what"), ["battle.over 2", "woken by battle.over"]);
    // Gone again, it is not derived any more, while other events still are.
    db.execute("SELECT automation.drop_derived_event('battle', 'battle.over')");
    db.execute("SELECT automation.derive_event('battle', 'battle.over', 'new.n becomes 7', name => 'seven')");
    db.execute("UPDATE battle SET status = 'closed' WHERE id = 3; UPDATE battle SET n = 7 WHERE id = 3");
    db.wait_until("the new rule is known", "SELECT EXISTS (SELECT FROM effect WHERE what = 'battle.over 3')");
    assert_eq!(db.number("SELECT count(*) FROM effect"), 3);
    assert_eq!(db.number("SELECT count(*) FROM automation.events WHERE topic = 'battle.over'"), 0);
}

#[test]
fn runs_tell_of_themselves_only_while_somebody_listens_r001_14() {
    let db = shared().database("telling");
    let told = "SELECT count(*) FROM automation.events WHERE topic LIKE 'automation.%' AND op = 'emitted'";
    db.open_shop();
    db.add_jobs(50);
    db.expect_each_job_done_once();
    assert_eq!(db.number(told), 0, "nobody listens");
    db.execute(
        "CREATE TABLE heard (topic text, run bigint);
         SELECT automation.define('listener', trigger => automation.on_event('automation.completed'), steps => ARRAY[
             automation.sql($$ INSERT INTO heard VALUES ({{ event.topic }}, {{ payload.run }}) $$)])",
    );
    db.add_jobs(50);
    db.expect_each_job_done_once();
    db.wait_until("each run was told of", "SELECT count(*) = 50 FROM heard");
    assert_eq!(db.number("SELECT count(DISTINCT run) FROM heard"), 50);
    // The listener's own runs also make such events, as there is a listener; but these start nothing.
    assert_eq!(db.number("SELECT count(*) FROM automation.runs WHERE automation = 'listener'"), 50);
    db.execute("SELECT automation.drop_automation('listener')");
    let before = db.number(told);
    db.add_jobs(50);
    db.expect_each_job_done_once();
    assert_eq!(db.number(told), before, "nobody listens any more");
}

#[test]
fn runs_of_a_tenant_start_in_the_order_of_its_events_r002_2() {
    let db = shared().database("tenants");
    db.execute(
        "CREATE TABLE item (id int PRIMARY KEY, org text, n int);
         CREATE TABLE effect (seq bigint GENERATED ALWAYS AS IDENTITY, org text, event bigint);
         SELECT automation.watch_table('item', tenant_column => 'org');
         SELECT automation.define('in-turn', trigger => automation.on_updated('item'), ordering => 'tenant', steps => ARRAY[
             automation.sql($$ SELECT pg_sleep(random() / 200) $$),
             automation.sql($$ INSERT INTO effect (org, event) VALUES ({{ event.tenant }}, {{ event.event_id }}) $$)]);
         INSERT INTO item SELECT n, 'org ' || n % 3 FROM generate_series(1, 30) AS n",
    );
    for _ in 0..5 {
        db.execute("UPDATE item SET n = coalesce(n, 0) + 1");
    }
    db.wait_until("all are done", "SELECT count(*) = 150 FROM effect");
    let out_of_turn = db.number(
        "SELECT count(*) FROM (SELECT event < lag(event) OVER (PARTITION BY org ORDER BY seq) AS late FROM effect) AS e
          WHERE late",
    );
    assert_eq!(out_of_turn, 0);
    let counted = db.rows("SELECT tenant, completed, active FROM automation.stat_tenants ORDER BY tenant");
    let row = |tenant: &str| vec![Some(tenant.to_owned()), Some("50".to_owned()), Some("0".to_owned())];
    assert_eq!(counted, [row("org 0"), row("org 1"), row("org 2")]);
}

#[test]
fn a_storm_is_told_of_once_a_minute_r001_42() {
    let db = shared().database("storm");
    db.open_shop();
    db.add_jobs(20);
    db.expect_each_job_done_once();
    let storms = "SELECT count(*) FROM automation.log WHERE code = 'automation_storm'";
    assert_eq!(db.number(storms), 0);
    for _ in 0..5 {
        db.add_jobs(20);
        db.expect_each_job_done_once();
    }
    assert_eq!(db.number(storms), 1);
}

/// Sessions of applications hear, by pattern, of the events that their role may see.
#[test]
fn subscribers_hear_of_what_they_may_see_and_of_nothing_else() {
    let cluster = Cluster::start();
    let db = cluster.database("subscribers");
    db.execute(
        "CREATE TABLE open (id int PRIMARY KEY, n int);
         CREATE TABLE secret (id int PRIMARY KEY);
         -- readable for the outsider but for its policies, or but for its schema
         CREATE TABLE policed (id int PRIMARY KEY);
         ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
         CREATE SCHEMA closed;
         CREATE TABLE closed.room (id int PRIMARY KEY);
         CREATE ROLE outsider LOGIN;
         GRANT SELECT ON open, policed, closed.room TO outsider;
         SELECT automation.grant_usage('outsider', 'author');
         SELECT automation.watch_table('open'), automation.watch_table('secret');
         SELECT automation.watch_table('policed'), automation.watch_table('closed.room');
         SELECT automation.derive_event('open', 'open.risen', 'new.n > old.n')",
    );
    db.as_role("outsider").execute("SELECT automation.subscribe('#', 'everything')");
    db.execute("SELECT automation.subscribe('secret.*', 'few'), automation.subscribe('secret.*', 'few')");
    let mut listener = db.client().expect("a connection");
    listener.batch_execute("LISTEN everything; LISTEN few").expect("listening");
    db.execute("INSERT INTO secret VALUES (1); INSERT INTO policed VALUES (1); INSERT INTO closed.room VALUES (1)");
    db.execute("INSERT INTO open VALUES (2, 0)");
    db.execute("UPDATE open SET n = 1; SELECT automation.emit('own.topic', '{\"content\": 1}')");
    db.wait_until_drained(Duration::from_secs(30));
    let mut heard: Vec<String> = told(&db, &mut listener)
        .iter()
        .map(|(channel, payload)| {
            let shown = db.text(&format!(
                "SELECT ('{payload}'::jsonb ->> 'topic') || ' ' || coalesce('{payload}'::jsonb ->> 'ref', '-')
                     || CASE WHEN '{payload}'::jsonb - '{{id,topic,ref}}'::text[] = '{{}}' THEN '' ELSE ' AND MORE' END"
            ));
            format!("{channel}: {shown}")
        })
        .collect();
    heard.sort();
    // R001-18: by pattern. R001-19: number, topic and entity, no content.
    let expected = [
        "everything: open.created open:2",
        "everything: open.risen open:2",
        "everything: open.updated open:2",
        "everything: own.topic -",
        "few: secret.created secret:1",
    ];
    assert_eq!(heard, expected);
    assert_eq!(
        db.column("SELECT pattern || ' ' || channel || ' ' || role FROM automation.subscriptions ORDER BY 1"),
        ["# everything outsider", "secret.* few postgres",]
    );
    // R001-8: an end to the subscription is an end for all sessions that listen.
    db.execute("SELECT automation.unsubscribe('secret.*', 'few')");
    db.execute("INSERT INTO secret VALUES (2)");
    db.wait_until_drained(Duration::from_secs(30));
    assert_eq!(told(&db, &mut listener), []);
}

/// The notifications of all that was committed so far: (channel, payload). They come in the order of the commits, so
/// the one that is sent here is the last.
fn told(db: &Database<'_>, listener: &mut postgres::Client) -> Vec<(String, String)> {
    const LAST: &str = "that is all";
    db.execute(&format!("NOTIFY few, '{LAST}'"));
    let mut notifications = listener.notifications();
    let mut came = notifications.timeout_iter(Duration::from_secs(30));
    let mut heard = Vec::new();
    while let Some(notification) = came.next().expect("a connection") {
        if notification.payload() == LAST {
            return heard;
        }
        heard.push((notification.channel().to_owned(), notification.payload().to_owned()));
    }
    panic!("the last notification did not come; before it came {heard:?}");
}
