//! Receivers that misbehave: whatever they do, an attempt ends within its deadline, with little memory, and with an
//! outcome that says whether the request can have arrived (R004-13). Loopback only.
mod receiver;
mod tls;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use egress::{Blocked, Outcome};
use receiver::{Receiver, drain_request, network, policy, request, request_with};

/// The deadline of an attempt: a good receiver on a busy machine answers within it, a test of a bad one waits for it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How much later than its deadline an attempt may end on a machine that has other things to do. Receivers that hang do so
/// for [`FOREVER`], so an attempt that ignores its deadline is told from one that a busy machine holds up.
const GRACE: Duration = Duration::from_secs(15);
/// How long a receiver or a name service that hangs does so.
const FOREVER: Duration = Duration::from_secs(60);

/// Sends to a receiver that does `behave` with each connection, and checks the deadline.
fn against(behave: impl Fn(&mut std::net::TcpStream) + Send + Sync + 'static) -> Outcome {
    let receiver = Receiver::start(behave);
    let began = Instant::now();
    let outcome = egress::send(&request(receiver.port, TIMEOUT), &network(None));
    let took = began.elapsed();
    assert!(took < TIMEOUT + GRACE, "took {took:?}: {outcome:?}");
    outcome
}

/// As `against`, for a receiver that reads the request and then says this.
fn answering(bytes: &'static [u8]) -> Outcome {
    against(move |stream| {
        drain_request(stream);
        let _ = stream.write_all(bytes);
    })
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown(_))
}

fn status(outcome: &Outcome) -> Option<u16> {
    match outcome {
        Outcome::Answer { status, .. } => Some(*status),
        _ => None,
    }
}

fn body(outcome: &Outcome) -> &[u8] {
    match outcome {
        Outcome::Answer { body, .. } => body,
        other => panic!("no answer: {other:?}"),
    }
}

/// Waits until the other side has gone.
fn hang(stream: &mut std::net::TcpStream) {
    let _ = stream.set_read_timeout(Some(FOREVER));
    let _ = stream.read_to_end(&mut Vec::new());
}

fn drip(stream: &mut std::net::TcpStream, bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn flood(stream: &mut std::net::TcpStream, bytes: &[u8]) {
    while stream.write_all(bytes).is_ok() {}
}

#[test]
fn a_good_receiver_is_heard() {
    let outcome = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(outcome, Outcome::Answer { status: 200, retry_after: None, body: b"ok".to_vec() });
}

#[test]
fn a_receiver_that_echoes_secrets_around_the_place_where_its_answer_is_cut() {
    let secret = "canary-5f2b8a91c04d";
    // The secret begins at each of the places around the cut, and once it is spelled as widely as it can be.
    for (before, wide) in (65_536 - 24..65_536 + 4).map(|before| (before, false)).chain([(65_530, true)]) {
        let echo = match wide {
            true => secret.bytes().map(|byte| format!("\\u{byte:04x}")).collect(),
            false => secret.to_owned(),
        };
        let receiver = Receiver::start(move |stream| {
            drain_request(stream);
            let said = format!("HTTP/1.1 200 OK\r\n\r\n{}{echo}{}", ".".repeat(before), "-".repeat(1000));
            let _ = stream.write_all(said.as_bytes());
        });
        let mut request = request(receiver.port, TIMEOUT);
        request.headers.push(("Authorization".to_owned(), secret.to_owned()));
        request.mask = egress::Mask::new([secret.as_bytes()]);
        let outcome = egress::send(&request, &network(None));
        let kept = body(&outcome);
        assert_eq!(kept.len(), 65_536, "{before}");
        let end = String::from_utf8_lossy(&kept[before.min(65_536)..]).into_owned();
        let fine = end.starts_with("***") || "***".starts_with(&end);
        assert!(fine, "{before}: {end}");
    }
}

#[test]
fn a_receiver_that_never_reads_or_answers() {
    assert!(is_unknown(&against(hang)));
}

#[test]
fn a_receiver_that_does_not_read_a_large_request() {
    let receiver = Receiver::start(|_| std::thread::sleep(FOREVER));
    let mut request = request(receiver.port, TIMEOUT);
    request.body = vec![b'x'; 64 << 20];
    let began = Instant::now();
    assert!(is_unknown(&egress::send(&request, &network(None))));
    assert!(began.elapsed() < TIMEOUT + GRACE);
}

#[test]
fn a_receiver_that_closes_at_once() {
    assert!(is_unknown(&against(|_| ())));
    assert!(is_unknown(&against(drain_request)));
}

#[test]
fn a_receiver_that_closes_inside_the_head() {
    for part in [&b"HTTP"[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"] {
        assert!(is_unknown(&answering(part)));
    }
}

#[test]
fn a_receiver_that_hangs_inside_the_head() {
    let outcome = against(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-");
        hang(stream);
    });
    assert!(is_unknown(&outcome));
}

#[test]
fn a_receiver_that_hangs_after_the_head_has_answered() {
    let outcome = against(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        hang(stream);
    });
    assert_eq!(outcome, Outcome::Answer { status: 200, retry_after: None, body: b"abc".to_vec() });
}

