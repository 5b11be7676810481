//! The kinds of steps, one file each: its form in the document, how it is compiled, the expressions in it, the objects
//! of the database that it uses, and how it is taken or performed.
//!
//! Nothing outside of this folder lists the kinds. The list below makes [`StepKind`] and [`Action`] of them; the rest
//! of the engine asks [`Form`] and the methods of `Action`. CONTRIBUTING.md says how to add a kind.

mod branch;
mod bulk;
mod call;
mod choose;
mod delay;
mod for_each;
mod form;
mod notify;
mod parallel;
mod publish;
#[macro_use]
mod registry;
mod repeat_count;
mod repeat_until;
mod repeat_while;
mod require;
mod run;
mod sequence;
mod set;
mod sql;
mod stop;
mod store_state;
mod wait_for_event;
mod wait_signal;
mod wait_until;
mod webhook;

pub use branch::Branch;
pub use bulk::{Bulk, Surroundings};
pub use call::Call;
pub use choose::Choose;
pub use delay::Delay;
pub use for_each::ForEach;
pub(crate) use form::Checking;
pub use form::{Field, Form, Holds, TimeLimit};
pub use notify::Notify;
pub use parallel::Parallel;
pub use publish::Publish;
pub use repeat_count::RepeatCount;
pub use repeat_until::RepeatUntil;
pub use repeat_while::RepeatWhile;
pub use require::Require;
pub use run::Run;
pub(crate) use run::ended as run_ended;
pub use sequence::Sequence;
pub use set::Set;
pub use sql::Sql;
pub use stop::Stop;
pub use store_state::StoreState;
pub use wait_for_event::WaitForEvent;
pub(crate) use wait_for_event::matches as event_matches;
pub use wait_signal::{MAX_SIGNAL, WaitSignal};
pub use wait_until::WaitUntil;
pub(crate) use wait_until::{look, look_at_news};

use crate::condition::Condition;
use crate::definition::StepDef;
use crate::expr::{Budget, Expr, ExprError, Scope};
use crate::ids::{EventId, RunId};
use crate::machine::Machine;
use crate::program::{Block, Compiler, Op, Parts, Retry};
use crate::template::{JsonTemplate, SqlTemplate, Template};
use crate::value::Value;
use crate::webhook::Webhook;
use serde_json::{Map, Value as Json};

// Each line: the name, the type that holds its compiled fields, and where it is done: `performed` by the extension
// (implements `Performed`), `taken` by the machine itself (implements `Taken`), or a `block` of other steps, which the
// instructions around those steps do. The order is the order in which error messages list the kinds.
step_kinds! {
    /// Runs SQL as the owner.
    Sql(sql::Sql) performed;
    /// Calls a function that takes and returns jsonb.
    Call(call::Call) performed;
    /// Publishes an event.
    Publish(publish::Publish) performed;
    /// Sends a NOTIFY.
    Notify(notify::Notify) performed;
    /// Gives variables their values.
    Set(set::Set) taken;
    /// Gives an entity without a table its state.
    StoreState(store_state::StoreState) performed;
    /// Sends a message to a receiver outside.
    Webhook(Box<Webhook>) performed;
    /// Starts another automation and waits for its end.
    Run(run::Run) performed;
    /// Waits for a time.
    Delay(delay::Delay) taken;
    /// Waits until a condition holds.
    WaitUntil(wait_until::WaitUntil) taken;
    /// Waits for an event.
    WaitForEvent(wait_for_event::WaitForEvent) taken;
    /// Waits for a signal.
    WaitSignal(wait_signal::WaitSignal) taken;
    /// Goes on at one of two steps.
    Branch(branch::Branch) taken;
    /// Takes the first way whose condition holds.
    Choose(choose::Choose) block;
    /// Does its steps so many times.
    RepeatCount(repeat_count::RepeatCount) block;
    /// Does its steps while a condition holds.
    RepeatWhile(repeat_while::RepeatWhile) block;
    /// Does its steps until a condition holds.
    RepeatUntil(repeat_until::RepeatUntil) block;
    /// Does its steps for each item of a list.
    ForEach(for_each::ForEach) block;
    /// Does its steps for each row of a query, each row in a run of its own.
    Bulk(bulk::Bulk) performed;
    /// Does its steps side by side.
    Parallel(parallel::Parallel) block;
    /// Does its steps one after the other.
    Sequence(sequence::Sequence) block;
    /// Ends the sequence it stands in unless a condition holds.
    Require(require::Require) taken;
    /// Ends the run.
    Stop(stop::Stop) taken;
}

