//! Texts that mean harm, or were pasted from somewhere: each is a clear error or the right value, none is a panic,
//! none takes long.

use automation_core::condition::Condition;
use automation_core::cron::Cron;
use automation_core::expr::{Budget, Expr, ExprError, FixedScope};
use automation_core::template::{JsonTemplate, SqlTemplate, Template};
use automation_core::topic::{self, TopicIndex};
use automation_core::value::{Timestamp, Value};
use std::time::{Duration, Instant};

/// The limit is for optimised code; a debug build is about ten times slower.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 50 });

/// How long something takes this thread: a busy machine is not a slow text. Where the system does not tell, the clock on
/// the wall must do.
fn time_of(run: impl FnOnce()) -> Duration {
    let on_processor = || {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(told.split(' ').next()?.parse().ok()?))
    };
    let (wall, before) = (Instant::now(), on_processor());
    run();
    match (before, on_processor()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => wall.elapsed(),
    }
}

fn scope() -> FixedScope {
    let roots = r#"{"new": {"__proto__": 1, "a.b": 2, "a:*": 3, "it's": 4, "id": 7, "text": "x"}, "payload": {"": 5}}"#;
    FixedScope::new(Value::from_json(roots).unwrap(), Timestamp(0))
}

/// Unbalanced, deep, long.
fn shapes() -> Vec<String> {
    let mut texts = Vec::new();
    for n in [1, 31, 32, 33, 64, 1_000, 10_000, 500_000] {
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{a:", "1", "}"),
            ("lower(", "'a'", ")"),
            ("a[", "0", "]"),
            ("true ? ", "1", " : 2"),
            ("-", "1", ""),
            ("- ", "1", ""),
            ("!", "true", ""),
            ("not ", "true", ""),
        ] {
            texts.push(open.repeat(n) + middle + &close.repeat(n));
        }
        for part in [
            "(", ")", "[", "{", "}", "a.", "1+", "a and ", "'", "\"", "\\", "/*", "--", "{{", "}}", "|lower", "= ",
            "?", ":",
        ] {
            texts.push(part.repeat(n));
        }
        texts.push(vec!["1"; n].join(" + "));
        texts.push(vec!["new.id"; n].join(" and "));
        texts.push(format!("new{}", ".a".repeat(n)));
        texts.push(format!("'a'{}", "|upper".repeat(n)));
        texts.push(vec!["1"; n].join(" = "));
        texts.push(format!("[{}]", vec!["1"; n].join(",")));
        texts.push(format!("'{}'", "x".repeat(n)));
        texts.push("9".repeat(n));
        texts.push(format!("0.{}", "9".repeat(n)));
        texts.push(format!("1e{}", "9".repeat(n.min(1000))));
    }
    texts.retain(|text| text.len() <= 1_100_000);
    texts
}

