//! What an expression is charged covers what it takes, in steps and not in time: each of these took seconds within its
//! budget when it was charged for something else.

use automation_core::expr::{Budget, Expr, ExprError, ExprErrorKind, FixedScope};
use automation_core::value::{Timestamp, Value};

/// The value, and how many steps it took.
fn cost(roots: &str, text: &str) -> (Result<Value, ExprError>, usize) {
    let scope = FixedScope::new(Value::from_json(roots).expect("JSON"), Timestamp(0));
    let mut budget = Budget::default();
    let before = budget.steps;
    let value = Expr::parse(text).expect("an expression").eval(&scope, &mut budget);
    (value, before - budget.steps)
}

fn text_of(length: usize) -> String {
    format!(r#"{{"t": "{}"}}"#, "ab".repeat(length / 2))
}

fn refused(roots: &str, text: &str) {
    let (value, _) = cost(roots, text);
    assert_eq!(value.expect_err(text).kind, ExprErrorKind::BudgetExceeded, "{text}");
}

/// The same 100 times, joined.
fn often(part: &str) -> String {
    vec![part; 100].join(" or ")
}

#[test]
fn a_regular_expression_costs_its_compiled_size_times_the_text() {
    let matches = "matches(t, '(?:[ab]{0,500}a[ab]{500})[^a-b]')";
    // 1500 states: a short text is within the budget, and ten times the text costs about ten times as much
    let (value, short) = cost(&text_of(10), matches);
    assert_eq!(value.expect("a short text"), Value::Bool(false));
    let (_, longer) = cost(&text_of(100), matches);
    assert!(longer > short + 2_000, "{short} steps for 10 bytes, {longer} for 100");
    // and a text of a column's size needs more memory than a DFA may have
    refused(&text_of(60_000), matches);
    refused(&text_of(1_000_000), matches);
    refused(&text_of(60_000), &matches.replace("matches", "extract").replace("')", "') is null"));
}

#[test]
fn counted_repetitions_are_charged_as_they_are_multiplied_out() {
    let (_, one) = cost(&text_of(10), "matches(t, 'a{2}')");
    let (_, many) = cost(&text_of(10), "matches(t, 'a{200}')");
    assert!(many > one + 100, "{one} steps for two, {many} for two hundred");
}

#[test]
fn usual_patterns_are_found_in_long_texts() {
    let roots = format!(r#"{{"t": "{} order 42 for jane@example.com é"}}"#, "lorem ipsum ".repeat(5_000));
    for (text, expected) in [
        ("matches(t, '\\w+@\\w+')", "true"),
        ("matches(t, '(?i)URGENT|REFUND')", "false"),
        ("matches(t, '\\d{4}-\\d{2}-\\d{2}')", "false"),
        ("matches(t, '\\bjane\\b')", "true"),
        ("extract(t, 'order (\\d+)')", "\"42\""),
        ("extract(t, '[a-z]+@[a-z.]+')", "\"jane@example.com\""),
        ("extract(t, 'no such (thing)')", "null"),
        ("extract(t, '(\\w)$')", "\"é\""),
    ] {
        let (value, steps) = cost(&roots, text);
        assert_eq!(value.unwrap_or_else(|error| panic!("{text}: {error}")).to_json(), expected, "{text}");
        assert!(steps < 50_000, "{text} took {steps} steps");
    }
}

#[test]
fn a_pattern_costs_the_same_each_time() {
    let roots = text_of(60_000);
    let (_, first) = cost(&roots, "matches(t, '\\w+@\\w+')");
    let (_, again) = cost(&roots, "matches(t, '\\w+@\\w+')");
    assert_eq!(first, again);
}

#[test]
fn long_numbers_cost_the_square_of_their_digits() {
    let digits = format!(r#"{{"n": {}, "f": 1{}.{}}}"#, "9".repeat(60_000), "0".repeat(50_000), "0".repeat(16_000));
    for part in ["f = 'x'", "n like 'x'", "n / 3 = 0", "round(n, -30000) = 0", "n % 7.5 = 1", "text(n) = 'x'"] {
        refused(&digits, &often(part));
    }
    // what people work with costs nothing to speak of
    let (_, steps) = cost(r#"{"n": 123456789012345678901234567890.12}"#, &often("n * 3 / 7 = 0"));
    assert!(steps < 2_000, "{steps} steps");
}

#[test]
fn numbers_that_are_short_to_write_and_long_to_work_with_are_charged_or_refused() {
    let many = vec!["1e100000"; 2_000].join(",");
    let error = Expr::parse(&format!("[{many}] = 1")).expect_err("too many digits");
    assert_eq!(error.kind, ExprErrorKind::TooComplex);
    assert_eq!(Value::from_json(&format!("[{many}]")).expect_err("too many").kind, ExprErrorKind::BudgetExceeded);
    refused(&format!(r#"{{"t": "[{many}]"}}"#), "parse_json(t) is null");
    let some = vec!["1e5000"; 1_000].join(",");
    refused(&format!(r#"{{"l": [{some}]}}"#), "1.5 in l or contains(l, 'x')");
    refused(&format!(r#"{{"l": [{some}]}}"#), "unique(l) = 1");
    refused(r#"{"n": 1}"#, &often("'1e100000' * n = 1"));
}

#[test]
fn what_is_nested_costs_all_of_it() {
    let list = format!("[[{}]]", vec!["1"; 200_000].join(","));
    let roots = format!(r#"{{"a": {list}, "b": {list}}}"#);
    let all = |part: &str| vec![part; 100].join(" and ");
    refused(&roots, &all("a = b"));
    refused(&roots, &all("a[0] in b"));
    refused(&roots, &all("contains(a, b[0])"));
    refused(&roots, &all("nullif(a, b) is null"));
    refused(&roots, &often("starts_with(a, 'x')"));
}

#[test]
fn a_search_in_a_long_text_costs_its_length() {
    let roots = text_of(1_000_000);
    for part in ["'c' in t", "contains(t, 'c')", "starts_with(t, 'c')", "boolean(t)"] {
        let (_, once) = cost(&roots, part);
        assert!(once > 100, "{part} took {once} steps");
    }
}
