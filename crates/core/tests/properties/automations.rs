//! Definitions and runs: no document and no order of events makes them panic or go on for ever.

use super::cases;
use automation_core::definition;
use automation_core::ids::{RunId, WaitNo};
use automation_core::machine::{Cause, Machine, Next, State, error};
use automation_core::program::{StopStatus, compile};
use automation_core::value::{Timestamp, Value};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::LazyLock;

/// The documents of the fixtures.
static DOCUMENTS: LazyLock<Vec<Json>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let texts = ["run/steps", "run/waits", "run/control", "run/parallel", "run/failure", "definition/problems"]
        .map(|name| std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap());
    let cases = texts.iter().flat_map(|text| text.split("\n\n"));
    let documents = cases.filter_map(|case| {
        let input: Vec<&str> = case.lines().filter_map(|line| line.strip_prefix("> ")).collect();
        let mut document = serde_json::Deserializer::from_str(&input.join("\n")).into_iter::<Json>().next()?.ok()?;
        let fields = document.as_object_mut()?;
        fields.entry("name").or_insert("example".into());
        fields.entry("triggers").or_insert(json!([{ "on": "call" }]));
        Some(document)
    });
    let documents: Vec<Json> = documents.collect();
    assert!(documents.len() > 100, "only {} documents were found", documents.len());
    documents
});

/// Something else to stand somewhere in a document.
fn strange() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        Just(json!(1e300)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[]])),
        Just(json!("")),
        Just(json!("{{")),
        Just(json!("{{ new.id }}")),
        Just(json!("9999999999 years")),
        Just(json!({"duration": 1e308, "unit": "years"})),
        Just(json!({"duration": "x", "unit": 5})),
        "[a-z_.{}'\\[\\] ]{0,12}".prop_map(Json::from),
        any::<Index>().prop_map(|place| {
            let document = place.get(&DOCUMENTS);
            document["steps"].get(0).cloned().unwrap_or_default()
        }),
        any::<Index>().prop_map(|place| place.get(&DOCUMENTS)["steps"].clone()),
    ]
}

