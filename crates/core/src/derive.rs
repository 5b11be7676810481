//! Derived events: `battle.finalized` when a battle's status becomes `closed`.

use crate::condition::Condition;
use crate::definition::Problem;
use crate::expr::{Budget, ExprError, Scope};
use crate::topic;

/// One rule that makes a topic of a change.
#[derive(Clone, Debug)]
pub struct Deriver {
    /// Its name within the kind.
    pub name: String,
    /// The topic of the event.
    pub topic: String,
    /// The changes that get the topic: those for which this holds.
    pub condition: Condition,
}

/// The result of applying the rules of a kind to one change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Derived<'a> {
    /// The topics, each once, in the order in which the rules were registered, with the places of the rules that make
    /// them.
    pub topics: Vec<(&'a str, Vec<usize>)>,
    /// The rules that could not be worked out: they are passed over.
    pub failed: Vec<(&'a str, ExprError)>,
    /// The rules that took long, with their microseconds.
    pub slow: Vec<(&'a str, u64)>,
}

impl Deriver {
    /// Reads a rule. Its condition is evaluated while events are routed, so it may read nothing but the change.
    pub fn parse(name: &str, topic: &str, condition: &serde_json::Value) -> Result<Deriver, Vec<Problem>> {
        let place = format!("derived event \"{name}\"");
        let mut problems = Vec::new();
        let mut wrong = |field: &str, message: String, hint: &str| {
            problems.push(Problem::shape(field, &place, message).hint(hint));
        };
        if topic.is_empty() || topic::validate(topic).is_err() || topic.contains(['*', '#']) {
            wrong("topic", format!("invalid topic \"{topic}\""), "A topic is words joined by dots, without * and #.");
        } else if topic == "automation" || topic.starts_with("automation.") {
            let message = format!("topic \"{topic}\" is reserved");
            wrong("topic", message, "Topics that begin with \"automation.\" are the engine's own.");
        }
        let parsed = match condition {
            serde_json::Value::String(text) => Condition::parse_text(text),
            other => Condition::from_json(other),
        };
        let shown = condition.as_str().map_or_else(|| condition.to_string(), str::to_owned);
        match parsed {
            Ok(parsed) if !parsed.is_pure_event() || asks_for_trigger(&parsed) => {
                let message = "the condition of a derived event reads more than the change".to_owned();
                wrong("condition", message, "Use old, new and event; put the rest into a filter or a condition.");
                Err(problems)
            }
            Ok(condition) if problems.is_empty() => {
                Ok(Deriver { name: name.to_owned(), topic: topic.to_owned(), condition })
            }
            Ok(_) => Err(problems),
            Err(error) => {
                let place = format!("condition of {place}");
                problems.push(Problem { path: "condition".into(), place, text: Some(shown), error });
                Err(problems)
            }
        }
    }
}

/// Does the condition ask which trigger fired? A rule must not: it is evaluated before any trigger.
fn asks_for_trigger(condition: &Condition) -> bool {
    let mut asks = false;
    condition.each(&mut |part| asks |= matches!(part, Condition::Trigger(_)));
    asks
}

/// The topics that a change has beside its own. Every rule has a budget of its own, so that a costly rule does not
/// starve the next.
pub fn derive<'a>(rules: &'a [Deriver], scope: &dyn Scope) -> Derived<'a> {
    derive_with(rules, scope, |_| true)
}

/// As `derive`, with only the rules for which `works` is true.
pub fn derive_with<'a>(rules: &'a [Deriver], scope: &dyn Scope, works: impl Fn(&Deriver) -> bool) -> Derived<'a> {
    let mut derived = Derived::default();
    for (place, rule) in rules.iter().enumerate().filter(|(_, rule)| works(rule)) {
        let mut budget = Budget::default();
        match rule.condition.holds(scope, &mut budget) {
            Ok(true) => match derived.topics.iter_mut().find(|(topic, _)| *topic == rule.topic) {
                Some((_, rules)) => rules.push(place),
                None => derived.topics.push((&rule.topic, vec![place])),
            },
            Ok(false) => {}
            Err(error) => derived.failed.push((&rule.name, error)),
        }
        derived.slow.extend(budget.time_spent().map(|spent| (rule.name.as_str(), spent)));
    }
    derived
}
