//! `state`, `numeric_state` and `trigger` conditions.

use super::fields::{self, Fields};
use super::{Condition, invalid};
use crate::expr::{Budget, Expr, ExprError, ExprErrorKind, Reference, References, Scope};
use crate::template::Template;
use crate::value::{Duration, Timestamp, Value};
use serde_json::Value as Json;

/// `{"state": {"kind": "orders", "id": "42", "field": "status", "is": "paid"}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct StateIs {
    /// The kind; `health` unless given.
    pub kind: String,
    ids: Vec<Template>,
    /// The field that is compared.
    pub field: String,
    /// One of these.
    pub values: Vec<Value>,
    /// Whether one entity is enough.
    pub any: bool,
    /// How long it must have been so.
    pub held_for: Option<Duration>,
}

impl StateIs {
    pub(super) fn parse(body: &Json) -> Result<StateIs, ExprError> {
        let mut fields = Fields::new("condition \"state\"", body)?;
        let kind = fields.read(&["kind"], |v| string("kind", v))?.unwrap_or_else(|| "health".to_owned());
        let ids = fields
            .read(&["id", "entity", "entity_id", "entities", "system"], ids)?
            .ok_or_else(|| invalid("condition \"state\" has no field \"id\""))?;
        let field =
            fields.read(&["field", "attribute"], |v| string("field", v))?.unwrap_or_else(|| "status".to_owned());
        let values = fields
            .take(&["is", "state", "value", "equals", "in"])
            .ok_or_else(|| invalid("condition \"state\" has no field \"is\""))?;
        let values = one_or_more(values).iter().map(Value::from_serde).collect();
        let any = fields.read(&["match"], all_or_any)?.unwrap_or(false);
        let held_for = fields.read(&["for"], duration)?;
        fields.finish()?;
        Ok(StateIs { kind, ids, field, values, any, held_for })
    }

    pub(super) fn holds(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<bool, ExprError> {
        for id in &self.ids {
            if self.one_holds(&id.render(scope, budget)?, scope, budget)? == self.any {
                return Ok(self.any);
            }
        }
        Ok(!self.any && !self.ids.is_empty())
    }

    fn one_holds(&self, id: &str, scope: &dyn Scope, budget: &mut Budget) -> Result<bool, ExprError> {
        budget.charge_steps(10, &(0..0)).map_err(|e| *e)?;
        if !self.is_one_of(&scope.state(&self.kind, id)?) {
            return Ok(false);
        }
        Ok(match self.held_for {
            None => true,
            Some(held_for) => self.due(id, held_for, scope)?.is_some_and(|due| due < scope.now()),
        })
    }

    /// When the field will have had its present value for long enough; `None` if it is not known since when it has that
    /// value.
    fn due(&self, id: &str, held_for: Duration, scope: &dyn Scope) -> Result<Option<Timestamp>, ExprError> {
        Ok(scope.changed_at(&self.kind, id, &self.field)?.and_then(|since| since.plus(held_for)))
    }

    fn is_one_of(&self, state: &Value) -> bool {
        let value = member(state, &self.field);
        self.values.iter().any(|wanted| crate::expr::equal(value, wanted))
    }

    /// When `for` will have passed for each entity that is in the state, for a re-check timer. Entities not in the
    /// state need no timer: a change event will cause the check.
    pub(super) fn due_times(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Vec<Timestamp>, ExprError> {
        let Some(held_for) = self.held_for else { return Ok(Vec::new()) };
        let mut due = Vec::new();
        for id in &self.ids {
            let id = id.render(scope, budget)?;
            if self.is_one_of(&scope.state(&self.kind, &id)?) {
                due.extend(self.due(&id, held_for, scope)?);
            }
        }
        Ok(due)
    }

    pub(super) fn add_references(&self, all: &mut References) {
        for id in &self.ids {
            let exact = id.is_constant().then(|| id.text().to_owned());
            all.entities.insert(Reference { kind: self.kind.clone(), id: exact });
        }
        all.clock |= self.held_for.is_some();
    }

    pub(super) fn add_resolved(&self, scope: &dyn Scope, budget: &mut Budget, all: &mut References) {
        self.add_references(all);
        for id in self.ids.iter().filter(|id| !id.is_constant()) {
            let inner = id.references();
            if inner.entities.is_empty()
                && !inner.is_indeterminate()
                && !inner.clock
                && let Ok(exact) = id.render(scope, budget)
            {
                all.entities.remove(&Reference { kind: self.kind.clone(), id: None });
                all.entities.insert(Reference { kind: self.kind.clone(), id: Some(exact) });
            } else {
                all.extend(inner);
                all.entities.insert(Reference { kind: self.kind.clone(), id: None });
            }
        }
    }

    pub(crate) fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        self.ids.iter().flat_map(|id| id.expressions()).for_each(|(expr, _)| visit(expr));
    }

    pub(super) fn describe(&self) -> String {
        let ids: Vec<&str> = self.ids.iter().map(Template::text).collect();
        let values: Vec<String> = self.values.iter().map(Value::to_json).collect();
        let held = self.held_for.map_or_else(String::new, |d| format!(" for {d}"));
        format!("state.{}[{}].{} is {}{held}", self.kind, ids.join(", "), self.field, values.join(" or "))
    }

    pub(super) fn current(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<String, ExprError> {
        let mut parts = Vec::new();
        for id in &self.ids {
            let state = scope.state(&self.kind, &id.render(scope, budget)?)?;
            parts.push(member(&state, &self.field).to_json());
        }
        Ok(parts.join(", "))
    }
}

/// A dotted path into a state.
pub(crate) fn member<'a>(state: &'a Value, path: &str) -> &'a Value {
    static NULL: Value = Value::Null;
    if let Some(value) = state.get(path) {
        return value;
    }
    path.split('.').try_fold(state, |value, name| value.get(name)).unwrap_or(&NULL)
}