/// The effects of performed steps on the database, one method each; implemented by the extension.
pub trait Effects {
    /// The error of an effect that did not come about.
    type Error;

    /// An expression could not be evaluated; `text` is the expression as its author wrote it.
    fn fault(&self, error: &ExprError, text: &str) -> Self::Error;
    /// The step is of a kind that the machine takes itself: a bug of the caller.
    fn not_performed(&self, kind: &'static str) -> Self::Error;
    /// May events be published on the topic?
    fn check_topic(&self, topic: &str) -> Result<(), Self::Error>;
    /// Executes a statement with these values. Returns the step's result as JSON.
    fn execute(&mut self, statement: &SqlTemplate, values: &[Value]) -> Result<String, Self::Error>;
    /// Calls a function (jsonb) -> jsonb. Returns the step's result as JSON.
    fn call(&mut self, function: &str, argument: Value) -> Result<String, Self::Error>;
    /// Publishes an event. Returns its id.
    fn publish(&mut self, topic: &str, payload: &Value) -> Result<EventId, Self::Error>;
    /// Sends a NOTIFY.
    fn notify(&mut self, channel: &str, payload: &Value) -> Result<(), Self::Error>;
    /// Gives an entity without a table its state. Returns the id of the event, if anything changed.
    fn store_state(&mut self, kind: &str, entity: &str, state: &Value) -> Result<Option<EventId>, Self::Error>;
    /// Puts a message into the outbox. Returns the step's result as JSON.
    fn order(&mut self, message: &Webhook, scope: &dyn Scope) -> Result<String, Self::Error>;
    /// Starts another automation. Returns the number of the run.
    fn start_run(&mut self, automation: &str, payload: &Value) -> Result<RunId, Self::Error>;
    /// Begins a bulk job over the rows of a query. Returns its number.
    fn start_bulk(&mut self, query: &SqlTemplate, values: &[Value], rate: Option<f64>) -> Result<i64, Self::Error>;

    /// The text that a template has now.
    fn text(&self, template: &Template, scope: &dyn Scope, budget: &mut Budget) -> Result<String, Self::Error> {
        template.render(scope, budget).map_err(|error| self.fault(&error, template.text()))
    }

    /// The value that a payload has now.
    fn value(&self, template: &JsonTemplate, scope: &dyn Scope, budget: &mut Budget) -> Result<Value, Self::Error> {
        template.eval(scope, budget).map_err(|error| self.fault(&error, template.text()))
    }

    /// The values that the expressions of a statement have now.
    fn values(
        &self,
        template: &SqlTemplate,
        scope: &dyn Scope,
        budget: &mut Budget,
    ) -> Result<Vec<Value>, Self::Error> {
        let values: Result<Vec<Value>, ExprError> =
            template.params().iter().map(|expr| expr.eval(scope, budget)).collect();
        values.map_err(|error| self.fault(&error, template.text()))
    }
}

/// The outcome of performing a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The step is done: its result as JSON.
    Result(String),
    /// The step has started this run and is over when the run is.
    StartedRun(RunId),
    /// The step has begun this bulk job and is over when the job is.
    StartedJob(i64),
}

/// The protection in which a performed step is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing: only the engine's own code runs, and its effect guards itself.
    None,
    /// A subtransaction under the step's time limit, with the search path of the automation.
    Subtransaction,
    /// The same for statements of the owner: automation_engine.step_timeout is their limit unless the step has one, and
    /// temporary tables, cursors and other state that they leave in the session of a worker are cleared away.
    OwnersSql,
}

/// Interface of a step kind. Each kind must implement the methods that have no body here.
pub(crate) trait StepAction: Sized {
    /// Its form in the document, and the facts about it.
    const FORM: Form;

    /// Brings other spellings of its fields into the one form. Called for every step before its kind is known.
    fn tidy(_step: &mut Map<String, Json>) {}

