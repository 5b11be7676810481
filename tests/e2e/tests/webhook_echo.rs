//! A receiver that echoes its requests does not bring secrets back into the database.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::Cluster;
use e2e::receiver::{Receiver, Reply};

const SOON: &str = "retry => automation.retry(max => 1, delays => ARRAY[interval '100 milliseconds'])";

#[test]
fn a_receiver_that_echoes_its_request_leaves_no_secret_behind() {
    let cluster = Cluster::plain().start();
    cluster.give_key();
    let db = cluster.database("echo");
    db.open_post_office();
    // Both values of a rotated secret are sent back: the receiver may know either.
    let (old_token, token) = ("canary-0ld5f2b8a91", "canary-5f2b8a91c04d");
    let (old_key, key) = ([0x5a_u8; 32], [0xa5_u8; 32]);
    let old = format!("\nBearer {old_token} whsec_{}", STANDARD.encode(old_key));
    let marker = "marker-77aa12";
    let receiver = Receiver::start(move |number, request| {
        let signing = format!("\nwhsec_{} {}", STANDARD.encode(key), "a5".repeat(32));
        let said = format!("{}{old}{signing}\n{}", request.echo(), ".".repeat(50));
        // The first message is tried twice and given up, the second is delivered.
        Reply::Says(if number <= 2 { 500 } else { 200 }, said)
    });
    db.allow(&receiver);
    for value in [old_token, token] {
        db.execute(&format!("SELECT automation.set_secret('token', 'Bearer {value}', owner => 'poster')"));
    }
    for value in [old_key, key] {
        let value = STANDARD.encode(value);
        db.execute(&format!("SELECT automation.set_secret('key', 'whsec_{value}', owner => 'poster')"));
    }
    let headers = format!(r#"headers => '{{"Authorization": {{"secret": "token"}}, "X-Kind": "{marker}"}}'"#);
    db.send_letters("hello", &format!("'{}', secret => 'key', {headers}, {SOON}", receiver.url()));
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "dead", 1);
    db.write_letters("hello", 1);
    db.wait_for_state("hello", "delivered", 1);
    let received = receiver.received();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|message| message.header("authorization") == Some(&format!("Bearer {token}"))));
    // Text that is no secret is kept as it came.
    let kept = db.column("SELECT response_body FROM automation.deliveries ORDER BY id");
    assert_eq!(kept.len(), 2);
    for body in &kept {
        assert!(body.contains(&format!("X-Kind: {marker}")) && body.contains("Authorization: ***"), "{body}");
        assert!(body.contains("webhook-signature: v1,"), "a signature is no secret: {body}");
    }
    db.execute("CHECKPOINT");
    // The search works: it finds a text that is there.
    let shown = db.relations_with(marker);
    assert!(shown.iter().any(|relation| relation == "automation.deliveries"), "{shown:?}");
    assert!(!cluster.files_with(marker).is_empty(), "the header of the definition is in a file");
    for secret in [token, old_token, &STANDARD.encode(key), &STANDARD.encode(old_key), &"a5".repeat(32)] {
        assert_eq!(db.relations_with(secret), Vec::<String>::new(), "{secret}");
        assert_eq!(cluster.files_with(secret), Vec::<std::path::PathBuf>::new(), "{secret}");
    }
    assert!(!db.text("SELECT string_agg(r::text, '') FROM automation.dead_letters AS r").is_empty());
}
