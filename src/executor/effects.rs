//! The effects of performed steps on the database: one method for each. `automation_core::steps` decides which effects
//! a step of a kind has, and with which values.
#![allow(unsafe_code)]
use automation_core::expr::{ExprError, Scope};
use automation_core::ids::{EventId, RunId};
use automation_core::machine::Machine;
use automation_core::steps::Effects;
use automation_core::template::SqlTemplate;
use automation_core::value::Value;
use automation_core::webhook::Webhook;

use super::claimer::Claimer;
use super::{step, webhook};
use crate::definitions::topics;
use crate::definitions::versions::Version;
use crate::event_log::events::{NewEvent, Op, append_event};
use crate::pg::catch::PgError;
use crate::pg::server_text;
use crate::runs::bulk::RunOfStep;
use crate::runs::error::from_expression;
use crate::runs::run::Run;
use crate::runs::scope::RunScope;

/// Most bytes that NOTIFY accepts as a payload.
const MAX_NOTIFY: usize = 7999;

/// One step of a run while it is performed.
pub struct Performing<'a> {
    pub claimer: &'a Claimer,
    pub run: &'a Run,
    pub version: &'a Version,
    pub machine: &'a Machine<'a>,
    /// The thread of the run that is at the step.
    pub thread: u32,
    /// The number of the step.
    pub place: usize,
    pub world: &'a RunScope<'a>,
    /// How many milliseconds the run has left.
    pub time_left_ms: Option<i64>,
}

impl Effects for Performing<'_> {
    type Error = PgError;

    fn fault(&self, error: &ExprError, text: &str) -> PgError {
        from_expression(error, text)
    }

    fn not_performed(&self, kind: &'static str) -> PgError {
        PgError::new("XX000", format!("a step of kind {kind} cannot be performed"))
    }

    fn check_topic(&self, topic: &str) -> Result<(), PgError> {
        topics::check_published(topic).map_err(|error| PgError::new("22023", error.message().to_owned()))
    }

    fn execute(&mut self, statement: &SqlTemplate, values: &[Value]) -> Result<String, PgError> {
        step::execute_statement(self.version, self.place, statement, values)
    }

    fn call(&mut self, function: &str, argument: Value) -> Result<String, PgError> {
        step::call_function(self.version, self.place, function, argument)
    }

    fn publish(&mut self, topic: &str, payload: &Value) -> Result<EventId, PgError> {
        let text = payload.to_json();
        server_text::check(topic)?;
        server_text::check(&text)?;
        let tenant = crate::provenance::tenant();
        Ok(append_event(&NewEvent {
            op: Some(Op::Emitted),
            topic: Some(topic),
            tenant: tenant.as_deref().map(str::as_bytes),
            payload: Some(text.as_bytes()),
            ..Default::default()
        }))
    }

    fn notify(&mut self, channel: &str, payload: &Value) -> Result<(), PgError> {
        let payload = match payload {
            Value::Text(text) => text.to_string(),
            other => other.to_json(),
        };
        let (channel, payload) = (server_text::c_string(channel)?, server_text::c_string(&payload)?);
        let bytes = payload.as_bytes().len();
        if bytes > MAX_NOTIFY {
            return Err(PgError {
                detail: Some(format!("It has {bytes} bytes, NOTIFY takes {MAX_NOTIFY}.")),
                hint: Some("Send an id and let the listener read the rest.".into()),
                ..PgError::new("22023", "notification payload is too long")
            });
        }
        // SAFETY: NUL-terminated strings; the call copies them. It raises an ERROR for a bad channel name.
        unsafe { crate::pg::raw::Async_Notify(channel.as_ptr(), payload.as_ptr()) };
        Ok(())
    }

    fn store_state(&mut self, kind: &str, entity: &str, state: &Value) -> Result<Option<EventId>, PgError> {
        let state = state.to_json();
        for text in [kind, entity, state.as_str()] {
            server_text::check(text)?;
        }
        crate::capture::state::store_state(kind, entity, &state)
    }

    fn order(&mut self, message: &Webhook, scope: &dyn Scope) -> Result<String, PgError> {
        webhook::order(self.run, &self.version.program.steps[self.place].id, message, scope)
    }

    fn start_run(&mut self, automation: &str, payload: &Value) -> Result<RunId, PgError> {
        crate::runs::order::start_child(automation, &payload.to_json(), self.run.id)
    }

    fn start_bulk(&mut self, query: &SqlTemplate, values: &[Value], rate: Option<f64>) -> Result<i64, PgError> {
        let around = self.machine.surroundings(self.thread);
        let run = RunOfStep {
            id: self.run.id,
            owner: self.run.owner,
            automation_id: self.run.automation_id,
            version_id: self.run.version_id,
            trigger_no: self.run.trigger_no,
            depth: self.run.depth,
            step: self.place as i32,
        };
        let (statement, cause) = ((query.sql(), values), self.world.cause());
        Ok(crate::runs::bulk::start_step(&run, self.version, statement, rate, cause, &around))
    }
}
