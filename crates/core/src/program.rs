//! A definition made ready to run: every text parsed, every option resolved.

use crate::condition::Condition;
use crate::definition::{Document, On, Ordering, Problem, StepDef, StepKind, TriggerDef};
use crate::expr::{Expr, ExprError};
use crate::template::{JsonTemplate, SqlTemplate, Template};
use crate::topic;
use crate::value::Duration;
use serde_json::Value as Json;

/// What an automation does.
#[derive(Clone, Debug)]
pub struct Program {
    /// What starts it.
    pub triggers: Vec<Trigger>,
    /// Checked before each run.
    pub condition: Option<Condition>,
    /// Names what a run is about.
    pub key: Option<Expr>,
    /// What it does, in order.
    pub steps: Vec<Step>,
    /// Whose runs start in order.
    pub ordering: Ordering,
    /// Only events of this tenant.
    pub tenant: Option<String>,
}

/// One trigger.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// Its name.
    pub id: String,
    /// What it fires on.
    pub on: On,
    /// Kind of entity, for changes.
    pub kind: Option<String>,
    /// For updates: fire only if one of these changed.
    pub columns: Option<Vec<String>>,
    /// Patterns of the topics it listens to.
    pub patterns: Vec<String>,
    /// Condition over the event.
    pub filter: Option<Condition>,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name.
    pub id: String,
    /// What it does.
    pub action: Action,
    /// It is skipped unless this holds.
    pub condition: Option<Condition>,
    /// The run goes on though it failed.
    pub continue_on_error: bool,
    /// How long it may take, in milliseconds.
    pub timeout_ms: Option<i64>,
    /// False leaves it out.
    pub enabled: bool,
}

/// What a step does, with its texts parsed.
#[derive(Clone, Debug)]
pub enum Action {
    /// Runs SQL.
    Sql(SqlTemplate),
    /// Calls a function (jsonb) -> jsonb.
    Call {
        /// As the author named it.
        function: String,
        /// Its argument.
        args: JsonTemplate,
    },
    /// Publishes an event.
    Publish {
        /// On this topic.
        topic: Template,
        /// With this payload.
        payload: JsonTemplate,
    },
    /// Sends a NOTIFY.
    Notify {
        /// On this channel.
        channel: Template,
        /// With this payload.
        payload: JsonTemplate,
    },
}

impl Action {
    /// The kind of step it came from.
    pub fn kind(&self) -> StepKind {
        match self {
            Action::Sql(_) => StepKind::Sql,
            Action::Call { .. } => StepKind::Call,
            Action::Publish { .. } => StepKind::Publish,
            Action::Notify { .. } => StepKind::Notify,
        }
    }
}

/// Compiles a document. All problems are returned, not only the first.
pub fn compile(document: &Document) -> Result<Program, Vec<Problem>> {
    let (program, problems) = compile_parts(document);
    if problems.is_empty() { Ok(program) } else { Err(problems) }
}

/// Compiles what can be compiled, and says what is wrong with the rest.
pub fn compile_parts(document: &Document) -> (Program, Vec<Problem>) {
    let mut problems = Vec::new();
    let triggers = document.triggers.iter().enumerate().filter_map(|(i, t)| trigger(t, i, &mut problems)).collect();
    let steps = document.steps.iter().enumerate().filter_map(|(i, s)| step(s, i, &mut problems)).collect();
    let condition = condition(document.condition.as_ref(), "condition", "condition".to_owned(), &mut problems);
    let key = document.key.as_ref().and_then(|text| parsed(Expr::parse(text), "key", "key", text, &mut problems));
    let (ordering, tenant) = (document.ordering, document.tenant.clone());
    (Program { triggers, condition, key, steps, ordering, tenant }, problems)
}

fn parsed<T>(
    result: Result<T, ExprError>,
    path: &str,
    place: &str,
    text: &str,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            problems.push(Problem {
                path: path.to_owned(),
                place: place.to_owned(),
                text: Some(text.to_owned()),
                error,
            });
            None
        }
    }
}

fn condition(given: Option<&Json>, path: &str, place: String, problems: &mut Vec<Problem>) -> Option<Condition> {
    let given = given?;
    let result = match given {
        Json::String(text) => Condition::parse_text(text),
        other => Condition::from_json(other),
    };
    parsed(result, path, &place, &shown(given), problems)
}

