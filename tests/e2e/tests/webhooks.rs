//! Messages leave the database: once each, signed, tried again, given up, and nowhere without a rule (R004-13).

use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::receiver::{Receiver, Reply};
use e2e::{Cluster, Worker};

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::plain().start();
        cluster.give_key();
        cluster
    })
}

/// Five attempts in half a second.
const SOON: &str = "retry => automation.retry(delays => array_fill(interval '100 milliseconds', ARRAY[4]))";

#[test]
fn r004_13_a_message_is_delivered_once_with_a_valid_signature() {
    let db = shared().database("delivered");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    let key = [3; 32];
    db.execute(&format!("SELECT automation.set_secret('key', 'whsec_{}', owner => 'poster')", STANDARD.encode(key)));
    db.send_letters("hello", &format!("'{}', secret => 'key', id => 'post'", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 1);
    let received = receiver.received();
    assert_eq!(received.len(), 1);
    let message = &received[0];
    assert!(message.is_signed_with(&key), "{message:?}");
    assert!(!message.is_signed_with(b"another"));
    assert_eq!(message.line, "POST /hook HTTP/1.1");
    assert_eq!(message.header("content-type"), Some("application/json"));
    let now = db.number("SELECT extract(epoch FROM now())::bigint");
    assert!((now - message.timestamp()).abs() < 60);
    // The default body is that of requirement R004-13's first version.
    for field in ["webhook_version", "event_type", "event_id", "rule_id", "occurred_at", "payload"] {
        assert!(message.body.contains(&format!("\"{field}\"")), "{field} in {}", message.body);
    }
    assert_eq!(db.text("SELECT message_id FROM automation.deliveries"), message.id());
    assert_eq!(db.text("SELECT response_body FROM automation.deliveries"), "said");
    assert_eq!(
        db.text("SELECT attempt::text || last_status FROM automation.deliveries"),
        "1200",
        "one attempt, status 200"
    );
}

#[test]
fn a_rotated_secret_signs_twice() {
    let db = shared().database("rotated");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.execute("SELECT automation.set_secret('key', 'the first one, long enough', owner => 'poster')");
    db.execute("SELECT automation.set_secret('key', 'the second one, long enough', owner => 'poster')");
    db.send_letters("hello", &format!("'{}', secret => 'key'", receiver.url()));
    db.write_letters("hello", 1);
    let message = &receiver.wait_for(1)[0];
    assert_eq!(message.signatures().len(), 2);
    assert!(message.is_signed_with(b"the first one, long enough"));
    assert!(message.is_signed_with(b"the second one, long enough"));
}

#[test]
fn a_header_carries_a_secret_and_nothing_shows_it() {
    let db = shared().database("headers");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    let canary = "Bearer canary-5f2b8a91c04d";
    db.execute(&format!("SELECT automation.set_secret('token', '{canary}', host => '127.0.0.1', owner => 'poster')"));
    db.send_letters(
        "hello",
        &format!(r#"'{}', headers => '{{"Authorization": {{"secret": "token"}}, "X-Kind": "k"}}'"#, receiver.url()),
    );
    db.write_letters("hello", 1);
    let message = &receiver.wait_for(1)[0];
    assert_eq!(message.header("authorization"), Some(canary));
    assert_eq!(message.header("x-kind"), Some("k"));
    db.wait_for_state("hello", "delivered", 1);
    // R000-38: the name of the header is found by the same search.
    assert!(db.relations_with("X-Kind").iter().any(|relation| relation.starts_with("automation_internal.delivery")));
    assert_eq!(db.relations_with("canary-5f2b8a91c04d"), Vec::<String>::new());
    // Bound to another host it is not sent, and the message says why.
    db.execute(&format!("SELECT automation.set_secret('token', '{canary}', host => 'example.com', owner => 'poster')"));
    db.write_letters("hello", 1);
    db.wait_until(
        "it is blocked",
        "SELECT last_error LIKE 'blocked by policy: secret%' FROM automation.deliveries WHERE state = 'queued'",
    );
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn a_failure_is_tried_again_under_the_same_id_with_a_new_time() {
    let db = shared().database("retried");
    db.open_post_office();
    let receiver = Receiver::start(|number, _| Reply::Status(if number == 1 { 500 } else { 204 }, ""));
    db.allow(&receiver);
    db.execute("SELECT automation.set_secret('key', 'long enough to be a secret', owner => 'poster')");
    let retry = "retry => automation.retry(delays => array_fill(interval '1200 milliseconds', ARRAY[3]))";
    db.send_letters("hello", &format!("'{}', secret => 'key', {retry}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 1);
    let received = receiver.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].id(), received[1].id());
    assert!(received[1].timestamp() > received[0].timestamp());
    assert_eq!(received[0].body, received[1].body);
    assert!(received.iter().all(|message| message.is_signed_with(b"long enough to be a secret")));
    let attempts = db.column("SELECT status FROM automation_internal.delivery_attempt ORDER BY attempt");
    assert_eq!(attempts, ["500", "204"]);
}

#[test]
fn a_receiver_that_wants_to_be_asked_later_is_asked_later() {
    let db = shared().database("later");
    db.open_post_office();
    let receiver = Receiver::start(|number, _| match number {
        1 => Reply::Status(429, "Retry-After: 2\r\n"),
        _ => Reply::Status(200, ""),
    });
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}', {SOON}", receiver.url()));
    db.write_letters("hello", 1);
    let received = receiver.wait_for(2);
    let waited = received[1].at - received[0].at;
    assert!(waited >= Duration::from_millis(1990), "{waited:?}");
    db.wait_for_state("hello", "delivered", 1);
}

#[test]
fn a_receiver_that_is_gone_is_not_asked_again() {
    let db = shared().database("gone");
    db.open_post_office();
    let receiver = Receiver::start(|_, _| Reply::Status(410, ""));
    db.allow(&receiver);
    db.execute(&format!("SELECT automation.set_endpoint('crm', '{}', owner => 'poster')", receiver.url()));
    db.send_letters("hello", &format!("'crm', {SOON}"));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    assert!(db.boolean("SELECT disabled_at IS NOT NULL FROM automation.endpoints"));
    assert_eq!(db.number("SELECT count(*) FROM automation.dead_letters"), 1);
    db.write_letters("hello", 1);
    db.wait_until("the next run fails", "SELECT EXISTS (SELECT FROM automation.runs WHERE status = 'failed')");
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn a_redirect_is_not_followed() {
    let db = shared().database("redirected");
    db.open_post_office();
    let receiver = Receiver::start(|_, _| Reply::Status(302, "Location: /elsewhere\r\n"));
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}', {SOON}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    assert!(receiver.received().iter().all(|request| request.line == "POST /hook HTTP/1.1"));
    assert_eq!(db.text("SELECT last_error FROM automation.deliveries"), "the receiver answered 302");
}

#[test]
fn what_fails_as_often_as_it_may_is_a_dead_letter_and_can_be_redriven() {
    let db = shared().database("dead");
    db.open_post_office();
    let receiver = Receiver::start(|number, _| Reply::Status(if number <= 3 { 500 } else { 200 }, ""));
    db.allow(&receiver);
    let retry = "retry => automation.retry(delays => array_fill(interval '100 milliseconds', ARRAY[2]))";
    db.send_letters("hello", &format!("'{}', {retry}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    assert_eq!(receiver.received().len(), 3);
    assert_eq!(db.number("SELECT attempt FROM automation.deliveries"), 3);
    // R002-11: one letter, which leaves when it is redriven.
    assert_eq!(db.number("SELECT count(*) FROM automation.dead_letters"), 1);
    db.execute("SELECT automation.redrive(id) FROM automation.dead_letters");
    db.wait_for_state("hello", "delivered", 1);
    let received = receiver.wait_for(4);
    assert!(received.iter().all(|message| message.id() == received[0].id()));
    assert_eq!(db.number("SELECT count(*) FROM automation.dead_letters"), 0);
    // A message that has arrived can be sent once more, under the same id.
    db.execute("SELECT automation.redeliver(id) FROM automation.deliveries WHERE state = 'delivered'");
    db.wait_for_state("hello", "delivered", 2);
    assert_eq!(receiver.wait_for(5)[4].id(), received[0].id());
}

#[test]
fn with_strict_signing_nothing_leaves_unsigned() {
    let cluster = Cluster::plain().setting("automation_engine.http_strict_signing", "on").start();
    let db = cluster.database("strict");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}', {SOON}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_until(
        "it is deferred",
        "SELECT last_error LIKE 'not signed%' AND attempt = 0 AND state = 'queued'
            AND next_at BETWEEN now() + interval '4 minutes' AND now() + interval '5 minutes' FROM automation.deliveries",
    );
    assert_eq!(receiver.received().len(), 0);
}

#[test]
fn without_a_rule_nothing_leaves_and_it_is_written_down() {
    let db = shared().database("denied");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.send_letters("hello", &format!("'{}', {SOON}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    let error = db.text("SELECT last_error FROM automation.deliveries");
    assert!(error.starts_with("blocked by policy: no egress rule"), "{error}");
    // A rule for the host does not open a private network; only one with its cidr does.
    db.execute(&format!("SELECT automation.allow_egress('poster', '127.0.0.1', port => {})", receiver.port));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 2);
    let error = db.text("SELECT last_error FROM automation.deliveries LIMIT 1");
    assert!(error.starts_with("blocked by policy: the host lies in a network"), "{error}");
    assert_eq!(receiver.received().len(), 0);
    assert_eq!(db.number("SELECT count(*) FROM automation_internal.audit WHERE action = 'delivery.blocked'"), 10);
    db.allow(&receiver);
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 1);
}

#[test]
fn the_server_does_not_call_itself() {
    let cluster = Cluster::plain().setting("listen_addresses", "127.0.0.1").start();
    let db = cluster.database("itself");
    db.open_post_office();
    db.execute("SELECT automation.allow_egress('poster', '127.0.0.1', port => 5432, cidr => '127.0.0.0/8')");
    db.send_letters("hello", &format!("'http://127.0.0.1:5432/', {SOON}"));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    let error = db.text("SELECT last_error FROM automation.deliveries");
    assert!(error.ends_with("this server's own"), "{error}");
}

#[test]
fn hanging_receivers_delay_no_other_automation_and_hold_no_snapshot() {
    let db = shared().database("hanging");
    db.open_post_office();
    let (hanging, other) = (Receiver::hanging(), Receiver::agreeable());
    db.allow(&hanging);
    db.allow(&other);
    db.send_letters("stuck", &format!("'{}', timeout => '30 seconds'", hanging.url()));
    db.send_letters("quick", &format!("'{}'", other.url()));
    db.write_letters("stuck", 200);
    hanging.wait_for(8);
    const AT_REST: &str = "SELECT backend_xmin IS NULL AND backend_xid IS NULL AND xact_start IS NULL
           FROM pg_stat_activity WHERE backend_type = 'automation_engine courier' AND datname = current_database()";
    db.wait_until("nothing is open while requests are under way", AT_REST);
    db.write_letters("quick", 20);
    db.wait_for_state("quick", "delivered", 20);
    db.wait_until("nothing is open afterwards", AT_REST);
    assert_eq!(hanging.received().len(), 8, "no more than eight to one receiver");
    assert_eq!(db.number("SELECT count(*) FROM automation.deliveries WHERE state = 'sending'"), 8);
    assert_eq!(db.text("SELECT state FROM automation.stat_workers WHERE worker = 'courier'"), "busy");
    assert_eq!(db.text("SELECT status FROM automation.status() WHERE item = 'courier'"), "running");
}

#[test]
fn an_automation_all_of_whose_receivers_hang_leaves_room_for_the_others() {
    let db = shared().database("many_hang");
    db.open_post_office();
    let hanging: Vec<Receiver> = (0..10).map(|_| Receiver::hanging()).collect();
    let other = Receiver::agreeable();
    db.allow(&other);
    hanging.iter().for_each(|receiver| db.allow(receiver));
    let steps: Vec<String> =
        hanging.iter().map(|receiver| format!("'{}', timeout => '30 seconds'", receiver.url())).collect();
    db.send_letters("stuck", &steps.join("), automation.webhook("));
    db.send_letters("quick", &format!("'{}'", other.url()));
    db.write_letters("stuck", 20);
    db.wait_for_state("stuck", "sending", 32);
    db.write_letters("quick", 20);
    db.wait_for_state("quick", "delivered", 20);
    let sent: usize = hanging.iter().map(|receiver| receiver.received().len()).sum();
    assert_eq!(sent, 32, "the requests that hang were still the first ones");
}

#[test]
fn a_message_that_waits_for_a_secret_is_signed_with_the_one_its_endpoint_gets() {
    let cluster = Cluster::plain().setting("automation_engine.http_strict_signing", "on").start();
    cluster.give_key();
    let db = cluster.database("late_secret");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.execute(&format!("SELECT automation.set_endpoint('crm', '{}', owner => 'poster')", receiver.url()));
    db.send_letters("hello", "'crm'");
    db.write_letters("hello", 1);
    db.wait_until("it waits", "SELECT last_error LIKE 'not signed%' FROM automation.deliveries");
    db.execute("SELECT automation.set_secret('key', 'long enough to be a secret', owner => 'poster')");
    db.execute(&format!(
        "SELECT automation.set_endpoint('crm', '{}', secret => 'key', owner => 'poster')",
        receiver.url()
    ));
    // Five minutes pass, and something wakes the courier.
    db.execute("UPDATE automation_internal.outbox SET next_at = now()");
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 2);
    assert!(receiver.received().iter().all(|message| message.is_signed_with(b"long enough to be a secret")));
}

#[test]
fn settings_are_read_again_on_reload() {
    let cluster = Cluster::start();
    let db = cluster.database("reloaded");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}', {SOON}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    let courier = db.worker_pid(Worker::Courier);
    assert!(db.text("SELECT last_error FROM automation.deliveries").contains("http_allow_plain"));
    cluster.reload(&[("automation_engine.http_allow_plain", "on")]);
    db.wait_until(
        "the next one is delivered",
        "INSERT INTO letter (kind) VALUES ('hello');
         SELECT EXISTS (SELECT FROM automation.deliveries WHERE state = 'delivered')",
    );
    assert_eq!(db.worker_pid(Worker::Courier), courier, "the same courier");
}