#[test]
fn a_head_that_drips_is_not_waited_for() {
    assert!(is_unknown(&against(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        drip(stream, b"a");
    })));
}

#[test]
fn a_body_that_drips_ends_with_the_deadline() {
    let outcome = against(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        drip(stream, b"abc");
    });
    assert_eq!(status(&outcome), Some(200));
    assert!(body(&outcome).len() < 1000);
}

#[test]
fn a_body_without_end_is_cut() {
    let outcome = against(|stream| {
        drain_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        flood(stream, &[b'x'; 65536]);
    });
    assert_eq!(body(&outcome).len(), 64 * 1024);
}

#[test]
fn chunks_without_end_are_cut() {
    let outcome = against(|stream| {
        drain_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        flood(stream, &b"1\r\nx\r\n".repeat(1000));
    });
    assert_eq!(status(&outcome), Some(200));
    assert!(body(&outcome).len() <= 64 * 1024);
}

#[test]
fn headers_without_end_are_refused() {
    let outcome = against(|stream| {
        drain_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        flood(stream, b"X-Filler: abcdefghijklmnopqrstuvwxyz\r\n");
    });
    assert!(is_unknown(&outcome));
    let outcome = against(|stream| {
        drain_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        flood(stream, b"abcdefghijklmnopqrstuvwxyz");
    });
    assert!(is_unknown(&outcome));
}

#[test]
fn a_flood_of_interim_answers_is_refused() {
    let outcome = against(|stream| {
        drain_request(stream);
        flood(stream, &b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100));
    });
    assert!(is_unknown(&outcome));
}

#[test]
fn interim_answers_that_drip_end_with_the_deadline() {
    assert!(is_unknown(&against(|stream| drip(stream, b"HTTP/1.1 100 Continue\r\n\r\n"))));
}