/// The text in which a caret can point.
fn shown(given: &Json) -> String {
    match given {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn trigger(def: &TriggerDef, place: usize, problems: &mut Vec<Problem>) -> Option<Trigger> {
    let id = def.id.clone().unwrap_or_default();
    let path = format!("triggers[{place}]");
    let filter =
        condition(def.filter.as_ref(), &format!("{path}.filter"), format!("filter of trigger \"{id}\""), problems);
    let kind = def.kind.clone().unwrap_or_default();
    let patterns = match def.on {
        On::Created => vec![format!("{kind}.created")],
        On::Updated => vec![format!("{kind}.updated")],
        On::Deleted => vec![format!("{kind}.deleted")],
        On::Changed => ["created", "updated", "deleted"].iter().map(|verb| format!("{kind}.{verb}")).collect(),
        On::Call => Vec::new(),
        On::Event => {
            let text = def.topic.clone().unwrap_or_default();
            let place = format!("topic of trigger \"{id}\"");
            parsed(topic::validate(&text), &format!("{path}.topic"), &place, &text, problems)?;
            vec![topic::canonical(&text)]
        }
    };
    Some(Trigger { id, on: def.on, kind: def.kind.clone(), columns: def.columns.clone(), patterns, filter })
}

fn step(def: &StepDef, place: usize, problems: &mut Vec<Problem>) -> Option<Step> {
    let id = def.id.clone().unwrap_or_default();
    let path = format!("steps[{place}]");
    let action = action(def, &id, &path, problems);
    let condition = condition(
        def.condition.as_ref(),
        &format!("{path}.condition"),
        format!("condition of step \"{id}\""),
        problems,
    );
    let timeout_ms = def.timeout.as_ref().and_then(|text| {
        let micros = Duration::parse(text).map(Duration::total_micros);
        match micros {
            Some(micros @ 1_000..=2_147_483_647_000) => Some((micros / 1000) as i64),
            _ => {
                let problem = Problem::shape(
                    format!("{path}.timeout"),
                    format!("step \"{id}\""),
                    format!("invalid timeout \"{text}\" of step \"{id}\""),
                );
                problems.push(problem);
                None
            }
        }
    });
    let action = action?;
    Some(Step { id, action, condition, continue_on_error: def.continue_on_error, timeout_ms, enabled: def.enabled })
}

fn action(def: &StepDef, id: &str, path: &str, problems: &mut Vec<Problem>) -> Option<Action> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match def.kind {
        StepKind::Sql => {
            let sql = text(&def.sql);
            if sql.trim().is_empty() {
                problems.push(Problem::shape(
                    format!("{path}.sql"),
                    format!("step \"{id}\""),
                    format!("sql of step \"{id}\" is empty"),
                ));
                return None;
            }
            let result = SqlTemplate::parse(&sql);
            parsed(result, &format!("{path}.sql"), &format!("sql of step \"{id}\""), &sql, problems).map(Action::Sql)
        }
        StepKind::Call => {
            let args = json(def.args.as_ref(), id, path, "args", problems)?;
            Some(Action::Call { function: text(&def.function), args })
        }
        StepKind::Publish => {
            let topic = template(&text(&def.topic), id, path, "topic", problems);
            let payload = json(def.payload.as_ref(), id, path, "payload", problems);
            Some(Action::Publish { topic: topic?, payload: payload? })
        }
        StepKind::Notify => {
            let channel = template(&text(&def.channel), id, path, "channel", problems);
            let payload = json(def.payload.as_ref(), id, path, "payload", problems);
            Some(Action::Notify { channel: channel?, payload: payload? })
        }
    }
}

fn template(text: &str, id: &str, path: &str, field: &str, problems: &mut Vec<Problem>) -> Option<Template> {
    parsed(Template::parse(text), &format!("{path}.{field}"), &format!("{field} of step \"{id}\""), text, problems)
}

/// A payload: text is parsed as an expression, anything else is a document whose texts may hold `{{ }}`.
fn json(given: Option<&Json>, id: &str, path: &str, field: &str, problems: &mut Vec<Problem>) -> Option<JsonTemplate> {
    let empty = Json::Object(serde_json::Map::new());
    let given = given.unwrap_or(&empty);
    let result = match given {
        Json::String(text) => JsonTemplate::parse(text),
        other => JsonTemplate::from_json(other),
    };
    parsed(result, &format!("{path}.{field}"), &format!("{field} of step \"{id}\""), &shown(given), problems)
}
