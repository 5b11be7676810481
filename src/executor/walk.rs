//! One walk of a run: executes its steps until it suspends or ends.
use std::fmt::Write;
use std::rc::Rc;

use automation_core::expr::Scope;
use automation_core::machine::{End, Machine, Next, Record};
use automation_core::program::{Program, Step, StopStatus};
use automation_core::steps::Done;
use automation_core::value::Value;

use super::claimer::Claimer;
use super::effects::Performing;
use super::step;
use crate::definitions::versions::Version;
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros};
use crate::runs::engine_events;
use crate::runs::error::error_json;
use crate::runs::run::Run;
use crate::runs::scope::RunScope;
use crate::runs::step_counts;
use crate::signal::running;
use crate::store::history::{EndedRun, Ending};

/// A walk that has taken this long suspends, so that other runs have their turn.
const WALK_SLICE: Micros = 500_000;

/// How a walk ended.
pub enum Walked {
    Suspended,
    Ended(End),
}

/// A run while its steps are executed.
pub struct Walk<'a> {
    pub claimer: &'a mut Claimer,
    pub run: &'a Run,
    pub version: Rc<Version>,
    /// JSON list of the steps taken, not closed; empty if there are none.
    pub steps: String,
}

impl Walk<'_> {
    /// Goes on until the run suspends or ends.
    pub fn go(&mut self, machine: &mut Machine<'_>, world: &RunScope<'_>) -> Walked {
        let begun = clock::engine_now();
        let mut began = begun;
        // The result of a step matters only if another step follows.
        let keeps = self.version.program.steps.len() > 1;
        loop {
            let next = machine.advance(world);
            self.note(machine.take_records(), began);
            let (thread, place) = match next {
                Next::Suspend => return Walked::Suspended,
                Next::End(end) => return Walked::Ended(end),
                Next::Act { thread, step } => (thread, step),
            };
            if self.claimer.is_worker {
                running::give_way(self.run.task());
            }
            began = clock::engine_now();
            if self.claimer.is_worker && !self.claimer.shares && began - begun > WALK_SLICE {
                machine.pause_here(world.now().0);
                continue;
            }
            let version = self.version.clone();
            let step = &version.program.steps[place];
            let left = self.time_left(machine, began);
            if left.is_some_and(|left| left <= 0) {
                machine.give_up(StopStatus::Failed, "timed_out", too_late(&version.program));
                continue;
            }
            step::still_allowed(self.claimer);
            engine_events::step_started(self.run.id, step, machine.attempt(thread));
            running::at_step(&self.run.automation, self.run.id, &step.id);
            let wall = clock::now();
            let outcome = step::perform(&mut Performing {
                claimer: self.claimer,
                run: self.run,
                version: &version,
                machine,
                thread,
                place,
                world,
                time_left_ms: left,
            });
            // The step may have caught the interruption and ended as if there had been none.
            if self.claimer.is_worker {
                running::give_way(self.run.task());
            }
            match outcome {
                // The step takes longer than the runs that share its transaction can wait: roll back, and give the run
                // a transaction of its own.
                Err(error) if self.claimer.shares && step::was_cut_short(step, &error, clock::engine_now() - began) => {
                    self.claimer.apart.was_slow(self.run.automation_id);
                    error.raise()
                }
                // The error is not the step's fault: roll back the whole transaction and try again.
                Err(error) if error.is_transient() => error.raise(),
                Err(error) => {
                    let shown = Value::from_json(&error_json(&error, None)).unwrap_or_default();
                    let limit = left.filter(|left| step::limit_of(step).is_none_or(|own| *left <= own));
                    if error.sqlstate == "57014" && limit.is_some_and(|limit| clock::now() - wall >= limit * 1000) {
                        // The time limit of the run was reached, not that of the step: neither `retry` nor
                        // `continue_on_error` of the step applies.
                        let (attempt, told) = (machine.attempt(thread), shown.to_json());
                        self.write(place, "failed", attempt, began, clock::engine_now(), None, Some(&told));
                        machine.give_up(StopStatus::Failed, "timed_out", too_late(&version.program));
                        continue;
                    }
                    machine.fail(thread, shown, world.now().0);
                }
                Ok(Done::StartedRun(run)) => machine.wait_for_run(thread, run, world.now().0),
                Ok(Done::StartedJob(job)) => machine.wait_for_bulk(thread, job, world.now().0),
                Ok(Done::Result(result)) => {
                    let attempt = machine.attempt(thread);
                    self.write(place, "completed", attempt, began, clock::engine_now(), Some(&result), None);
                    machine.done(thread, keeps.then(|| Value::from_json(&result).unwrap_or_default()));
                }
            }
            // The next step must see the rows that this one wrote.
            world.forget();
        }
    }

    /// Executes no step, but records the steps that have ended.
    pub fn stay(&mut self, machine: &mut Machine<'_>) -> Walked {
        self.note(machine.take_records(), clock::engine_now());
        Walked::Suspended
    }

    /// Milliseconds until the run times out. The handling of a failure may take longer, so None during it.
    fn time_left(&self, machine: &Machine<'_>, now: Micros) -> Option<i64> {
        let deadline = self.run.started_at + self.version.program.timeout?;
        // rounded up: a limit of 0 would be none
        machine.state.failing.is_none().then_some((deadline - now + 999) / 1000)
    }

    fn note(&mut self, records: Vec<Record>, began: Micros) {
        for record in records {
            let since = record.since.map_or(began, |since| since - crate::pg::clock::POSTGRES_EPOCH);
            let result = record.result.as_ref().map(Value::to_json);
            let error = record.error.as_ref().map(Value::to_json);
            let (result, error) = (result.as_deref(), error.as_deref());
            // A step of the machine itself begins and ends at once; a step that waited was published when its wait
            // began.
            let step = self.version.program.steps.get(record.step);
            if let Some(step) =
                step.filter(|step| record.since.is_none() && !is_performed(step) && record.status != "skipped")
            {
                engine_events::step_started(self.run.id, step, record.attempt);
            }
            self.write(record.step, record.status, record.attempt, since, clock::engine_now(), result, error);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        place: usize,
        status: &str,
        attempt: u32,
        began: Micros,
        ended: Micros,
        result: Option<&str>,
        error: Option<&str>,
    ) {
        let Some(step) = self.version.program.steps.get(place) else { return };
        engine_events::step_ended(self.run.id, step, status, attempt, error);
        step_counts::note(self.run, place, &step.id, status, attempt, ended - began);
        self.steps.push(if self.steps.is_empty() { '[' } else { ',' });
        let (at, took) = (began - self.run.started_at, ended - began);
        // Writing to a String cannot fail.
        let _ = write!(
            self.steps,
            "{{\"id\":{},\"kind\":\"{}\",\"status\":\"{status}\",\"at_us\":{at},\"took_us\":{took}",
            serde_json::Value::from(step.id.as_str()),
            step.kind(),
        );
        if attempt > 1 {
            let _ = write!(self.steps, ",\"attempt\":{attempt}");
        }
        if let Some(result) = result {
            let _ = write!(self.steps, ",\"result\":{result}");
        }
        if let Some(error) = error {
            let _ = write!(self.steps, ",\"error\":{error}");
        }
        self.steps.push('}');
    }

    /// The steps so far as a JSON list.
    pub fn steps_json(&self) -> String {
        if self.steps.is_empty() { "[]".to_owned() } else { format!("{}]", self.steps) }
    }

    /// The row of the history for a run that has ended.
    pub fn history(&self, machine: &Machine<'_>, end: &End) -> EndedRun {
        let ending = match end.status {
            StopStatus::Completed => Ending::Completed,
            StopStatus::Failed => Ending::Failed,
            StopStatus::Cancelled => Ending::Cancelled,
        };
        let error = end.error.as_ref().map(|error| {
            let mut json: serde_json::Value = serde_json::from_str(&error.to_json()).unwrap_or_default();
            if let (Some(fields), Some(step)) = (json.as_object_mut(), &end.step) {
                fields.insert("step".into(), step.as_str().into());
            }
            json.to_string()
        });
        let output = Some(machine.output()).filter(|output| !output.is_null()).map(|output| output.to_json());
        // The state is kept so that the run can be taken up where it failed.
        let state = (ending == Ending::Failed).then(|| serde_json::to_string(&machine.state).ok()).flatten();
        EndedRun {
            error,
            steps: (!self.steps.is_empty()).then(|| self.steps_json()),
            output,
            state,
            ..self.run.ended(ending, end.reason.as_deref())
        }
    }
}

/// The error of a run that timed out.
pub fn too_late(program: &Program) -> Value {
    let limit = automation_core::value::Duration::from_micros(program.timeout.unwrap_or_default());
    let error = PgError {
        detail: Some(format!("It has taken longer than {limit}.")),
        ..PgError::new("57014", "the run timed out")
    };
    Value::from_json(&error_json(&error, None)).unwrap_or_default()
}

/// Is the step performed by the extension, not by the machine?
fn is_performed(step: &Step) -> bool {
    step.action.isolation().is_some()
}
