//! Messages outlive everything: the courier, the server, the session that wants the database to itself (R004-13).

use std::time::Instant;

use e2e::receiver::{Receiver, Reply};
use e2e::{AT_ONCE, Cluster, Database, Shutdown, Signal, Worker, kill};

/// Tries again soon and often.
const SOON: &str = "retry => automation.retry(delays => array_fill(interval '100 milliseconds', ARRAY[9]))";

/// So many messages hang at a receiver, from as many automations as it takes to have them all under way at once.
fn hang(db: &Database<'_>, receivers: &[Receiver], each: usize) {
    for (i, receiver) in receivers.iter().enumerate() {
        db.allow(receiver);
        db.send_letters(&format!("hang{i}"), &format!("'{}', timeout => '30 seconds'", receiver.url()));
        db.write_letters(&format!("hang{i}"), each);
    }
    receivers.iter().for_each(|receiver| {
        receiver.wait_for(each);
    });
}

fn hanging(count: usize) -> Vec<Receiver> {
    (0..count).map(|_| Receiver::hanging()).collect()
}

/// Lets the courier run into its death at `point` while it delivers one message of this kind; waits until the server is
/// back.
fn die_at(db: &Database<'_>, point: &str, kind: &str) {
    let cluster = db.cluster();
    let crashes = cluster.crashes();
    cluster.set(&[("automation_engine.failpoint", &format!("{point}=kill"))]);
    kill(db.worker_pid(Worker::Courier), Signal::Hup);
    db.write_letters(kind, 1);
    cluster.wait_until_back(db.name(), || cluster.crashes() > crashes);
    cluster.set(&[("automation_engine.failpoint", "")]);
}

/// A database with a courier that is up and idle.
fn with_courier<'c>(cluster: &'c Cluster, receiver: &Receiver) -> Database<'c> {
    let db = cluster.database("post");
    db.open_post_office();
    db.allow(receiver);
    db.send_letters("sure", &format!("'{}', {SOON}", receiver.url()));
    db.send_letters("once", &format!("'{}', delivery => 'at_most_once', {SOON}", receiver.url()));
    db.write_letters("sure", 1);
    db.wait_for_state("sure", "delivered", 1);
    db
}

#[test]
fn a_kill_at_any_point_of_a_delivery_loses_no_message_and_changes_no_id() {
    let receiver = Receiver::agreeable();
    let cluster = Cluster::plain().start();
    let db = with_courier(&cluster, &receiver);
    let mut delivered = 1;
    // How often the receiver gets the message: only between its answer and our record does a kill double it.
    for (point, times) in [("delivery_claimed", 1), ("delivery_answered", 2), ("delivery_recorded", 1)] {
        let before = receiver.received().len();
        die_at(&db, point, "sure");
        delivered += 1;
        db.wait_for_state("sure", "delivered", delivered);
        let received = &receiver.received()[before..];
        assert_eq!(received.len(), times, "{point}");
        assert!(received.iter().all(|message| message.id() == received[0].id()), "{point}");
        let attempts = db.number("SELECT attempt FROM automation.deliveries LIMIT 1");
        assert_eq!(attempts, if point == "delivery_recorded" { 1 } else { 2 }, "{point}");
    }
}

#[test]
fn what_must_not_arrive_twice_is_ambiguous_after_a_kill() {
    let receiver = Receiver::agreeable();
    let cluster = Cluster::plain().start();
    let db = with_courier(&cluster, &receiver);
    for (point, count) in [("delivery_answered", 1), ("delivery_claimed", 2)] {
        let before = receiver.received().len();
        die_at(&db, point, "once");
        db.wait_for_state("once", "ambiguous", count);
        assert!(receiver.received().len() <= before + 1, "{point}");
    }
    // Only a person sends it again, never the courier.
    db.execute(
        "SELECT automation.redeliver(id) FROM automation.deliveries WHERE state = 'ambiguous' ORDER BY id LIMIT 1",
    );
    db.wait_for_state("once", "delivered", 1);
}