    /// Checks its fields beyond the rules of its form.
    fn check(_step: Checking<'_>) {}

    /// Parses its texts. A problem has been reported if there is no answer. A kind that uses `tries` in a way of its
    /// own takes them away.
    fn compile(def: &StepDef, tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Self>;

    /// Writes its instructions, those of the steps inside of it included.
    fn lay_out(compiler: &mut Compiler, _def: &StepDef, number: usize, _path: &str, _block: &Block) {
        compiler.code.push(Op::Act(number));
    }

    /// The expressions in it, each with the field of the document that holds it, in the order in which they are
    /// checked.
    fn expressions(&self) -> Vec<(String, Checked<'_>)>;

    /// The objects of the database that it uses, as far as its document names them.
    fn touches(&self) -> Vec<Touch<'_>>;

    /// How often its steps are done, if it is a loop.
    fn repeat(&self) -> Option<Repeat<'_>> {
        None
    }
}

/// A kind of step that the extension performs.
pub(crate) trait Performed {
    /// The protection in which it is executed.
    const ISOLATION: Isolation;

    /// Evaluates its expressions and has the effect done.
    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error>;
}

/// A kind of step that the machine takes itself.
pub(crate) trait Taken {
    /// Takes step `number`, at which the thread at `place` stands.
    fn take(&self, machine: &mut Machine<'_>, place: usize, number: usize, world: &dyn Scope);
}

/// How long a step may take, and how often it is tried.
pub(crate) struct Tries {
    /// How long the step may take, in milliseconds.
    pub timeout_ms: Option<i64>,
    pub retry: Option<Retry>,
}

/// A text of a step with expressions in it.
#[derive(Clone, Copy, Debug)]
pub enum Checked<'a> {
    /// A condition.
    Condition(&'a Condition),
    /// A text with `{{ }}` inside.
    Template(&'a Template),
    /// A statement with `{{ }}` inside.
    Sql(&'a SqlTemplate),
    /// A payload.
    Json(&'a JsonTemplate),
    /// An expression.
    Expr(&'a Expr),
}

/// An object of the database that a step uses.
#[derive(Clone, Copy, Debug)]
pub enum Touch<'a> {
    /// It executes this statement, which stands in this field.
    Statement(&'static str, &'a SqlTemplate),
    /// It reads the rows of this query, which stands in this field.
    Query(&'static str, &'a SqlTemplate),
    /// It calls this function, which is named in this field.
    Function(&'static str, &'a str),
    /// It publishes on this topic, which stands in this field.
    Topic(&'static str, &'a Template),
    /// It changes the states of this kind of entity, which has no table.
    State(&'a Template),
    /// It starts this automation.
    Automation(&'a str),
    /// It sends this message.
    Message(&'a Webhook),
}

/// How often the steps of a loop are done.
#[derive(Clone, Copy, Debug)]
pub enum Repeat<'a> {
    /// So many times.
    Count(&'a Expr),
    /// While this holds.
    While(&'a Condition),
    /// Until this holds, at least once.
    Until(&'a Condition),
    /// Once for each item.
    Each(&'a Expr),
}

impl StepKind {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<StepKind> {
        StepKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name under which documents and views know it.
    pub fn name(self) -> &'static str {
        self.form().name
    }
}

impl Action {
    /// The conditions that the step evaluates.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.expressions().into_iter().filter_map(|(_, checked)| match checked {
            Checked::Condition(condition) => Some(condition),
            Checked::Template(_) | Checked::Sql(_) | Checked::Json(_) | Checked::Expr(_) => None,
        })
    }
}

/// A label for an expression of a step.
fn field<'a>(name: &str, checked: Checked<'a>) -> (String, Checked<'a>) {
    (name.to_owned(), checked)
}

#[cfg(test)]
mod tests {
    use super::StepKind;

    #[test]
    fn every_kind_has_one_name_and_it_is_its_serde_name() {
        for kind in StepKind::ALL {
            let word: StepKind = serde_json::from_value(kind.name().into()).expect("a kind of this name");
            assert_eq!(word, kind);
            assert_eq!(StepKind::named(kind.name()), Some(kind));
        }
    }
}