/// Odd characters, numbers, names and patterns.
fn oddities() -> Vec<String> {
    let texts = [
        "",
        " ",
        "\0",
        "new.\0",
        "'a\0b'",
        "\"a\0b\"",
        "\u{feff}new.id",
        "new\u{200b}.id",
        "new.id\u{202e} = 1",
        "\u{2066}x\u{2069}",
        "new\u{a0}.id",
        "“x”",
        "‘x’",
        "ｎｅｗ.id",
        "new．id",
        "a\u{0301}",
        "\u{10ffff}",
        "ﷺ",
        "🦀",
        "'🦀'",
        "\"\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\ud800\"",
        "\"\\uD83Dx\"",
        "\"\\u12\"",
        "\"\\u\"",
        "\"\\x41\"",
        "\"\\\"",
        "\"\\u0000\"",
        "1e9",
        "1e131071",
        "1e131072",
        "1e-16383",
        "1e-16384",
        "1e999999999999999999999",
        "1e-999999999999999999999",
        "-1e400",
        "0e999999999",
        "00",
        "01",
        "1.",
        ".1",
        "1..2",
        "1e",
        "1e+",
        "0x10",
        "1_000",
        "NaN",
        "Infinity",
        "-Infinity",
        "'NaN' + 0",
        "1e100000 + 1e-16000",
        "1e100000 * 1e30000",
        "1e60000 * 1e60000",
        "1 / 1e100000",
        "1e100000 / 3",
        "1e100000 % 7",
        "1e131071 * 10",
        "1e131000 - 1e131000 + 1",
        "round(1e100000, -5)",
        "round(1.5, 1e30)",
        "round(1.5, -1e30)",
        "number('1e1000000000')",
        "number('9' + '9')",
        "9223372036854775808 - 1",
        "-9223372036854775808 % -1",
        "-9223372036854775808 / -1",
        "abs(-9223372036854775808)",
        "1 / 0",
        "1 % 0",
        "0 / 0",
        "1 day / 0",
        "1 hour * 1e30",
        "1e30 * 1 year",
        "99999999999999999999 years",
        "now() + 300000 years",
        "now() - 300000 years",
        "from_epoch(1e30)",
        "date('9999-12-31') + 1e9",
        "date('0000-01-01')",
        "time('0001-01-01')",
        "time('99999-01-01')",
        "time('2026-01-01T24:00:00Z')",
        "time('2026-06-30T23:59:60Z')",
        "time('2026-01-01T00:00:00+99:99')",
        "time('2026-13-01')",
        "date('2026-02-29')",
        "duration('P')",
        "duration('PT1e9S')",
        "duration('99999999999999999999 days')",
        "duration('1:2:3')",
        "new.__proto__",
        "new[\"__proto__\"]",
        "new.constructor",
        "new.prototype.x",
        "payload[\"\"]",
        "new[\"a.b\"]",
        "new['a:*']",
        "new[\"it's\"]",
        "state.orders['*'].x",
        "state.orders[''].x",
        "state['']['']",
        "state.a['\"; drop table x'].y",
        "health.systems['*'].status",
        "new[-1]",
        "new[1e30]",
        "new[null]",
        "[1][1e30]",
        "[1][-9223372036854775808]",
        "range(1, 1e18)",
        "range(-9223372036854775808, 9223372036854775807)",
        "pad_left('a', 1e18)",
        "pad_left('a', 4000000000)",
        "replace('aaaa', 'a', pad_left('', 100000))",
        "matches('a', '(((((((((((a*)*)*)*)*)*)*)*)*)*)*$')",
        "matches('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', '(a|aa)+$')",
        "matches('x', 'x{1000}{1000}')",
        "matches('x', '\\\\')",
        "matches('x', '(?i)X')",
        "matches('x', '(?=x)')",
        "matches('x', '[')",
        "matches('x', '\\p{Greek}')",
        "extract('x', '')",
        "'a' like '%%%%%%%%%%%%%%%%%%%%%%%%%b'",
        "'a' like '\\'",
        "'' like ''",
        "format_time(now(), '%')",
        "format_time(now(), '%s%z%Z')",
        "format_time(now(), '%999999d')",
        "trunc_time(now(), '')",
        "hour(now(), '')",
        "hour(now(), '../../etc/passwd')",
        "json(new) | parse_json",
        "parse_json('[[[[[[[[[[')",
        "parse_json('{\"a\":1,\"a\":2}').a",
        "parse_json('\"\\ud800\"')",
        "sort([1, null, 'a', [], {}])",
        "min([[], {}])",
        "{} + {}",
        "[] - []",
        "-{}",
        "-[]",
        "-'a'",
        "not {}",
        "{} ? 1 : 2",
        "{\"a\": 1, \"a\": 2}.a",
        "{a: 1}.b.c.d",
        "' OR 1=1 --",
        "'; DROP TABLE orders; --",
        "1; select 1",
        "$1",
        "${x}",
        "#{x}",
        "<%= x %>",
        "{% if x %}",
        "{{7*7}}",
        "{{ {{ }} }}",
        "{{ '{{' }}",
        "{{ \"}}\" }}",
        "{{",
        "}}",
        "{{}}",
        "{{ new.id",
        "new.id }}",
        "/*",
        "/* /* */",
        "--",
        "-- x",
        "1 --\n+ 1",
        "lower(lower)",
        "true(1)",
        "null.x",
        "and",
        "becomes",
        "new becomes",
        "changed",
        "new.a becomes becomes",
        "in in in",
        "is is is",
        "not not",
        "[,]",
        "{,}",
        "(,)",
        "f(,)",
        "a.b.c.",
        "a[b",
        "a]b",
        "a(b",
        "a)b",
        "a{b",
        "a}b",
        "'a' 'b'",
        "1 1",
        "a ? b",
        "a : b",
        "=",
        "==",
        "===",
        "<>",
        "><",
        ">=<",
        "|",
        "||",
        "|||",
        "a | b",
        "a |",
        "| b",
        "&",
        "&&",
        "!",
        "!=",
        "%",
        "*",
        "/",
        "\\",
        "^",
        "~",
        "`",
        "@",
        "#",
        ";",
    ];
    texts.iter().map(|t| (*t).to_owned()).collect()
}