/// `{"numeric_state": {"value": "state.sensors.t1.celsius", "above": 20, "below": 30}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct NumericState {
    values: Vec<Expr>,
    above: Option<Expr>,
    below: Option<Expr>,
}

impl NumericState {
    pub(super) fn parse(body: &Json) -> Result<NumericState, ExprError> {
        let mut fields = Fields::new("condition \"numeric_state\"", body)?;
        let above = fields.read(&["above"], |v| number("above", v))?;
        let below = fields.read(&["below"], |v| number("below", v))?;
        if above.is_none() && below.is_none() {
            return Err(invalid("condition \"numeric_state\" has neither \"above\" nor \"below\""));
        }
        if let (Some(low), Some(high)) = (above.as_ref().and_then(constant), below.as_ref().and_then(constant))
            && low > high
        {
            let message = "field \"above\" of condition \"numeric_state\" is larger than \"below\"";
            return Err(invalid(message).in_member("above"));
        }
        let values = match fields.read(&["value", "value_template"], |v| expression(&string("value", v)?))? {
            Some(value) => vec![value],
            None => entity_values(&mut fields)?,
        };
        fields.finish()?;
        Ok(NumericState { values, above, below })
    }

    pub(super) fn holds(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<bool, ExprError> {
        let (above, below) = (bound(&self.above, scope, budget)?, bound(&self.below, scope, budget)?);
        for expr in &self.values {
            let Some(value) = expr.eval(scope, budget)?.as_number() else { return Ok(false) };
            let inside = above.as_ref().is_none_or(|low| low.as_ref().is_some_and(|low| value > *low))
                && below.as_ref().is_none_or(|high| high.as_ref().is_some_and(|high| value < *high));
            if !inside {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        self.values.iter().chain(&self.above).chain(&self.below).for_each(visit);
    }

    pub(super) fn describe(&self) -> String {
        let values: Vec<&str> = self.values.iter().map(|v| v.text().trim()).collect();
        let above = self.above.iter().map(|e| format!("> {}", e.text().trim()));
        let below = self.below.iter().map(|e| format!("< {}", e.text().trim()));
        format!("{} {}", values.join(", "), above.chain(below).collect::<Vec<_>>().join(" and "))
    }

    pub(super) fn current(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<String, ExprError> {
        let values = self.values.iter().map(|e| Ok(e.eval(scope, budget)?.to_json()));
        Ok(values.collect::<Result<Vec<_>, ExprError>>()?.join(", "))
    }
}

type Bound = Option<Option<crate::value::Number>>;

/// `None`: no bound. `Some(None)`: a bound that is no number, so nothing is inside.
fn bound(expr: &Option<Expr>, scope: &dyn Scope, budget: &mut Budget) -> Result<Bound, ExprError> {
    expr.as_ref().map(|e| Ok(e.eval(scope, budget)?.as_number())).transpose()
}

fn constant(expr: &Expr) -> Option<crate::value::Number> {
    crate::value::Number::parse(expr.text().trim())
}

/// The field of each listed entity, as expressions.
fn entity_values(fields: &mut Fields<'_>) -> Result<Vec<Expr>, ExprError> {
    let kind = fields.take(&["kind"]).ok_or_else(|| invalid("condition \"numeric_state\" has no field \"value\""))?;
    let kind = Value::text(string("kind", kind)?).to_json();
    let ids = fields
        .take(&["id", "entity", "entity_id", "entities"])
        .ok_or_else(|| invalid("condition \"numeric_state\" has no field \"id\""))?;
    let field = fields
        .take(&["field", "attribute"])
        .ok_or_else(|| invalid("condition \"numeric_state\" has no field \"field\""))?;
    let path: String =
        string("field", field)?.split('.').map(|name| format!("[{}]", Value::text(name).to_json())).collect();
    one_or_more(ids)
        .iter()
        .map(|id| {
            let id = scalar_text("id", id)?;
            let key = match id.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
                Some(inner) => inner.trim().to_owned(),
                None => Value::text(&id).to_json(),
            };
            Expr::parse(&format!("state[{kind}][{key}]{path}"))
        })
        .collect()
}

/// The ids of `{"trigger": "id"}`, `{"trigger": ["a", 1]}` or `{"trigger": {"id": ...}}`.
pub(super) fn trigger_ids(body: &Json) -> Result<Vec<String>, ExprError> {
    if body.is_object() {
        let mut fields = Fields::new("condition \"trigger\"", body)?;
        let ids = fields.take(&["id"]).ok_or_else(|| invalid("condition \"trigger\" has no field \"id\""))?;
        fields.finish()?;
        return trigger_ids(ids);
    }
    one_or_more(body).iter().map(|id| scalar_text("trigger", id)).collect()
}

/// `{"changed": "status"}`: one of the fields changed.
pub(super) fn changed(body: &Json) -> Result<Condition, ExprError> {
    let mut any = Vec::new();
    for field in one_or_more(body) {
        let name = Value::text(string("changed", field)?).to_json();
        any.push(Condition::Expr(Expr::parse(&format!("new[{name}] changed"))?));
    }
    Ok(Condition::Or(any))
}

fn ids(value: &Json) -> Result<Vec<Template>, ExprError> {
    let read = |id: &Json| {
        let text = scalar_text("id", id)?;
        Template::parse(&text).map_err(|e| e.within(&text))
    };
    match value {
        Json::Array(items) => items.iter().enumerate().map(|(i, id)| read(id).map_err(|e| e.in_element(i))).collect(),
        one => Ok(vec![read(one)?]),
    }
}

fn all_or_any(value: &Json) -> Result<bool, ExprError> {
    match string("match", value)?.as_str() {
        "all" => Ok(false),
        "any" => Ok(true),
        other => Err(invalid(format!("field \"match\" is \"{other}\", not \"all\" or \"any\""))),
    }
}

fn one_or_more(value: &Json) -> &[Json] {
    match value {
        Json::Array(items) => items,
        other => std::slice::from_ref(other),
    }
}

fn string(field: &str, value: &Json) -> Result<String, ExprError> {
    match value {
        Json::String(text) => Ok(text.clone()),
        other => Err(invalid(format!("field \"{field}\" is {}, not a string", fields::name(other)))),
    }
}

fn scalar_text(field: &str, value: &Json) -> Result<String, ExprError> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        other => Err(invalid(format!("field \"{field}\" is {}, not a string", fields::name(other)))),
    }
}

/// Longest time a state can be asked to have lasted.
const LONGEST_HOLD: i128 = 30 * 86_400 * 1_000_000;

/// An expression, also one wrapped in `{{ }}`.
fn expression(text: &str) -> Result<Expr, ExprError> {
    match Condition::parse_text(text).map_err(|e| e.within(text))? {
        Condition::Expr(expr) => Ok(expr),
        _ => Err(ExprError::new(ExprErrorKind::Syntax, 0..0, "expected an expression")),
    }
}

fn number(field: &str, value: &Json) -> Result<Expr, ExprError> {
    match value {
        Json::Number(number) => Expr::parse(&number.to_string()),
        Json::String(text) => expression(text),
        other => Err(invalid(format!("field \"{field}\" is {}, not a number", fields::name(other)))),
    }
}

fn duration(value: &Json) -> Result<Duration, ExprError> {
    let text = match value {
        // bare numbers are seconds, as in Home Assistant
        Json::Number(seconds) => format!("{seconds} seconds"),
        other => string("for", other)?,
    };
    let parsed = Duration::parse(&text).or_else(|| Duration::parse(&format!("{text} seconds")));
    let held_for = parsed.ok_or_else(|| {
        invalid(format!("field \"for\" is no duration: \"{text}\"")).with_hint("Write \"15 minutes\" or \"PT15M\".")
    })?;
    match held_for.total_micros() {
        0..=LONGEST_HOLD => Ok(held_for),
        _ => Err(invalid(format!("field \"for\" is \"{text}\", not between 0 and 30 days"))),
    }
}