#[test]
fn a_courier_with_nothing_to_do_leaves_and_comes_back() {
    let cluster = Cluster::plain().setting("automation_engine.failpoint", "courier_rest=skip").start();
    let db = cluster.database("idle");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}'", receiver.url()));
    for count in 1..=2 {
        db.write_letters("hello", 1);
        db.wait_for_state("hello", "delivered", count);
        db.wait_until(
            "the courier is gone",
            "SELECT NOT EXISTS (SELECT FROM automation.stat_workers WHERE worker = 'courier')",
        );
    }
    db.disconnect();
    cluster.expect_no_transactions("idle", "there is nothing to deliver");
    assert!(db.worker_pids(Worker::Courier).is_empty());
    db.expect_nothing_rescued();
}

#[test]
fn an_idle_courier_runs_no_transactions() {
    // Alone on its server: a commit elsewhere makes a conductor look.
    let cluster = Cluster::plain().start();
    let db = cluster.database("resting");
    db.open_post_office();
    let receiver = Receiver::start(|_, _| Reply::Status(500, ""));
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}'", receiver.url()));
    db.write_letters("hello", 1);
    // Two minutes until the next attempt.
    db.wait_until("it waits", "SELECT attempt = 1 AND state = 'queued' FROM automation.deliveries");
    db.worker_pid(Worker::Courier);
    db.disconnect();
    cluster.expect_no_transactions("resting", "a message waits for its next attempt");
}

