//! The `delay` step: waits for a time, or until a point in time.

use super::form::any;
use super::{Checked, Checking, Form, StepAction, Taken, TimeLimit, Touch, Tries, field};
use crate::definition::{Problem, StepDef};
use crate::expr::{Budget, Expr, FixedScope, Scope};
use crate::machine::{Machine, WaitFor, error, fault, waited};
use crate::program::{Parts, duration_text, length, shown};
use crate::template::Template;
use crate::value::{Duration, Timestamp, Value};
use serde_json::{Map, Value as Json};

/// For how long to wait.
#[derive(Clone, Debug)]
pub enum Delay {
    /// This long.
    For(Duration),
    /// As long as this says.
    Computed(Template),
    /// Until the instant that this says.
    Until(Template),
}

impl StepAction for Delay {
    const FORM: Form = Form {
        name: "delay",
        required: &[],
        optional: &[any("for"), any("until")],
        retries: false,
        time_limit: TimeLimit::None,
        may_wait: true,
        tells_wait: true,
    };

    /// `{"do": "delay", "duration": 3, "unit": "days"}` is another way to say for how long.
    fn tidy(step: &mut Map<String, Json>) {
        if step.get("do").is_some_and(|word| *word == "delay")
            && step.contains_key("duration")
            && !step.contains_key("for")
        {
            let length = ["duration", "unit"].map(|part| (part.to_owned(), step.remove(part).unwrap_or_default()));
            step.insert("for".into(), Json::Object(Map::from_iter(length)));
        }
    }

    fn check(Checking { step, path, place, problems }: Checking<'_>) {
        if step.get("until").is_some_and(|until| !until.is_string()) {
            problems.push(Problem::shape(format!("{path}.until"), place, "\"until\" must be a text"));
        }
        if step.contains_key("for") == step.contains_key("until") {
            problems.push(Problem::shape(path, place, format!("{place} needs either \"for\" or \"until\"")));
        }
    }

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Delay> {
        if let Some(until) = def.get("until") {
            let text = shown(until);
            return match (Timestamp::parse(text.trim()), Expr::parse(&text)) {
                (Some(_), _) => parts.template(&text, "until"),
                (None, Ok(expr)) if !expr.reads_something() => {
                    let message = format!("invalid until \"{text}\" of {}", parts.place);
                    parts.wrong("until", &message, "Give a timestamp such as '2030-01-01 08:00+00', or an expression.");
                    None
                }
                (None, _) => computed(&text, "until", parts).filter(|template| may_be_a_time(template, parts)),
            }
            .map(Delay::Until);
        }
        let given = def.get("for")?;
        match duration_text(given) {
            Some(text) if text.contains("{{") => parts.template(&text, "for").map(Delay::Computed),
            // a text that begins with a name is computed
            Some(text) if text.trim_start().starts_with(|c: char| c.is_alphabetic() && c != 'P') => {
                match Expr::parse(&text) {
                    // a lone word such as "infinity" was meant as a duration
                    Ok(expr) if !expr.reads_something() => parts.length(given, "for").map(Delay::For),
                    _ => computed(&text, "for", parts).map(Delay::Computed),
                }
            }
            _ => parts.length(given, "for").map(Delay::For),
        }
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        match self {
            Delay::For(_) => Vec::new(),
            Delay::Computed(template) => vec![field("for", Checked::Template(template))],
            Delay::Until(template) => vec![field("until", Checked::Template(template))],
        }
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        Vec::new()
    }
}

impl Taken for Delay {
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope) {
        let now = world.now().0;
        match self.end(machine, place, world) {
            Ok(due) if due <= now => machine.resolved(place, number, None, waited(true, None)),
            Ok(due) => machine.suspend(place, number, WaitFor::Delay, now, Some(due)),
            Err(error) => machine.failed(place, number, error),
        }
    }
}

impl Delay {
    /// The instant at which the delay is over.
    fn end(&self, machine: &Machine<'_>, place: usize, world: &dyn Scope) -> Result<i64, Value> {
        let evaluate = |template: &Template| {
            let scope = machine.scope_at(place, world);
            template.eval(&scope, &mut Budget::default()).map_err(|problem| fault(&problem, template.text()))
        };
        let too_far = || error("22008", "the end of the delay is out of range", None);
        let after = |duration| world.now().plus(duration).map(|at| at.0).ok_or_else(too_far);
        match self {
            Delay::For(duration) => after(*duration),
            Delay::Computed(template) => {
                let value = evaluate(template)?;
                let text = value.to_text().unwrap_or_default();
                match length(&text) {
                    Some(duration) => after(duration),
                    None => Err(error(
                        "22023",
                        &format!("the delay is {}, not a duration", value.to_json()),
                        Some("It is like '15 minutes', not negative, and below 10000 years."),
                    )),
                }
            }
            Delay::Until(template) => {
                let value = evaluate(template)?;
                match value.as_time() {
                    Some(at) if at.0 < i64::MAX / 2 => Ok(at.0),
                    _ => Err(error(
                        "22023",
                        &format!("the delay ends at {}, not at a point in time", value.to_json()),
                        Some("Give a timestamp such as '2030-01-01 08:00+00'."),
                    )),
                }
            }
        }
    }
}

/// Can `until` be a point in time: is it one already, or known only when the run gets there?
fn may_be_a_time(template: &Template, parts: &mut Parts<'_>) -> bool {
    let scope = FixedScope::new(Value::Null, Timestamp(0));
    if template.expressions().any(|(expr, _)| !expr.is_constant()) {
        return true;
    }
    match template.eval(&scope, &mut Budget::default()) {
        Ok(value) if value.as_time().is_none() => {
            let message = format!("until of {} is {}, not a point in time", parts.place, value.to_json());
            parts.wrong("until", &message, "Give a timestamp such as '2030-01-01 08:00+00', or an expression.");
            false
        }
        // An expression that cannot be evaluated is reported when expressions are checked.
        _ => true,
    }
}

/// A text with `{{ }}` inside, or an expression.
fn computed(text: &str, field: &str, parts: &mut Parts<'_>) -> Option<Template> {
    if text.contains("{{") {
        return parts.template(text, field);
    }
    parts.parsed(Template::expression(text), field, text)
}