/// Every place in a document.
fn places(document: &Json) -> Vec<String> {
    fn collect(value: &Json, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Json::Array(items) => items.iter().enumerate().for_each(|(i, v)| collect(v, &format!("{at}/{i}"), found)),
            Json::Object(fields) => {
                let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
                fields.iter().for_each(|(key, v)| collect(v, &format!("{at}/{}", escaped(key)), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(document, "", &mut found);
    found
}

/// A document of the fixtures with a few places changed.
fn document() -> impl Strategy<Value = Json> {
    let change = (any::<Index>(), strange());
    (any::<Index>(), prop::collection::vec(change, 0..4)).prop_map(|(which, changes)| {
        let mut document = which.get(&DOCUMENTS).clone();
        for (place, value) in changes {
            let place = place.get(&places(&document)).clone();
            if let Some(target) = document.pointer_mut(&place) {
                *target = value;
            }
        }
        document
    })
}

/// Something that happens to a run.
#[derive(Clone, Debug)]
enum Happening {
    Wake(i32, u8),
    Pass(i64),
    WrittenDown,
    Paused,
    GivenUp(bool),
    TriedAgain(bool),
    MovedTo(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        10 => (0..6_i32, 0..7_u8).prop_map(|(no, cause)| Happening::Wake(no, cause)),
        3 => (0..100_000_000_000_i64).prop_map(Happening::Pass),
        2 => Just(Happening::WrittenDown),
        1 => Just(Happening::Paused),
        1 => any::<bool>().prop_map(Happening::GivenUp),
        1 => any::<bool>().prop_map(Happening::TriedAgain),
        1 => any::<usize>().prop_map(Happening::MovedTo),
    ]
}

fn cause(which: u8) -> Cause {
    let ended = |status: &str| Cause::Ended {
        status: status.to_owned(),
        output: Value::Null,
        error: error("P0001", "no", None),
    };
    match which {
        0 => Cause::Timer,
        1 => Cause::Look,
        2 => Cause::Event,
        3 => Cause::Signal(Value::int(1)),
        4 => ended("completed"),
        5 => ended("failed"),
        _ => Cause::Skip,
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn no_document_makes_the_compiler_panic(document in document()) {
        match definition::read(&document) {
            Err(problems) => prop_assert!(!problems.is_empty()),
            Ok(read) => {
                // what was read is what is kept: to read it again changes nothing
                let written = serde_json::to_value(&read).unwrap();
                let again = definition::read(&written).map_err(|problems| TestCaseError::fail(format!("{problems:?}")))?;
                prop_assert_eq!(serde_json::to_value(&again).unwrap(), written);
                let _ = compile(&read);
            }
        }
    }

    #[test]
    fn no_order_of_events_makes_a_run_panic_or_go_on_for_ever(
        document in document(),
        happenings in prop::collection::vec(happening(), 0..30),
        answers in prop::collection::vec(any::<bool>(), 8),
    ) {
        let Some(program) = definition::read(&document).ok().and_then(|read| compile(&read).ok()) else { return Ok(()) };
        let roots = r#"{"new": {"id": 7, "n": 2, "total": 5, "items": [1, 2], "pause": "1 minute"}, "event": {"payload": {}}}"#;
        let world = |now: i64| {
            automation_core::expr::FixedScope::new(Value::from_json(roots).unwrap(), Timestamp(now))
        };
        let mut now = 1_700_000_000_000_000;
        let mut machine = Machine::new(&program, State::new(), 7, None);
        let mut child = 0;
        let mut ended = false;
        let mut walks = |machine: &mut Machine<'_>, now: i64| -> bool {
            // a walk takes no more steps than a run may, and its on_failure steps as many
            for step in 0..2 * automation_core::machine::MOST_STEPS as usize + 2 {
                match machine.advance(&world(now)) {
                    Next::Suspend => return false,
                    Next::End(_) => return true,
                    Next::Act { thread, step: number } => match &program.steps[number].action {
                        _ if !answers[step % answers.len()] => machine.fail(thread, error("22012", "no", None), now),
                        automation_core::program::Action::Run(_) => {
                            child += 1;
                            machine.wait_for_run(thread, RunId(child), now);
                        }
                        _ => machine.succeed(thread, Value::int(1)),
                    },
                }
            }
            panic!("the run goes on for ever");
        };
        ended |= walks(&mut machine, now);
        for happening in happenings {
            match happening {
                Happening::Wake(no, which) => {
                    // numbers near those that there are
                    let no = WaitNo(machine.state.next_wait.0 - 1 - no);
                    let _ = machine.wake(no, cause(which), &world(now));
                }
                Happening::Pass(micros) => now += micros,
                Happening::Paused => machine.pause_here(now),
                Happening::GivenUp(failed) if !ended => {
                    let status = if failed { StopStatus::Failed } else { StopStatus::Cancelled };
                    machine.give_up(status, "test", error("57014", "given up", None));
                }
                Happening::TriedAgain(without) if ended => {
                    machine = Machine::new(&program, machine.state.clone().to_try_again(&program), 7, None);
                    if without {
                        machine.pass_over();
                    }
                    ended = false;
                }
                Happening::MovedTo(which) if ended => {
                    let state = machine.state.clone().to_try_again(&program);
                    let places = state.places(&program);
                    let Some(step) = places.get(which % places.len().max(1)) else { continue };
                    let state = state.clone().at(&program, step).map_err(|no| TestCaseError::fail(format!("{no:?}")))?;
                    machine = Machine::new(&program, state, 7, None);
                    ended = false;
                }
                Happening::WrittenDown if !ended => {
                    let text = serde_json::to_string(&machine.state).unwrap();
                    machine = Machine::new(&program, serde_json::from_str(&text).unwrap(), 7, None);
                    prop_assert_eq!(serde_json::to_string(&machine.state).unwrap(), text);
                }
                _ => {}
            }
            ended |= walks(&mut machine, now);
        }
    }
}
