//! Documents with triggers and options, whole: what they listen to, and that no value of any field breaks anything.

use automation_core::check::kind_in_filter;
use automation_core::cycles::{self, Node};
use automation_core::definition::{self, Problem};
use automation_core::expr::{Budget, FixedScope};
use automation_core::gate::Code;
use automation_core::gate::change::{self, Occurrence};
use automation_core::program::{Program, Trigger, compile};
use automation_core::schedule::{Missed, Overlap};
use automation_core::value::{Timestamp, Value};
use serde_json::{Value as Json, json};

fn read(mut part: Json) -> Result<(Json, Program), Vec<Problem>> {
    part["name"] = "x".into();
    part["steps"] = json!([{ "do": "sql", "sql": "SELECT 1" }]);
    if part.get("triggers").is_none() {
        part["triggers"] = json!([{ "on": "call" }]);
    }
    let document = definition::read(&part)?;
    let program = compile(&document)?;
    Ok((serde_json::to_value(&document).expect("JSON"), program))
}

fn trigger(def: Json) -> Trigger {
    let (_, mut program) = read(json!({ "triggers": [def] })).unwrap_or_else(|problems| panic!("{problems:?}"));
    program.triggers.remove(0)
}

#[test]
fn a_trigger_listens_to_its_topics_and_a_held_one_to_what_can_end_it() {
    for (def, patterns, held) in [
        (json!({"on": "created", "kind": "k"}), vec!["k.created"], 0),
        (json!({"on": "state", "kind": "k"}), vec!["k.created", "k.updated", "k.deleted"], 0),
        // coming into being inside is no crossing
        (json!({"on": "numeric", "kind": "k", "field": "f", "above": 1}), vec!["k.updated"], 0),
        (
            json!({"on": "numeric", "kind": "k", "field": "f", "above": 1, "level": true}),
            vec!["k.created", "k.updated"],
            0,
        ),
        (json!({"on": "numeric", "kind": "k", "field": "f", "above": 1, "for": 60}), vec!["k.updated"], 4),
        (json!({"on": "event", "topic": "graph.node.created.k"}), vec!["k.created"], 0),
        (json!({"on": "event", "topic": "a.#", "for": 60}), vec!["a.#"], 0),
        (json!({"on": "cron", "expr": "@daily"}), vec![], 0),
        (json!({"on": "call"}), vec![], 0),
        (json!({"on": "state", "kind": "k", "for": 60, "enabled": false}), vec![], 0),
    ] {
        let trigger = trigger(def.clone());
        assert_eq!(trigger.patterns, patterns, "{def}");
        assert_eq!(trigger.hold_patterns().len(), held, "{def}");
    }
}

#[test]
fn routing_can_decide_what_reads_nothing_but_the_event() {
    for (def, pure) in [
        (json!({"on": "state", "kind": "k", "to": "x"}), true),
        (json!({"on": "state", "kind": "k", "to": "x", "filter": "state.k.1.n > 1"}), false),
        (json!({"on": "numeric", "kind": "k", "value": "new.a + 1", "above": 1}), true),
        (json!({"on": "numeric", "kind": "k", "field": "a", "above": "state.limits.a.n"}), false),
        (json!({"on": "numeric", "kind": "k", "value": "new.at - now()", "above": 1}), false),
    ] {
        assert_eq!(trigger(def.clone()).is_pure_event(), pure, "{def}");
    }
}

#[test]
fn the_fingerprint_of_a_trigger_changes_with_its_meaning_and_with_nothing_else() {
    let fingerprint = |def: Json| trigger(def).fingerprint;
    let one = fingerprint(json!({"on": "state", "kind": "k", "to": "open", "hold_for": "5 minutes"}));
    assert_eq!(
        one,
        fingerprint(json!({"on": "state", "kind": "k", "to": ["open"], "for": 300, "id": "door", "filter": null}))
    );
    assert_ne!(one, fingerprint(json!({"on": "state", "kind": "k", "to": "open", "hold_for": "6 minutes"})));
    assert_ne!(one, fingerprint(json!({"on": "state", "kind": "k", "to": "ajar", "hold_for": "5 minutes"})));
    // It is stored with what is armed: a new version of the program must compute the same.
    assert_eq!(one, 3_086_851_476_788_498_550);
}

#[test]
fn the_expressions_of_a_trigger_can_be_checked_where_they_stand() {
    let def = json!({"on": "numeric", "kind": "k", "value": "new.a", "above": "new.b", "below": 9,
        "hold_for": "{{ new.c }}", "window": {"count": 2, "within": "1 hour", "per": "new.d"}});
    let trigger = trigger(def);
    let found: Vec<(&str, &str)> =
        trigger.expressions().into_iter().map(|(field, expr)| (field, expr.text().trim())).collect();
    let expected =
        [("value", "new.a"), ("above", "new.b"), ("below", "9"), ("window.per", "new.d"), ("hold_for", "new.c")];
    assert_eq!(found, expected);
}