fn check_error(text: &str, error: &ExprError) {
    assert!(!error.message.is_empty() && !error.message.ends_with('.'), "{}", error.message);
    assert!(error.span.start <= error.span.end && error.span.end <= text.len().max(error.span.start), "{error:?}");
    assert!(error.message.len() < 400, "a message repeats the text: {}", error.message.len());
    error.caret(text);
}

type Way = (&'static str, fn(&str));

/// Every way a text can come in.
const WAYS: [Way; 10] = [
    ("parse and evaluate", |text| {
        let result = Expr::parse(text).and_then(|e| e.eval(&scope(), &mut Budget::default()));
        _ = result.map_err(|e| check_error(text, &e));
    }),
    ("analyse", |text| {
        if let Ok(expr) = Expr::parse(text) {
            expr.references();
            automation_core::check::check_boolean(&expr, &automation_core::check::Names::default());
        }
    }),
    ("time", |text| {
        _ = Expr::parse(text).and_then(|e| e.time_dependence(&scope(), &mut Budget::default()));
    }),
    ("condition", |text| {
        _ = Condition::parse_text(text).map(|c| c.explain(&scope(), &mut Budget::default()));
    }),
    ("template", |text| {
        _ = Template::parse(text).map(|t| t.render(&scope(), &mut Budget::default()));
    }),
    ("sql", |text| {
        _ = SqlTemplate::parse(text).map(|t| t.bind(&scope(), &mut Budget::default()));
    }),
    ("json template", |text| {
        _ = JsonTemplate::parse(text).map(|t| t.eval(&scope(), &mut Budget::default()));
    }),
    ("cron", |text| {
        _ = Cron::parse(text).map(|c| c.next_after(Timestamp(0), chrono_tz::Tz::Europe__Berlin));
    }),
    ("json", |text| _ = Value::from_json(text)),
    ("topic", |text| {
        topic::matches(text, "a.b");
        topic::matches("a.b", text);
        let mut index = TopicIndex::new();
        index.insert("a.#", 0);
        if topic::validate(text).is_ok() {
            index.insert(text, 1);
        }
        index.matches(text);
    }),
];

#[test]
fn no_text_panics_or_takes_long() {
    let texts: Vec<String> = shapes().into_iter().chain(oddities()).collect();
    assert!(texts.len() >= 400);
    let mut slow = Vec::new();
    for text in &texts {
        for (way, run) in WAYS {
            let took = time_of(|| run(text));
            if took > LIMIT {
                slow.push(format!("{way}: {took:?} for {} bytes of {:.40}", text.len(), text));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn hostile_json_is_refused_or_read() {
    let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
    let many_keys = format!("{{{}}}", (0..100_000).map(|i| format!("\"k{i}\": {i}")).collect::<Vec<_>>().join(","));
    let same_key = format!("{{{}}}", vec!["\"k\": 1"; 100_000].join(","));
    for (text, reads) in [
        (deep(200), true),
        (deep(300), false),
        (deep(1_000_000), false),
        ("\"\\ud800\"".to_owned(), false),
        ("\"\\u0000\"".to_owned(), false),
        ("\"\0\"".to_owned(), false),
        ("1e131072".to_owned(), false),
        ("1e99999999999999999999".to_owned(), false),
        ("-".to_owned(), false),
        ("01".to_owned(), false),
        ("[1,]".to_owned(), false),
        ("{\"__proto__\": {\"x\": 1}}".to_owned(), true),
        (format!("\"{}\"", "x".repeat(1_000_000)), true),
        (many_keys, true),
        (same_key, true),
    ] {
        let shown: String = text.chars().take(40).collect();
        let took = time_of(|| assert_eq!(Value::from_json(&text).is_ok(), reads, "{shown}"));
        assert!(took <= LIMIT * 4, "{took:?} for {shown}");
    }
}

#[test]
fn strange_keys_and_ids_are_just_keys_and_ids() {
    for (text, expected) in [
        ("new.__proto__", "1"),
        ("new[\"a.b\"]", "2"),
        ("new['a:*']", "3"),
        ("new[\"it's\"]", "4"),
        ("payload[\"\"]", "5"),
        ("'🦀' + \"\\ud83e\\udd80\"", "\"🦀🦀\""),
        ("1e131071 > 1e131070", "true"),
        ("-9223372036854775808 % -1", "0"),
        ("9223372036854775808 - 1", "9223372036854775807"),
        ("{\"a\": 1, \"a\": 2}.a", "2"),
    ] {
        let value = Expr::parse(text).unwrap().eval(&scope(), &mut Budget::default()).unwrap();
        assert_eq!(value.to_json(), expected, "{text}");
    }
}
