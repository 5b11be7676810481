//! Random expressions, scopes and JSON.

use proptest::prelude::*;

/// Names of fields; few, so that expressions and scopes meet.
pub fn field() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("b"), Just("at"), Just("status"), Just("x y")].prop_map(str::to_owned)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i32>().prop_map(|n| format!("({n})")),
        (0_u32..1000, 0_u32..1000).prop_map(|(a, b)| format!("{a}.{b}")),
        "[a-z '\\\\%_é{}]{0,6}".prop_map(|t| quoted(&t)),
        "[a-z '/é]{0,6}".prop_map(|t| format!("\"{t}\"")),
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        Just("'2026-01-05T09:30:00Z'".to_owned()),
        (1_u32..90, prop_oneof![Just("minutes"), Just("hours"), Just("days"), Just("months"), Just("s")])
            .prop_map(|(n, unit)| format!("{n} {unit}")),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
    ]
}

/// A path into the row, the payload or the variables.
fn row_path() -> impl Strategy<Value = String> {
    let root = prop_oneof![Just("new"), Just("old"), Just("payload"), Just("vars"), Just("event.next")];
    (root, prop::collection::vec(field(), 1..3)).prop_map(|(root, fields)| {
        let steps = fields.iter().map(|f| if f == "x y" { "[\"x y\"]".to_owned() } else { format!(".{f}") });
        root.to_owned() + &steps.collect::<String>()
    })
}

/// A kind and id out of a handful.
pub const KINDS: [&str; 3] = ["orders", "users", "health"];

fn state(inner: impl Strategy<Value = String> + Clone + 'static) -> BoxedStrategy<String> {
    prop_oneof![
        (0..KINDS.len(), 0..3, field()).prop_map(|(k, id, f)| format!("state.{}.{id}[\"{f}\"]", KINDS[k])),
        (0..KINDS.len(), inner.clone()).prop_map(|(k, id)| format!("state.{}[{id}].a", KINDS[k])),
        (inner.clone(), 0..3).prop_map(|(kind, id)| format!("state[{kind}][{id}].a")),
        inner.prop_map(|id| format!("health.systems[{id}].status")),
    ]
    .boxed()
}

/// What an expression may use.
#[derive(Clone, Copy)]
pub struct Allowed {
    pub state: bool,
    pub clock: bool,
}

/// Any expression.
pub fn expression(allowed: Allowed) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![3 => literal(), 4 => row_path()].boxed();
    let leaf = match allowed.clock {
        true => prop_oneof![6 => leaf, 1 => Just("now()".to_owned()), 1 => Just("today()".to_owned())].boxed(),
        false => leaf,
    };
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let plain = prop_oneof![
            (inner.clone(), operator(), inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) ? ({b}) : ({c})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a}) between ({b}) and ({c})")),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            (field(), inner.clone()).prop_map(|(k, v)| format!("{{\"{k}\": {v}}}")),
            (function(), inner.clone(), inner.clone()).prop_map(|(f, a, b)| f.replace('#', &a).replace('@', &b)),
            (row_field(), inner.clone()).prop_map(|(f, v)| format!("{f} becomes ({v})")),
            row_field().prop_map(|f| format!("{f} changed")),
            inner.clone().prop_map(|a| format!("({a}) is not null")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
        ]
        .boxed();
        let with_state = match allowed.state {
            true => prop_oneof![4 => plain, 1 => state(inner.clone())].boxed(),
            false => plain,
        };
        match allowed.clock {
            true => prop_oneof![4 => with_state, 1 => clock(inner)].boxed(),
            false => with_state,
        }
    })
}

fn row_field() -> impl Strategy<Value = String> {
    prop_oneof![Just("new.a"), Just("next.status"), Just("event.next.at"), Just("new")].prop_map(str::to_owned)
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "and", "or", "in", "not in", "like", "ilike",
    ])
}

fn function() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "lower(#)",
        "coalesce(#, @)",
        "# | default(@)",
        "length(#)",
        "text(#)",
        "number(#)",
        "round(#, @)",
        "replace(#, @, 'x')",
        "split(#, @)",
        "join([#, @], ',')",
        "first([#])",
        "sort([#, @])",
        "unique([#, @])",
        "merge({}, #)",
        "get(#, 'a.b', @)",
        "time(#)",
        "date(#)",
        "duration(#)",
        "epoch(#)",
        "hour(#)",
        "matches(#, 'a+')",
        "json(#)",
        "parse_json(#)",
        "min(#, @)",
        "sum([#, @])",
        "slice([#, @], 1)",
        "pad_left(#, 5)",
        "substring(#, 2, 3)",
    ])
    .prop_map(|f| match f.starts_with('#') {
        // a pipe binds loosely
        true => "(# | default(@))",
        false => f,
    })
}

fn clock(inner: impl Strategy<Value = String> + Clone + 'static) -> BoxedStrategy<String> {
    prop_oneof![
        inner.clone().prop_map(|a| format!("since({a})")),
        inner.clone().prop_map(|a| format!("until({a})")),
        (inner.clone(), 1_u32..90).prop_map(|(a, n)| format!("older_than({a}, {n} minutes)")),
        (inner.clone(), 1_u32..90).prop_map(|(a, n)| format!("newer_than({a}, {n} minutes)")),
        (inner.clone(), comparison()).prop_map(|(a, op)| format!("now() {op} ({a})")),
        (inner, comparison(), 1_u32..90).prop_map(|(a, op, n)| format!("now() - ({a}) {op} {n} minutes")),
        (comparison(), 0_u32..24).prop_map(|(op, n)| format!("hour(now()) {op} {n}")),
        (comparison(), 1_u32..90).prop_map(|(op, n)| format!("since(new.at) {op} {n} minutes")),
        (comparison(), 1_u32..90).prop_map(|(op, n)| format!("time(new.at) + {n} hours {op} now()")),
    ]
    .boxed()
}

fn comparison() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["<", "<=", ">", ">=", "=", "<>"])
}

/// A JSON document.
pub fn document() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value as Json, json};
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1000_i32..1000).prop_map(Json::from),
        "[0-9]{1,30}\\.[0-9]{1,20}".prop_map(|digits| {
            let trimmed = digits.trim_start_matches('0');
            let digits = if trimmed.starts_with('.') { format!("0{trimmed}") } else { trimmed.to_owned() };
            serde_json::from_str(&digits).unwrap()
        }),
        "\\PC{0,8}".prop_map(Json::from),
        Just(json!("2026-01-05T09:30:00+00:00")),
        Just(json!("15 minutes")),
        Just(json!("paid")),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::hash_map(prop_oneof![field(), "\\PC{0,4}".prop_map(String::from)], inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// A row whose `at` is a time.
fn row() -> impl Strategy<Value = serde_json::Value> {
    (document(), document(), 0_i64..7200).prop_map(|(a, status, seconds)| {
        let at = automation_core::value::Timestamp(1_767_600_000_000_000 + seconds * 1_000_000).to_string();
        serde_json::json!({"a": a, "b": {"a": 1}, "status": status, "at": at})
    })
}

/// The roots of a scope, without state.
pub fn roots() -> impl Strategy<Value = serde_json::Value> {
    (row(), row(), document(), document()).prop_map(|(new, old, payload, vars)| {
        let event = serde_json::json!({"id": "1", "next": new, "prev": old});
        serde_json::json!({"new": new, "old": old, "payload": payload, "vars": vars, "event": event})
    })
}
