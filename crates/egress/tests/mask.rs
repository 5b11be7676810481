//! The value of a secret is found in whatever spelling a receiver sends it back, and nothing else is touched.
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use egress::{MASKED, Mask};
use proptest::prelude::*;

fn shown(secrets: &[&str], text: &str) -> String {
    Mask::new(secrets.iter().map(|secret| secret.as_bytes())).apply_text(text)
}

#[test]
fn a_value_is_taken_out_in_every_spelling() {
    let secret = "s3cret/\"val ue\"+\u{fc}\u{1f511}\\n%25";
    let json = serde_json::to_string(secret).expect("JSON");
    let twice = serde_json::to_string(&json).expect("JSON");
    let ascii: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let form = percent.replace("%20", "+").replace("%73", "s");
    let entities: String = secret.chars().map(|c| format!("&#x{:x};", u32::from(c))).collect();
    let html = secret.replace('"', "&quot;");
    let slashes = json.replace('/', "\\/");
    let digits: String = secret.bytes().map(|byte| format!("{byte:02X}")).collect();
    for text in [secret, &json, &twice, &ascii, &percent, &form, &entities, &html, &slashes, &digits] {
        let masked = shown(&[secret], &format!("<{text}>"));
        assert!(masked.contains(MASKED) && !masked.contains("val") && masked.len() <= 12, "{text} -> {masked}");
    }
}

#[test]
fn base64_is_found_wherever_the_value_begins_in_it() {
    let secret = "canary-5f2b8a91c04d";
    for before in ["", "a", "ab", "abc", "Authorization: Bearer "] {
        for after in ["", ".", "\r\n"] {
            for encoded in [
                STANDARD.encode(format!("{before}{secret}{after}")),
                URL_SAFE_NO_PAD.encode(format!("{before}{secret}{after}")),
            ] {
                let masked = shown(&[secret], &format!("{{\"raw\": \"{encoded}\"}}"));
                // what is left are the neighbours and at most a character at each end
                let plain = |text: &str| STANDARD.encode(text).len() + 4;
                assert!(masked.contains(MASKED), "{before}|{after}: {masked}");
                assert!(masked.len() <= 13 + plain(before) + plain(after), "{before}|{after}: {masked}");
            }
        }
    }
}

#[test]
fn the_parts_that_a_receiver_may_show_alone_are_values_too() {
    assert_eq!(shown(&["Bearer canary-5f2b"], "Bearer canary-5f2b, Bearer, canary-5f2b"), "***, Bearer, ***");
    let basic = format!("Basic {}", STANDARD.encode("ann:open sesame"));
    assert_eq!(
        shown(&[&basic], r#"{"user": "ann", "password": "open sesame"}"#),
        r#"{"user": "ann", "password": "***"}"#
    );
    assert_eq!(shown(&[&basic], &basic), "***");
    let key = STANDARD.encode([0xfe; 24]);
    let whole = format!("whsec_{key}");
    assert_eq!(shown(&[&whole], &format!("{whole} {key} {}", "fe".repeat(24))), "*** *** ***");
}

#[test]
fn short_values_and_other_texts_stay() {
    assert_eq!(shown(&["abc", ""], "abc and more"), "abc and more");
    assert_eq!(shown(&["abcd"], "abcd abce"), "*** abce");
    assert_eq!(shown(&[], "anything"), "anything");
    let text = r#"{"ok": true, "path": "a\/b", "q": "%41+%zz&lt;&nope;\u00"}"#;
    assert_eq!(shown(&["another value"], text), text);
}

#[test]
fn what_the_end_cuts_off_is_a_value_too() {
    assert_eq!(shown(&["canary-5f2b8a91c04d"], "said canary-5f2"), "said ***");
    assert_eq!(shown(&["canary-5f2b8a91c04d"], "said canary%2d5f2b%3"), "said ***");
    assert_eq!(shown(&["canary-5f2b8a91c04d"], "said canary"), "said canary", "too little to be sure");
    assert_eq!(shown(&["canary-5f2b8a91c04d"], "said canary-5f2 said"), "said canary-5f2 said");
}

#[test]
fn a_text_that_was_made_to_take_long_does_not_and_shows_nothing() {
    let secret = format!("{}b", "a".repeat(4000));
    let mask = Mask::new([secret.as_bytes()]);
    let began = std::time::Instant::now();
    for text in ["\\".repeat(100_000), "%61".repeat(30_000)] {
        let masked = mask.apply_text(&text);
        assert!(masked.len() <= text.len());
    }
    assert!(mask.apply_text(&"a".repeat(100_000)).ends_with(MASKED));
    let backslashes = Mask::new([&b"\\\\ab cdef"[..]]);
    backslashes.apply_text(&"\\".repeat(100_000));
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn it_does_not_show_itself() {
    assert!(!format!("{:?}", Mask::new([&b"canary-5f2b"[..]])).contains("canary"));
}

/// A text that no mask can make of another.
fn secret() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9%+/\\\\\"'&; ._=\u{e4}\u{1f511}-]{4,40}".prop_filter("not blank", |text| text.trim().len() >= 4)
}

/// Each character in a spelling of its own.
fn spelled(secret: &str, how: &[u8]) -> String {
    let mut told = String::new();
    for (c, how) in secret.chars().zip(how.iter().cycle()) {
        let bytes = c.to_string().into_bytes();
        match how % 5 {
            0 => told.extend(bytes.iter().map(|byte| format!("%{byte:02X}"))),
            1 => told.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
            2 => told.push_str(&format!("&#{};", u32::from(c))),
            3 if matches!(c, '"' | '\\') => told.push_str(&format!("\\{c}")),
            _ => told.push(c),
        }
    }
    told
}

proptest! {
    #[test]
    fn no_spelling_gets_through(
        secret in secret(),
        how in prop::collection::vec(any::<u8>(), 1..12),
        before in "[A-Z ]{0,20}",
        after in "[A-Z ]{0,20}",
    ) {
        let text = format!("{before}\n{}\n{after}", spelled(&secret, &how));
        let masked = shown(&[&secret], &text);
        prop_assert!(masked.contains(MASKED), "{} in {}", secret, text);
        prop_assert!(!masked.contains(&secret), "{} in {}", secret, masked);
    }

    #[test]
    fn nothing_is_taken_out_where_there_is_nothing(secret in "[a-z0-9]{12,30}", text in "[A-Z %&+\\\\;]{0,200}") {
        prop_assert_eq!(shown(&[&secret], &text), text);
    }

    #[test]
    fn no_bytes_make_it_panic(secrets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4), text in prop::collection::vec(any::<u8>(), 0..300)) {
        let mask = Mask::new(secrets.iter().map(Vec::as_slice));
        let masked = mask.apply(&text);
        for secret in secrets.iter().filter(|secret| secret.len() >= 16 && !secret.contains(&b'*')) {
            prop_assert!(!masked.windows(secret.len()).any(|part| part == secret.as_slice()));
        }
    }

    #[test]
    fn a_value_at_the_cut_is_found_if_the_margin_is_known(secret in "[a-z0-9]{8,30}", before in 0_usize..100) {
        let mask = Mask::new([secret.as_bytes()]);
        let text = format!("{}{secret}{}", ".".repeat(before), ".".repeat(200));
        let cut = 50;
        let kept = &text.as_bytes()[..(cut + mask.margin()).min(text.len())];
        let mut masked = mask.apply(kept);
        masked.truncate(cut);
        let shown = String::from_utf8_lossy(&masked).into_owned();
        prop_assert!(!shown.contains(&secret[..4]), "{}", shown);
    }
}
