//! The sweep: a second evaluation of a run that has waited for long. It should find nothing: every wait has its rows in
//! the wake-index and its timers, and every event that could have ended it was routed. A wake-up that was lost all the
//! same is restored and counted.
use std::collections::HashSet;

use automation_core::ids::WaitNo;
use automation_core::machine::{Cause, Machine, Wait, WaitFor, Woke};

use super::claimer::Claimer;
use super::resume::{Nudge, nudged};
use crate::router;
use crate::runs::scope::RunScope;
use crate::runs::suspend;
use crate::store::bulk;
use crate::store::dispatches::{self, Reason};
use crate::store::history;
use crate::store::live::LiveRun;
use crate::store::log::{self, Entry};
use crate::store::signals;
use crate::store::timers::{self, Timer, TimerKind};
use crate::store::wakes::{self, Wake};

/// Restores missing timers and entries of the wake-index, and ends the waits that should have ended. True if the run
/// can go on.
pub fn sweep(claimer: &mut Claimer, live: &LiveRun, machine: &mut Machine<'_>, world: &RunScope<'_>) -> bool {
    let set = timers::of_run(live.id);
    let waits: Vec<Wait> = machine.state.waits().cloned().collect();
    let timers = missing_timers(live, machine, &waits, world, &set);
    let wakes = missing_wakes(live, machine, &waits, world);
    if (!timers.is_empty() || !wakes.is_empty()) && !dispatches::is_queued(live.owner, live.id) {
        restore(claimer, live, &timers, &wakes);
    }
    let mut moved = false;
    for wait in &waits {
        let is_over = wait.due.is_some_and(|due| due <= automation_core::expr::Scope::now(world).0);
        // A wait that is over has its timer, and a wait that was just armed is evaluated anyway.
        if is_over || set.contains(&(wait.no, TimerKind::Arm)) || !is_fulfilled(live, machine, wait, world) {
            continue;
        }
        // In this order: a wake-up that is routed between the two checks is found in the queue by the second.
        if router::is_on_its_way(live.id, wait.no) || dispatches::is_queued(live.owner, live.id) {
            continue;
        }
        let nudge = Nudge { wait_no: wait.no, reason: Reason::Look, event: None };
        if let Ok(Woke::Moved) = nudged(live, machine, &nudge, world) {
            moved = true;
            tell(claimer, live, "the run could go on, but nothing had told it so");
        }
    }
    moved
}

/// May a queued run whose turn has come go on? The sweep finds such a run only if the run that ended before it left no
/// order to call it.
pub fn may_call(claimer: &mut Claimer, live: &LiveRun, nudges: &[Nudge]) -> bool {
    if nudges.iter().any(|nudge| nudge.reason != Reason::Sweep) {
        return true;
    }
    let called = || live.mode_key.as_deref().is_some_and(|key| router::has_turn_coming(live.automation_id, key));
    let coming = dispatches::is_queued(live.owner, live.id) || called();
    if !coming {
        tell(claimer, live, "it was the run's turn, but nothing had told it so");
    }
    !coming
}

fn tell(claimer: &mut Claimer, live: &LiveRun, message: &str) {
    claimer.rescued += 1;
    log::warning(&Entry {
        code: "rescued_wakeup",
        automation_id: Some(live.automation_id),
        owner: Some(live.owner),
        run_id: Some(live.id),
        message,
        detail: Some("A change may have been made while its table was not captured, or rows of the engine were lost."),
        ..Default::default()
    });
}

fn restore(claimer: &mut Claimer, live: &LiveRun, timers: &[Timer], wakes: &[Wake]) {
    if let Some(first) = timers.iter().map(|timer| timer.due_at).min() {
        timers::insert(timers);
        crate::signal::at_commit::timer_at_commit(first);
        tell(claimer, live, "the run had lost a timer, which is set again");
    }
    if !wakes.is_empty() {
        wakes::insert(wakes);
        tell(claimer, live, "the run had lost its place in the wake-index, which it has again");
    }
}

fn missing_timers(
    live: &LiveRun,
    machine: &Machine<'_>,
    waits: &[Wait],
    world: &RunScope<'_>,
    set: &HashSet<(WaitNo, TimerKind)>,
) -> Vec<Timer> {
    let of_waits = waits.iter().flat_map(|wait| suspend::timers_of(live, machine, wait, world));
    of_waits
        .chain(suspend::run_timeout(live, machine))
        .filter(|timer| !set.contains(&(timer.waiter.wait_no, timer.kind)))
        .collect()
}

fn missing_wakes(live: &LiveRun, machine: &Machine<'_>, waits: &[Wait], world: &RunScope<'_>) -> Vec<Wake> {
    let indexed = wakes::of_run(live.id);
    waits
        .iter()
        .filter(|wait| !indexed.contains(&wait.no))
        .flat_map(|wait| suspend::wakes_of(live, machine, wait, world))
        .collect()
}

/// Would the wait end if it were evaluated? An event does not last, so a wait for an event has nothing to evaluate.
fn is_fulfilled(live: &LiveRun, machine: &Machine<'_>, wait: &Wait, world: &RunScope<'_>) -> bool {
    match &wait.what {
        WaitFor::Until => {
            let mut trial = Machine::new(machine.program(), machine.state.clone(), live.id.0 as u64, live.key.clone());
            trial.wake(wait.no, Cause::Look, world) == Woke::Moved
        }
        WaitFor::Signal { name, key } => signals::is_there(name, key.as_deref(), live.owner, live.tenant.as_deref()),
        WaitFor::Run { run } => !history::outcomes(&[*run]).is_empty(),
        WaitFor::Bulk { job } => bulk::ended(*job).is_some(),
        WaitFor::Event { .. } | WaitFor::Delay | WaitFor::Retry | WaitFor::Turn | WaitFor::Lanes { .. } => false,
    }
}