#[test]
fn an_interim_answer_is_followed_by_the_real_one() {
    assert_eq!(status(&answering(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 OK\r\n\r\n")), Some(202));
    assert!(is_unknown(&answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")));
}

#[test]
fn a_wrong_length_changes_the_body_and_not_the_status() {
    assert_eq!(body(&answering(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc")), b"abc");
    assert_eq!(body(&answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc")), b"a");
    assert_eq!(body(&answering(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc")), b"abc");
    assert_eq!(body(&answering(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nabc")), b"abc");
    assert_eq!(body(&answering(b"HTTP/1.1 500 No\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc")), b"a");
}

#[test]
fn garbage_for_chunks_changes_the_body_and_not_the_status() {
    for (chunks, kept) in [
        (&b"zz\r\nabc"[..], &b""[..]),
        (b"3\r\nabcdef", b"abc"),
        (b"-1\r\nabc", b""),
        (b"ffffffffffffffff\r\nabc", b"abc"),
        (b"3\r\nabc\r\n\r\n", b"abc"),
        (b"\r\n", b""),
    ] {
        let outcome = against(move |stream| {
            drain_request(stream);
            let _ = stream.write_all(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n");
            let _ = stream.write_all(chunks);
        });
        assert_eq!((status(&outcome), body(&outcome)), (Some(503), kept));
    }
}

#[test]
fn a_compressed_body_is_kept_as_it_came() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n\x1f\x8b\x08\x00\xff\xfe";
    assert_eq!(body(&answering(answer)), b"\x1f\x8b\x08\x00\xff\xfe");
}

#[test]
fn a_redirect_is_an_answer_and_is_not_followed() {
    let elsewhere = Receiver::start(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    });
    let port = elsewhere.port;
    for code in [301, 302, 303, 307, 308] {
        let outcome = against(move |stream| {
            drain_request(stream);
            let answer = format!("HTTP/1.1 {code} Moved\r\nLocation: http://127.0.0.1:{port}/\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
        });
        assert_eq!(status(&outcome), Some(code));
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn the_wish_to_be_asked_later_is_passed_on() {
    let outcome = answering(b"HTTP/1.1 429 Slow down\r\nRetry-After: 17\r\n\r\n");
    let wish = Some(Duration::from_secs(17));
    assert_eq!(outcome, Outcome::Answer { status: 429, retry_after: wish, body: Vec::new() });
    let outcome = answering(b"HTTP/1.1 503 No\r\nretry-after: tomorrow\r\n\r\n");
    assert_eq!(outcome, Outcome::Answer { status: 503, retry_after: None, body: Vec::new() });
    assert_eq!(status(&answering(b"HTTP/1.1 410 Gone\r\n\r\n")), Some(410));
}

#[test]
fn other_protocols_are_no_answer() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"220 smtp ESMTP\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"\0\0\0\0\0\0\0\0",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 99 X\r\n\r\n",
        b"HTTP/1.1 700 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX\0: y\r\n\r\n",
        b"{\"status\":200}",
    ] {
        let outcome = answering(bytes);
        assert!(is_unknown(&outcome), "{bytes:?}: {outcome:?}");
    }
}

#[test]
fn an_answer_before_the_request_is_read_counts() {
    let receiver = Receiver::start(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n");
        hang(stream);
    });
    let mut request = request(receiver.port, TIMEOUT);
    request.body = vec![b'x'; 1 << 20];
    assert_eq!(status(&egress::send(&request, &network(None))), Some(413));
}

#[test]
fn nobody_at_the_door_is_not_sent() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let outcome = egress::send(&request(port, TIMEOUT), &network(None));
    assert_eq!(outcome, Outcome::NotSent("connection refused".to_owned()));
}

#[test]
fn a_name_service_that_hangs_ends_with_the_deadline() {
    struct Never;
    impl egress::Resolve for Never {
        fn resolve(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
            std::thread::sleep(FOREVER);
            Ok(Vec::new())
        }
    }
    let request = request_with("http://slow.test:80/", &policy("slow.test", None), TIMEOUT);
    let began = Instant::now();
    let network = egress::Network { names: std::sync::Arc::new(Never), ..network(None) };
    assert!(matches!(egress::send(&request, &network), Outcome::NotSent(_)));
    assert!(began.elapsed() < TIMEOUT + GRACE);
}

#[test]
fn a_name_that_turns_to_a_private_address_is_refused_at_the_next_attempt() {
    struct Turning(std::sync::atomic::AtomicUsize);
    impl egress::Resolve for Turning {
        fn resolve(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
            let first = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            Ok(vec![if first { [127, 0, 0, 1] } else { [127, 0, 1, 1] }.into()])
        }
    }
    let receiver = Receiver::start(|stream| {
        drain_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    });
    let url = format!("http://turning.test:{}/", receiver.port);
    let policy = policy("turning.test", Some("127.0.0.1/32"));
    let request = request_with(&url, &policy, TIMEOUT);
    let network = egress::Network { names: std::sync::Arc::new(Turning(0.into())), ..network(None) };
    assert_eq!(status(&egress::send(&request, &network)), Some(200));
    assert_eq!(egress::send(&request, &network), Outcome::Refused(Blocked::Network));
    assert_eq!(receiver.connections(), 1);
}

#[test]
fn the_servers_own_port_is_not_dialled_even_if_a_rule_opens_it() {
    let receiver = Receiver::start(|_| ());
    for listens in [[127, 0, 0, 1], [0, 0, 0, 0]] {
        let mut request = request(receiver.port, TIMEOUT);
        let mut policy = (*request.policy).clone();
        policy.own = vec![(listens, receiver.port).into()];
        request.policy = policy.into();
        assert_eq!(egress::send(&request, &network(None)), Outcome::Refused(Blocked::OwnAddress));
    }
    assert_eq!(receiver.connections(), 0);
}