#[test]
fn an_answer_that_is_lost_leaves_it_ambiguous_or_is_asked_for_again() {
    let receiver = Receiver::start(|_, message| match message.body.contains("once") {
        true => Reply::Hang,
        false => Reply::Status(200, ""),
    });
    let cluster = Cluster::plain().start();
    let db = cluster.database("post");
    db.open_post_office();
    db.allow(&receiver);
    db.send_letters(
        "once",
        &format!("'{}', delivery => 'at_most_once', timeout => '500 milliseconds', {SOON}", receiver.url()),
    );
    db.write_letters("once", 1);
    db.wait_for_state("once", "ambiguous", 1);
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn a_kill_of_the_postmaster_loses_no_message() {
    let receiver = Receiver::start(|number, _| match number {
        1..=4 => Reply::Hang,
        _ => Reply::Status(200, ""),
    });
    let cluster = Cluster::plain().setting("fsync", "on").start();
    let db = cluster.database("post");
    db.open_post_office();
    db.allow(&receiver);
    db.send_letters("sure", &format!("'{}', timeout => '30 seconds'", receiver.url()));
    db.write_letters("sure", 4);
    receiver.wait_for(4);
    db.disconnect();
    cluster.crash();
    cluster.start_again();
    let back = Instant::now();
    db.wait_for_state("sure", "delivered", 4);
    // Not after the timeout of the requests that the dead courier had under way.
    assert!(back.elapsed() < AT_ONCE, "{:?}", back.elapsed());
    let received = receiver.received();
    let mut ids: Vec<&str> = received.iter().map(|message| message.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((received.len(), ids.len()), (8, 4));
}

#[test]
fn a_terminated_courier_is_replaced_and_goes_on_with_its_messages() {
    let receiver = Receiver::start(|number, _| if number == 1 { Reply::Hang } else { Reply::Status(200, "") });
    let cluster = Cluster::plain().start();
    let db = cluster.database("post");
    db.open_post_office();
    db.allow(&receiver);
    db.send_letters("sure", &format!("'{}', timeout => '30 seconds'", receiver.url()));
    db.write_letters("sure", 1);
    receiver.wait_for(1);
    let began = Instant::now();
    db.signal_worker(Worker::Courier, Signal::Term);
    db.wait_for_state("sure", "delivered", 1);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[test]
fn a_fast_stop_does_not_wait_for_receivers_that_hang() {
    let cluster = Cluster::plain().start();
    let db = cluster.database("post");
    db.open_post_office();
    let receivers = hanging(10);
    hang(&db, &receivers, 5);
    assert_eq!(db.number("SELECT count(*) FROM automation.deliveries WHERE state = 'sending'"), 50);
    let took = cluster.stop(Shutdown::Fast);
    assert!(took < AT_ONCE, "{took:?}");
    cluster.start_again();
}

#[test]
fn databases_and_the_extension_are_dropped_while_receivers_hang() {
    let cluster = Cluster::plain().start();
    let (db, other) = (cluster.database("post"), cluster.empty_database("other"));
    db.open_post_office();
    let receivers = hanging(10);
    hang(&db, &receivers, 5);
    let outside = cluster.connect("postgres");
    other.disconnect();
    let timed = |what: &str, work: &dyn Fn()| {
        let began = Instant::now();
        work();
        assert!(began.elapsed() < AT_ONCE, "{what}: {:?}", began.elapsed());
    };
    timed("another database", &|| outside.execute("DROP DATABASE other"));
    // The courier has answered the barrier and is still at it.
    assert_eq!(db.number("SELECT count(*) FROM automation.deliveries WHERE state = 'sending'"), 50);
    timed("the extension", &|| db.execute("DROP EXTENSION automation_engine CASCADE"));
    db.execute("CREATE EXTENSION automation_engine");
    db.execute("DROP TABLE letter");
    db.open_post_office();
    hang(&db, &hanging(10), 5);
    db.disconnect();
    timed("the database itself", &|| outside.execute("DROP DATABASE post"));
}
