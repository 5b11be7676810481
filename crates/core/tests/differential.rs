//! Arithmetic, comparison, patterns, times and zones against Postgres itself.
//!
//! Needs a server: `DIFFERENTIAL_PSQL="-h /tmp -U postgres" cargo test --release -p automation_core --test differential`.
//! Without the variable the tests pass at once, because the pure crate must be testable without a server.

use automation_core::expr::{Budget, Expr, FixedScope};
use automation_core::value::{Number, Timestamp, Value};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a query over rows of text columns `i, a, b` and returns its output lines; `None` without a server.
fn ask(rows: &[(String, String)], query: &str) -> Option<Vec<String>> {
    let options = std::env::var("DIFFERENTIAL_PSQL").ok()?;
    let mut psql = Command::new("psql")
        .args(options.split_whitespace())
        .args(["-AtqX", "-v", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql starts");
    let mut input =
        String::from("SET timezone = 'UTC';\nCREATE TEMP TABLE pair (i int, a text, b text);\nCOPY pair FROM stdin;\n");
    for (i, (a, b)) in rows.iter().enumerate() {
        let escaped = |text: &str| text.replace('\\', "\\\\");
        input.push_str(&format!("{i}\t{}\t{}\n", escaped(a), escaped(b)));
    }
    input.push_str(&format!("\\.\n{query};\n"));
    let mut stdin = psql.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = psql.wait_with_output().expect("psql ends");
    writer.join().expect("the writer ends").expect("psql reads");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect())
}

/// Random pairs; the number can be raised with PROPERTY_FACTOR.
fn pairs<S: Strategy<Value = (String, String)>>(strategy: S, count: usize) -> Vec<(String, String)> {
    if std::env::var_os("DIFFERENTIAL_PSQL").is_none() {
        return Vec::new();
    }
    let factor: usize = std::env::var("PROPERTY_FACTOR").ok().and_then(|f| f.parse().ok()).unwrap_or(1);
    let mut runner = TestRunner::default();
    (0..count * factor).map(|_| strategy.new_tree(&mut runner).expect("a case").current()).collect()
}

fn agree(rows: &[(String, String)], theirs: Option<Vec<String>>, ours: impl Fn(&str, &str) -> String) {
    let Some(theirs) = theirs else { return };
    assert_eq!(theirs.len(), rows.len());
    let differing: Vec<String> = rows
        .iter()
        .zip(&theirs)
        .filter_map(|((a, b), theirs)| {
            let ours = ours(a, b);
            (ours != *theirs).then(|| format!("{a:?} and {b:?}: Postgres says {theirs:?}, we say {ours:?}"))
        })
        .take(20)
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn decimal() -> impl Strategy<Value = String> {
    prop_oneof![
        (-1000_i32..1000).prop_map(|n| n.to_string()),
        "-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,12})?",
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,30})?",
        "-?0\\.0{0,20}[1-9][0-9]{0,5}",
    ]
}

fn two_decimals() -> impl Strategy<Value = (String, String)> {
    (decimal(), decimal())
}

fn number(text: &str) -> Number {
    Number::parse(text).expect("a number")
}

#[test]
fn arithmetic_agrees_with_numeric() {
    let rows = pairs(two_decimals(), 50_000);
    let (x, y) = ("a::numeric", "b::numeric");
    let query = |op: &str| format!("SELECT trim_scale({x} {op} {y}) FROM pair ORDER BY i");
    agree(&rows, ask(&rows, &query("+")), |a, b| number(a).add(&number(b)).expect("a sum").trimmed().to_string());
    agree(&rows, ask(&rows, &query("-")), |a, b| {
        number(a).sub(&number(b)).expect("a difference").trimmed().to_string()
    });
    agree(&rows, ask(&rows, &query("*")), |a, b| number(a).mul(&number(b)).expect("a product").trimmed().to_string());
    let rows: Vec<(String, String)> = rows.into_iter().filter(|(_, b)| !number(b).is_zero()).collect();
    agree(&rows, ask(&rows, &query("/")), |a, b| number(a).div(&number(b)).expect("a quotient").to_string());
    agree(&rows, ask(&rows, &query("%")), |a, b| number(a).rem(&number(b)).expect("a remainder").trimmed().to_string());
    let rounded = format!("SELECT trim_scale(round({x}, 3)) FROM pair ORDER BY i");
    agree(&rows, ask(&rows, &rounded), |a, _| number(a).round(3).expect("a number").trimmed().to_string());
    let floors = format!("SELECT floor({x}) || ' ' || ceil({x}) FROM pair ORDER BY i");
    agree(&rows, ask(&rows, &floors), |a, _| {
        format!("{} {}", number(a).floor().expect("a number"), number(a).ceil().expect("a number"))
    });
}

#[test]
fn comparison_agrees_with_numeric() {
    let close = (decimal(), 0_u32..3).prop_map(|(a, zeros)| {
        let padded = if a.contains('.') { a.clone() + &"0".repeat(zeros as usize) } else { a.clone() };
        (a, padded)
    });
    let rows = pairs(prop_oneof![two_decimals(), close], 50_000);
    let query = "SELECT CASE WHEN a::numeric < b::numeric THEN 'less' WHEN a::numeric = b::numeric THEN 'equal' \
                 ELSE 'greater' END FROM pair ORDER BY i";
    agree(&rows, ask(&rows, query), |a, b| format!("{:?}", number(a).cmp(&number(b))).to_lowercase());
}