#[test]
fn what_an_author_leaves_open_is_what_the_requirements_say() {
    let limits = read(json!({})).expect("a document").1.limits;
    assert_eq!((limits.breaker, limits.max_runs, limits.max_executions), (Some(5), None, None));
    assert_eq!((limits.entity_lock, limits.priority, limits.concurrency), (false, 0, None));
    let limits = read(json!({"dedup": "new.id"})).expect("a document").1.limits;
    assert_eq!(limits.dedup.expect("dedup").ttl, 600_000_000, "R001-41, R001-61: ten minutes");
}

#[test]
fn limits_arrive_as_they_were_written() {
    let limits = read(json!({
        "mode": "queued", "max_runs": 3, "max_executions": "10 per 1 minute", "entity_lock": true, "priority": 7,
        "dedup": {"key": "new.id", "ttl": "1 hour"}, "retention": {"age": "2 days", "runs": 50}, "concurrency": 4,
        "breaker": false,
    }));
    let limits = limits.expect("a document").1.limits;
    assert_eq!((limits.mode, limits.max_runs), (definition::Mode::Queued, Some(3)));
    let rate = limits.max_executions.expect("a rate");
    assert_eq!((rate.count, rate.within), (10, 60_000_000));
    assert_eq!((limits.entity_lock, limits.priority, limits.concurrency), (true, 7, Some(4)));
    assert_eq!(limits.dedup.expect("dedup").ttl, 3_600_000_000);
    assert_eq!((limits.keep_for, limits.keep_runs), (Some(172_800_000_000), Some(50)));
    assert_eq!(limits.breaker, None);
    let limits = read(json!({"retention": "1 day", "breaker": 2})).expect("a document").1.limits;
    assert_eq!((limits.keep_for, limits.keep_runs, limits.breaker), (Some(86_400_000_000), None, Some(2)));
}

#[test]
fn schedules_arrive_as_they_were_written() {
    let schedule = |def: Json| trigger(def).schedule.expect("a schedule");
    for (word, overlap) in [("skip", Overlap::Skip), ("allow", Overlap::Allow), ("queue", Overlap::Queue)] {
        let found = schedule(json!({"on": "cron", "expr": "@daily", "overlap": word}));
        assert_eq!((found.missed, found.overlap), (Missed::Once, overlap));
    }
    for (missed, expected) in
        [(json!("skip"), Missed::Skip), (json!({"all": 7}), Missed::All(7)), (json!("all 24"), Missed::All(24))]
    {
        assert_eq!(schedule(json!({"on": "interval", "every": "1 hour", "missed": missed})).missed, expected);
    }
    // what a schedule is known by when it is defined anew: nothing but its times
    let text = |def: Json| schedule(def).text;
    assert_eq!(text(json!({"on": "cron", "expr": " 0  9 * * *", "overlap": "queue"})), "0 9 * * * UTC");
    assert_eq!(text(json!({"on": "cron", "expr": "@daily", "timezone": "europe/berlin"})), "@daily Europe/Berlin");
    assert_eq!(
        text(json!({"on": "interval", "every": "60 minutes"})),
        text(json!({"on": "interval", "every": "PT1H"}))
    );
}

#[test]
fn a_trigger_that_is_switched_off_refuses_whatever_it_is_asked() {
    let trigger = trigger(json!({"on": "changed", "kind": "k", "enabled": false}));
    let scope = FixedScope::new(Value::Null, Timestamp(0));
    let verdict = change::verdict(&trigger, &Occurrence::default(), &scope, &mut Budget::default(), None);
    assert_eq!(verdict, Err(Code::Disabled));
}

/// The loops that can be seen in programs alone: what they publish, store and run.
#[test]
fn a_program_shows_what_it_makes_and_what_starts_it() {
    let node = |name: &str, trigger: Json, step: Json| {
        let document = json!({ "name": name, "trigger": trigger, "steps": [step] });
        let program = compile(&definition::read(&document).expect("a document")).expect("a program");
        Node::of(name, &program)
    };
    let on = |topic: &str| json!({"on": "event", "topic": topic});
    let nodes = [
        node("a", on("start"), json!({"do": "publish", "topic": "b.go"})),
        node("b", on("b.*"), json!({"do": "store_state", "kind": "health", "entity": "x", "state": {"n": 1}})),
        node("c", json!({"on": "state", "kind": "health"}), json!({"do": "run", "automation": "a"})),
        node("d", on("start"), json!({"do": "publish", "topic": "b.go", "enabled": false})),
    ];
    let found = cycles::loop_through("a", &nodes).expect("a loop");
    assert_eq!(found, ["a", "b", "c", "a"]);
    assert!(nodes[3].makes.is_empty());
}

