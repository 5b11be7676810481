//! The scope of a thread's expressions: its variables, the results of the run's steps, and the world around.

use super::state::{Frame, State, Thread};
use crate::expr::{ExprError, Scope};
use crate::value::{Timestamp, Unreadable, Value};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

/// The scope of one thread.
pub struct ThreadScope<'a> {
    world: &'a dyn Scope,
    thread: &'a Thread,
    state: &'a State,
    steps: &'a OnceCell<Value>,
    repeat: OnceCell<Value>,
}

impl<'a> ThreadScope<'a> {
    pub(super) fn new(
        world: &'a dyn Scope,
        state: &'a State,
        thread: &'a Thread,
        steps: &'a OnceCell<Value>,
    ) -> ThreadScope<'a> {
        ThreadScope { world, thread, state, steps, repeat: OnceCell::new() }
    }
}

impl<'a> ThreadScope<'a> {
    /// The loop that the thread is in; the loop of the thread around it if a lane has none of its own.
    fn innermost_loop(&self) -> Option<&'a Frame> {
        let mut thread = self.thread;
        loop {
            if let Some(frame) = thread.frames.iter().rev().find(|frame| frame.round > 0) {
                return Some(frame);
            }
            thread = self.state.threads.iter().find(|other| Some(other.id) == thread.parent)?;
        }
    }
}

impl Scope for ThreadScope<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        match name {
            "vars" => Ok(Some(&self.thread.vars.0)),
            "steps" => Ok(Some(self.steps.get_or_init(|| {
                let results = self.state.results.iter();
                Value::object(results.map(|(id, result)| (Arc::from(id.as_str()), result.0.clone())).collect())
            }))),
            "wait" => Ok(Some(&self.thread.wait_result.0)),
            "repeat" => Ok(self.innermost_loop().map(|frame| self.repeat.get_or_init(|| repeat(frame)))),
            "item" => Ok(self.state.item.as_ref().map(|item| &item.0)),
            "error" => Ok(self.state.failing.as_ref().map(|failing| &failing.error.0)),
            _ => self.world.root(name),
        }
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        self.world.state(kind, id)
    }

    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        match root {
            "vars" | "steps" | "wait" | "repeat" | "item" | "error" => Ok(None),
            _ => self.world.member(root, name),
        }
    }

    fn changed_at(&self, kind: &str, id: &str, field: &str) -> Result<Option<Timestamp>, ExprError> {
        self.world.changed_at(kind, id, field)
    }

    fn now(&self) -> Timestamp {
        self.world.now()
    }
}

/// `repeat`: rounds are counted from 1, as Home Assistant does.
fn repeat(frame: &Frame) -> Value {
    let round = i64::from(frame.round);
    let entry = |name: &str, value: Value| (Arc::from(name), value);
    let mut fields = vec![
        entry("index", Value::int(round)),
        entry("index0", Value::int(round - 1)),
        entry("first", Value::Bool(round == 1)),
    ];
    if let Some(rounds) = frame.rounds {
        fields.push(entry("last", Value::Bool(frame.round >= rounds)));
        fields.push(entry("count", Value::int(i64::from(rounds))));
    }
    if let Some(Value::List(items)) = frame.items.as_ref().map(|items| &items.0) {
        fields.push(entry("item", items.get(frame.round as usize - 1).cloned().unwrap_or_default()));
    }
    Value::object(fields)
}
