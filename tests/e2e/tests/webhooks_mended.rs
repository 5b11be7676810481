//! A message that could not be sent leaves once the cause outside of it is put right (R004-13).

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::Cluster;
use e2e::receiver::{Receiver, Reply};

fn strict() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::plain().setting("automation_engine.http_strict_signing", "on").start();
        cluster.give_key();
        cluster
    })
}

const KEY: [u8; 32] = [9; 32];

fn set_key(db: &e2e::Database<'_>) {
    db.execute(&format!("SELECT automation.set_secret('key', 'whsec_{}', owner => 'poster')", STANDARD.encode(KEY)));
}

#[test]
fn dead_letters_go_where_the_endpoint_is_now() {
    let db = strict().database("moved");
    db.open_post_office();
    set_key(&db);
    let (old, new) = (Receiver::start(|_, _| Reply::Status(410, "")), Receiver::agreeable());
    for (receiver, then) in [(&old, "dead"), (&new, "delivered")] {
        db.allow(receiver);
        let url = receiver.url();
        db.execute(&format!("SELECT automation.set_endpoint('there', '{url}', secret => 'key', owner => 'poster')"));
        if then == "dead" {
            db.send_letters("hello", "'there'");
            db.write_letters("hello", 1);
        } else {
            db.execute("SELECT automation.redrive(id) FROM automation.dead_letters");
        }
        db.wait_for_state("hello", then, 1);
    }
    assert_eq!(old.received()[0].id(), new.received()[0].id());
    assert_eq!(db.number("SELECT count(*) FROM automation.endpoints WHERE disabled_at IS NULL"), 1);
}

#[test]
fn what_is_rolled_back_is_not_sent() {
    let db = strict().database("rolled_back");
    db.open_post_office();
    set_key(&db);
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("hello", &format!("'{}', $$ {{\"id\": new.id}} $$, secret => 'key'", receiver.url()));
    db.execute("BEGIN; INSERT INTO letter (kind) VALUES ('hello'); SELECT automation.drain(); ROLLBACK");
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 1);
    let received = receiver.received();
    assert_eq!((received.len(), received[0].body.as_str()), (1, "{\"id\": 2}"));
}

#[test]
fn what_a_prepared_transaction_orders_is_sent_after_its_commit() {
    let cluster = Cluster::plain().start();
    let db = cluster.database("prepared");
    db.open_post_office();
    let receiver = Receiver::agreeable();
    db.allow(&receiver);
    db.send_letters("late", &format!("'{}'", receiver.url()));
    // A courier that has nothing to do is told of nothing either: it must be looked for by itself.
    for (nth, prepared) in ["first", "second"].into_iter().enumerate() {
        db.execute(&format!(
            "BEGIN; INSERT INTO letter (kind) VALUES ('late'); SELECT automation.drain(); PREPARE TRANSACTION '{prepared}'"
        ));
        assert_eq!(receiver.received().len(), nth, "not before its commit");
        db.execute(&format!("COMMIT PREPARED '{prepared}'"));
        db.wait_for_state("late", "delivered", nth + 1);
    }
}
