//! Numbers, JSON, times and filters against other implementations of the same thing.

use crate::generate::document;
use automation_core::condition::PointerFilter;
use automation_core::value::{Duration, Image, Number, Timestamp, Value};
use proptest::prelude::*;

/// A decimal as its digits and scale, for an oracle in plain integers.
fn decimal() -> impl Strategy<Value = (i64, u32)> {
    (any::<i32>().prop_map(i64::from), 0_u32..8)
}

fn number((digits, scale): (i64, u32)) -> Number {
    Number::parse(&format!("{digits}e-{scale}")).unwrap()
}

fn common((a, sa): (i64, u32), (b, sb): (i64, u32)) -> (i128, i128, u32) {
    let scale = sa.max(sb);
    (i128::from(a) * 10_i128.pow(scale - sa), i128::from(b) * 10_i128.pow(scale - sb), scale)
}

fn exact(digits: i128, scale: u32) -> Number {
    Number::parse(&format!("{digits}e-{scale}")).unwrap()
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn arithmetic_agrees_with_integers(a in decimal(), b in decimal()) {
        let (x, y) = (number(a), number(b));
        let (i, j, scale) = common(a, b);
        prop_assert_eq!(x.add(&y), Some(exact(i + j, scale)));
        prop_assert_eq!(x.sub(&y), Some(exact(i - j, scale)));
        prop_assert_eq!(x.mul(&y), Some(exact(i128::from(a.0) * i128::from(b.0), a.1 + b.1)));
        prop_assert_eq!(x.cmp(&y), i.cmp(&j));
        if j == 0 {
            prop_assert_eq!(x.div(&y), None);
            prop_assert_eq!(x.rem(&y), None);
        } else {
            prop_assert_eq!(x.rem(&y), Some(exact(i % j, scale)));
            // the quotient is off by no more than half a unit in its last place, at 16 digits or more
            let quotient = x.div(&y).unwrap();
            let error = quotient.mul(&y).unwrap().sub(&x).unwrap().abs();
            let bound = y.abs().mul(&Number::parse("1e-15").unwrap()).unwrap();
            prop_assert!(error <= bound || error <= x.abs().mul(&Number::parse("1e-15").unwrap()).unwrap());
        }
    }

    #[test]
    fn a_number_prints_as_it_was_read(whole in "[1-9][0-9]{0,40}", fraction in "[0-9]{0,30}", negative in any::<bool>()) {
        let text = format!(
            "{}{whole}{}{fraction}",
            if negative { "-" } else { "" },
            if fraction.is_empty() { "" } else { "." }
        );
        prop_assert_eq!(Number::parse(&text).unwrap().to_string(), text);
    }

    #[test]
    fn large_numbers_keep_every_digit(a in "[1-9][0-9]{20,60}", b in "[1-9][0-9]{20,60}") {
        let (x, y) = (Number::parse(&a).unwrap(), Number::parse(&b).unwrap());
        prop_assert_eq!(x.add(&y).unwrap().sub(&y), Some(x.clone()));
        prop_assert_eq!(x.mul(&y).unwrap().div(&y), Some(x.clone()));
        prop_assert_eq!(x.cmp(&y), a.len().cmp(&b.len()).then(a.cmp(&b)));
    }

    #[test]
    fn json_comes_back_as_it_went(document in document()) {
        let value = Value::from_json(&document.to_string()).unwrap();
        prop_assert_eq!(&value, &Value::from_serde(&document));
        let printed = value.to_json();
        prop_assert_eq!(&Value::from_json(&printed).unwrap(), &value);
        let reread: serde_json::Value = serde_json::from_str(&printed).unwrap();
        prop_assert_eq!(&Value::from_serde(&reread), &value);
    }

    #[test]
    fn json_is_accepted_exactly_when_serde_accepts_it(text in "[\\[\\]{}:,\"0-9.eE+\\- truefalsn\\\\]{0,16}") {
        let ours = Value::from_json(&text).is_ok();
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        // a number beyond the range of numeric is the one thing only we refuse
        if ours != theirs.is_ok() {
            prop_assert!(!ours && text.contains(['e', 'E']), "{}", text);
        }
    }

    #[test]
    fn a_pointer_finds_what_serde_finds(document in document(), tokens in prop::collection::vec("[ab0-2~/]{0,2}", 0..4)) {
        let pointer: String = tokens.iter().map(|t| format!("/{}", t.replace('~', "~0").replace('/', "~1"))).collect();
        let filter = serde_json::json!({ pointer.clone(): {"eq": 1} });
        let filter = PointerFilter::parse(&filter).unwrap();
        let value = Value::from_serde(&document);
        let ours = filter.clauses()[0].target(&value).cloned();
        prop_assert_eq!(ours, document.pointer(&pointer).map(Value::from_serde));
    }

    #[test]
    fn a_time_comes_back_as_it_went(micros in -62_000_000_000_000_000_i64..200_000_000_000_000_000) {
        let time = Timestamp(micros);
        prop_assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        prop_assert_eq!(Timestamp::parse(&time.to_postgres()), Some(time));
    }

    #[test]
    fn a_duration_comes_back_as_it_went(months in -500_i32..500, days in -5000_i32..5000, micros in any::<i32>()) {
        let duration = Duration { months, days, micros: i64::from(micros) * 1000 };
        let again = Duration::parse(&duration.to_string()).unwrap();
        prop_assert_eq!((again.months, again.days, again.micros), (months, days, i64::from(micros) * 1000));
    }

    #[test]
    fn a_member_read_alone_is_the_member_of_the_whole(
        members in prop::collection::vec(("\\PC{0,3}", document()), 0..6),
        spaced in any::<bool>(),
    ) {
        let object: serde_json::Map<String, serde_json::Value> = members.into_iter().collect();
        let json = serde_json::Value::Object(object.clone());
        let text = if spaced { serde_json::to_string_pretty(&json).unwrap() } else { json.to_string() };
        let whole = Value::from_json(&text).unwrap();
        for name in object.keys().map(String::as_str).chain(["", "a", "no such"]) {
            // an image that was never asked before reads the member alone
            let alone = Image::new(Some(&text)).member(name).unwrap().map(|value| value.into_owned());
            prop_assert_eq!(alone.as_ref(), whole.get(name), "{} of {}", name, text);
        }
    }
}