#[test]
fn like_agrees_with_postgres() {
    let text = "[ab%_\\\\é]{0,8}";
    let pattern = "([ab%_é]|\\\\[ab%_\\\\é]){0,6}";
    let rows = pairs((text, pattern), 20_000);
    let scope = |a: &str, b: &str| {
        let row = vec![("a".into(), Value::text(a)), ("b".into(), Value::text(b))];
        FixedScope::new(Value::object(vec![("new".into(), Value::object(row))]), Timestamp(0))
    };
    for operator in ["like", "ilike"] {
        let expr = Expr::parse(&format!("new.a {operator} new.b")).expect("it parses");
        let query = format!("SELECT CASE WHEN a {operator} b THEN 'true' ELSE 'false' END FROM pair ORDER BY i");
        agree(&rows, ask(&rows, &query), |a, b| {
            expr.eval(&scope(a, b), &mut Budget::default()).expect("a boolean").to_json()
        });
    }
}

fn instant() -> impl Strategy<Value = String> {
    (0_i64..2_208_988_800, 0_i64..1_000_000).prop_map(|(s, us)| Timestamp(s * 1_000_000 + us).to_postgres())
}

#[test]
fn time_and_interval_arithmetic_agrees_with_postgres() {
    // Postgres refuses a unit that comes twice; we add them up
    let unit = prop::sample::select(vec!["seconds", "hours", "days", "weeks", "months", "years"]);
    let words = (0_u32..500, unit, 0_u32..60).prop_map(|(n, unit, m)| format!("{n} {unit} {m} minutes"));
    let iso = (0_u32..20, 0_u32..12, 0_u32..31, 0_u32..24, 0_u32..60)
        .prop_map(|(y, mo, d, h, m)| format!("P{y}Y{mo}M{d}DT{h}H{m}M0.5S"));
    let clock = (0_u32..200, 0_u32..60, 0_u32..60).prop_map(|(h, m, s)| format!("{h}:{m:02}:{s:02}"));
    let rows = pairs((instant(), prop_oneof![words, iso, clock]), 10_000);
    let time = |text: &str| Timestamp::parse(text).expect("a time");
    let length = |text: &str| automation_core::value::Duration::parse(text).expect("a duration");
    let query = "SELECT a::timestamptz + b::interval FROM pair ORDER BY i";
    agree(&rows, ask(&rows, query), |a, b| time(a).plus(length(b)).expect("a time").to_postgres());
    let query = "SELECT a::timestamptz - b::interval FROM pair ORDER BY i";
    agree(&rows, ask(&rows, query), |a, b| {
        time(a).plus(length(b).negated().expect("a duration")).expect("a time").to_postgres()
    });
    let query = "SELECT (extract(epoch FROM a::timestamptz - '2000-01-01Z'::timestamptz) * 1000000)::bigint FROM pair ORDER BY i";
    agree(&rows, ask(&rows, query), |a, _| {
        time(a).minus(time("2000-01-01")).expect("a duration").total_micros().to_string()
    });
}

#[test]
fn forty_zones_agree_with_at_time_zone() {
    const ZONES: [&str; 40] = [
        "UTC",
        "Europe/Berlin",
        "Europe/London",
        "Europe/Dublin",
        "Europe/Moscow",
        "Europe/Istanbul",
        "Europe/Lisbon",
        "Europe/Kyiv",
        "America/New_York",
        "America/Chicago",
        "America/Denver",
        "America/Phoenix",
        "America/Los_Angeles",
        "America/Anchorage",
        "America/Halifax",
        "America/St_Johns",
        "America/Sao_Paulo",
        "America/Santiago",
        "America/Caracas",
        "America/Havana",
        "America/Bogota",
        "America/Argentina/Buenos_Aires",
        "Africa/Casablanca",
        "Africa/Cairo",
        "Africa/Johannesburg",
        "Africa/Lagos",
        "Asia/Tehran",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Asia/Shanghai",
        "Asia/Tokyo",
        "Asia/Pyongyang",
        "Asia/Jerusalem",
        "Asia/Riyadh",
        "Australia/Sydney",
        "Australia/Lord_Howe",
        "Australia/Adelaide",
        "Pacific/Auckland",
        "Pacific/Apia",
        "Pacific/Chatham",
    ];
    let rows = pairs((instant(), prop::sample::select(ZONES.to_vec()).prop_map(str::to_owned)), 20_000);
    let query = "SELECT to_char(a::timestamptz AT TIME ZONE b, 'YYYY-MM-DD HH24:MI:SS') FROM pair ORDER BY i";
    agree(&rows, ask(&rows, query), |a, b| {
        let zone = automation_core::cron::parse_zone(b).expect("a zone");
        let moment = Timestamp::parse(a).expect("a time").civil().expect("in range");
        moment.with_timezone(&zone).format("%Y-%m-%d %H:%M:%S").to_string()
    });
}
