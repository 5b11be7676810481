//! The built-in functions: one table that the parser, the checker, the evaluator and the reference page share.

mod collection;
mod general;
mod number;
mod pattern;
mod text;
mod time;

use super::error::{ExprError, ExprErrorKind};
use super::ops::Fault;
use super::scope::Budget;
use super::types::Type;
use crate::suggest::nearest;
use crate::value::{Number, Timestamp, Value};
use std::ops::Range;

/// Whether a function always answers the same for the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purity {
    /// The same arguments give the same answer.
    Pure,
    /// The answer also depends on the current time.
    Clock,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in the documentation.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Type,
    /// Whether it may be left out.
    pub optional: bool,
}

/// A built-in function.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its parameters in order.
    pub params: &'static [Param],
    /// Whether the last parameter may be repeated.
    pub variadic: bool,
    /// The type of its result.
    pub returns: Type,
    /// Whether it reads the clock.
    pub purity: Purity,
    /// One sentence.
    pub doc: &'static str,
    /// An expression and the JSON it yields; run as a test.
    pub example: (&'static str, &'static str),
    pub(crate) call: fn(&[Value], &mut Context<'_>) -> Result<Value, Fault>,
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

impl Function {
    /// `round(x, places?)`
    pub fn signature(&self) -> String {
        let params: Vec<String> = self
            .params
            .iter()
            .map(|p| format!("{}{}", p.name, if p.optional { "?" } else { "" }))
            .chain(self.variadic.then(|| "...".to_owned()))
            .collect();
        format!("{}({})", self.name, params.join(", "))
    }

    fn takes(&self, count: usize) -> bool {
        let least = self.params.iter().filter(|p| !p.optional).count();
        count >= least && (self.variadic || count <= self.params.len())
    }
}

/// Time, budget and place in the text, for functions that need them besides their arguments.
pub struct Context<'a> {
    pub(crate) now: Timestamp,
    budget: &'a mut Budget,
    span: Range<usize>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(now: Timestamp, budget: &'a mut Budget, span: Range<usize>) -> Context<'a> {
        Context { now, budget, span }
    }

    /// Charges output before it is made.
    pub(crate) fn output(&mut self, bytes: usize) -> Result<(), Fault> {
        Ok(self.budget.charge_output(bytes, &self.span)?)
    }

    /// Charges work.
    pub(crate) fn steps(&mut self, steps: usize) -> Result<(), Fault> {
        Ok(self.budget.charge_steps(steps, &self.span)?)
    }

    /// Charges work that is told in nanoseconds.
    pub(crate) fn work(&mut self, work: usize) -> Result<(), Fault> {
        Ok(self.budget.charge_work(work, &self.span)?)
    }

    /// Adds the place to a fault.
    pub(crate) fn place(&self, fault: Fault) -> ExprError {
        let error = ExprError::new(fault.kind, self.span.clone(), fault.message);
        match fault.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// Every function, by topic.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Function)> {
    let topics: [(&str, &[Function]); 5] = [
        ("General", general::FUNCTIONS),
        ("Text", text::FUNCTIONS),
        ("Numbers", number::FUNCTIONS),
        ("Time", time::FUNCTIONS),
        ("Lists and objects", collection::FUNCTIONS),
    ];
    topics.into_iter().flat_map(|(topic, functions)| functions.iter().map(move |f| (topic, f)))
}

/// A function by its name, case-insensitively as in SQL.
pub fn find(name: &str) -> Option<&'static Function> {
    all().map(|(_, f)| f).find(|f| f.name.eq_ignore_ascii_case(name))
}

/// A function by its name and number of arguments, or an error that says which there are.
pub fn resolve(name: &str, count: usize, span: Range<usize>) -> Result<&'static Function, ExprError> {
    let Some(function) = find(name) else {
        let near = nearest(name, all().map(|(_, f)| f.name));
        let message = format!("function \"{name}\" does not exist");
        return Err(ExprError::new(ExprErrorKind::UnknownFunction, span, message).with_suggestion(near));
    };
    if !function.takes(count) {
        let given = if count == 1 { "1 argument".to_owned() } else { format!("{count} arguments") };
        let message = format!("function \"{name}\" does not take {given}");
        return Err(ExprError::new(ExprErrorKind::UnknownFunction, span, message)
            .with_hint(format!("Write {}.", function.signature())));
    }
    Ok(function)
}

const fn required(name: &'static str, kind: Type) -> Param {
    Param { name, kind, optional: false }
}

const fn optional(name: &'static str, kind: Type) -> Param {
    Param { name, kind, optional: true }
}

/// The text of an argument; `None` for null.
fn text_of(value: &Value, context: &mut Context<'_>) -> Result<Option<String>, Fault> {
    context.work(super::ops::work_to_print(value))?;
    Ok(value.to_text())
}

/// The number of an argument; `None` if it is no number.
fn number_of(value: &Value, context: &mut Context<'_>) -> Result<Option<Number>, Fault> {
    context.work(super::ops::work_to_number(value))?;
    Ok(value.as_number())
}

/// The argument at a position; null if it was left out.
fn arg(args: &[Value], at: usize) -> &Value {
    static NULL: Value = Value::Null;
    args.get(at).unwrap_or(&NULL)
}

fn wrong(what: &str, wanted: &str, value: &Value) -> Fault {
    Fault::mismatch(format!("{what} needs {wanted}, not {}", super::ops::with_article(value)))
}