#[test]
fn a_filter_that_asks_again_for_the_kind_is_worth_a_warning_r001_32() {
    let warnings =
        |filter: Json| kind_in_filter(&trigger(json!({"on": "created", "kind": "orders", "filter": filter})));
    let redundant = "filter of trigger \"created\" need not ask for kind \"orders\": it gets no other";
    let contradicts =
        "trigger \"created\" never fires: its filter asks for kind \"users\", and it gets only \"orders\"";
    assert_eq!(warnings(json!("event.kind = 'orders' and new.total > 1")), [redundant]);
    assert_eq!(warnings(json!("new.total > 1 and 'users' = event.kind")), [contradicts]);
    assert_eq!(warnings(json!(["event.kind = 'users'", "new.total > 1"])), [contradicts]);
    for harmless in
        ["new.total > 1", "event.kind = 'users' or new.vip", "not (event.kind = 'users')", "new.kind = 'users'"]
    {
        assert_eq!(warnings(json!(harmless)), Vec::<String>::new(), "{harmless}");
    }
}

#[test]
fn a_trigger_without_an_id_is_named_by_its_kind_and_place() {
    let triggers = json!([{"on": "call"}, {"on": "interval", "every": "1 hour"}, {"on": "call", "id": 7}]);
    let (kept, _) = read(json!({ "triggers": triggers })).expect("a document");
    let ids: Vec<&str> = kept["triggers"].as_array().expect("a list").iter().filter_map(|t| t["id"].as_str()).collect();
    assert_eq!(ids, ["call", "interval_2", "7"]);
}

/// Values that a field may be given by mistake or by malice.
fn strange() -> Vec<Json> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-1),
        json!(1),
        json!(10),
        json!(1.5),
        json!(1e300),
        json!(9007199254740993_i64),
        json!([]),
        json!([null]),
        json!(["a", 1, null]),
        json!([[1]]),
        json!({}),
        json!({"all": "x"}),
        json!({"all": 5}),
        json!({"count": 1, "within": "1 s"}),
        json!({"count": 1, "window": "1 s"}),
        json!({"key": "new.id"}),
        json!({"age": "1 day", "runs": 5}),
        json!({"count": {}, "within": []}),
    ];
    for text in [
        "",
        " ",
        "x",
        "new.x",
        "1",
        "1 s",
        "5 minutes",
        "-5 minutes",
        "PT5M",
        "P99999999Y",
        "{{",
        "{{ new.x }}",
        "{{ }}",
        "* * * * *",
        "@daily",
        "UTC",
        "Europe/Berlin",
        "once",
        "queue",
        "single",
        "10 per 1 minute",
        " per ",
        "x per y",
        "1 per",
        "é per ü",
        "\u{0}",
        "a.b",
        "a..b",
        "#",
        "((((((((((",
        "1e999999999",
        "٣ minutes",
    ] {
        values.push(text.into());
    }
    values.push("9".repeat(5000).into());
    values.push(serde_json::from_str("1e999999").expect("a number"));
    values.push(serde_json::from_str("-0.0").expect("a number"));
    values
}

/// Kept documents are read back as they are; bad ones have problems that say something.
fn survives(part: Json) -> bool {
    match read(part.clone()) {
        Ok((kept, _)) => {
            let again = definition::read(&kept).unwrap_or_else(|problems| panic!("{part} is kept, but {problems:?}"));
            assert_eq!(serde_json::to_value(again).expect("JSON"), kept, "{part}");
            true
        }
        Err(problems) => {
            assert!(problems.iter().all(|problem| !problem.error.message.is_empty()), "{part}");
            false
        }
    }
}

#[test]
fn no_value_of_any_field_of_a_trigger_breaks_anything() {
    const FIELDS: [&str; 22] = [
        "id", "on", "kind", "entity", "columns", "topic", "field", "from", "to", "not_from", "not_to", "value",
        "above", "below", "level", "expr", "timezone", "missed", "overlap", "every", "hold_for", "window",
    ];
    let whole = [
        json!({"on": "updated", "kind": "k"}),
        json!({"on": "state", "kind": "k"}),
        json!({"on": "numeric", "kind": "k", "field": "f", "above": 1}),
        json!({"on": "event", "topic": "a.b"}),
        json!({"on": "cron", "expr": "@daily"}),
        json!({"on": "interval", "every": "1 hour"}),
    ];
    let (mut good, mut bad) = (0, 0);
    for def in &whole {
        for field in FIELDS.into_iter().chain(["filter", "enabled", "for", "entity_id"]) {
            for value in strange() {
                let mut def = def.clone();
                def[field] = value;
                if survives(json!({ "triggers": [def] })) { good += 1 } else { bad += 1 }
            }
        }
    }
    assert!(good > 500 && bad > 3000, "{good} good, {bad} bad");
}

#[test]
fn no_value_of_any_option_breaks_anything() {
    const OPTIONS: [&str; 18] = [
        "description",
        "key",
        "ordering",
        "on_pause",
        "max_steps",
        "timeout",
        "tenant",
        "mode",
        "max_runs",
        "max_executions",
        "entity_lock",
        "dedup",
        "priority",
        "retention",
        "concurrency",
        "breaker",
        "condition",
        "name",
    ];
    let (mut good, mut bad) = (0, 0);
    for option in OPTIONS {
        for value in strange() {
            let mut part = json!({});
            part[option] = value;
            if survives(part) { good += 1 } else { bad += 1 }
        }
    }
    assert!(good > 100 && bad > 500, "{good} good, {bad} bad");
}