#[test]
fn without_room_the_courier_and_the_executor_take_turns_in_one_place() {
    // The launcher, the conductor and one more fit: an executor or the courier.
    let cluster = Cluster::plain()
        .setting("max_worker_processes", "3")
        .setting("max_logical_replication_workers", "0")
        .setting("automation_engine.executor_idle_timeout", "2s")
        .start();
    let db = cluster.database("no_room");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}'", receiver.url()));
    db.write_letters("hello", 1);
    // The executor has the place, and gives it to the courier as soon as it is idle.
    db.wait_for_state("hello", "delivered", 1);
    // The courier has the place now, and would keep it for a minute; no state is waited for that long.
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 2);
}

#[test]
fn switched_off_nothing_leaves_and_switched_on_everything_does() {
    let cluster = Cluster::plain().setting("automation_engine.http", "off").start();
    let db = cluster.database("switched");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}'", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "queued", 1);
    assert_eq!(db.text("SELECT status FROM automation.status() WHERE item = 'courier'"), "off");
    cluster.set(&[("automation_engine.http", "on")]);
    cluster.restart();
    db.wait_for_state("hello", "delivered", 1);
    let courier = db.worker_pid(Worker::Courier);
    cluster.reload(&[("automation_engine.enabled", "off")]);
    db.wait_until(
        "the courier leaves",
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE '%courier')",
    );
    db.write_letters("hello", 1);
    cluster.reload(&[("automation_engine.enabled", "on")]);
    db.wait_for_state("hello", "delivered", 2);
    assert_ne!(db.worker_pid(Worker::Courier), courier);
}
