//! Driving and watching the engine.
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::error::{EngineError, EngineResult, OrReport};
use crate::event_log::unread;
use crate::executor::{self, Claimer, Work};
use crate::pg::jsonb::Jsonb;
use crate::pg::server_text;
use crate::pg::text::Text;
use crate::pg::{clock, identity, names, process, snapshot};
use crate::router::{self, Routed};
use crate::signal::at_commit;
use crate::signal::executor_slot::ExecutorSlot;
use crate::signal::shmem::{self, DATABASES, DatabaseSlot, STATE_PRESENT, shared};
use crate::store::{dispatches, health, owners, partitions};
use crate::{gucs, janitor, provenance, workers};

/// Routes up to n committed events, as the conductor does. 0 while another session is routing.
#[pg_extern]
fn route(n: default!(i64, "1000")) -> Result<i64, ErrorReport> {
    check_count(n).or_report()?;
    Ok(match router::route(n, true) {
        Routed::Busy => 0,
        Routed::Events { events, .. } => events as i64,
    })
}

/// Runs up to n queued dispatches, as executors do. Only those of roles that the caller may act for.
#[pg_extern]
fn dispatch(n: default!(i64, "1000")) -> Result<i64, ErrorReport> {
    check_count(n).and_then(|()| outside_of_runs("dispatch")).or_report()?;
    Ok(dispatch_up_to(n, &mut HashSet::new()))
}

/// Refuses a call from inside a run: a run that drove the engine would find itself in the queue.
fn outside_of_runs(what: &str) -> EngineResult<()> {
    match provenance::run() {
        Some(run) => Err(EngineError::wrong_state(format!("{what}() cannot be called from a run"))
            .detail(format!("Run {run} is under way in this session."))),
        None => Ok(()),
    }
}

fn check_count(n: i64) -> EngineResult<()> {
    if (1..=1_000_000).contains(&n) {
        return Ok(());
    }
    Err(EngineError::invalid(format!("n must be between 1 and 1000000, not {n}")))
}

/// Runs the dispatches of roles that the caller may act for. An owner that no executor could work for is passed over,
/// and the caller is told once why: `told` has the owners for which the caller was told.
fn dispatch_up_to(n: i64, told: &mut HashSet<pg_sys::Oid>) -> i64 {
    let mut runs = 0;
    for owner in dispatches::owners() {
        if !identity::can_become(identity::current_user(), owner) {
            continue;
        }
        let mut claimer = Claimer::new(owner, false);
        while runs < n {
            if let Some(reason) = owners::refusal(owner) {
                if told.insert(owner) {
                    EngineError::not_run(&reason).warn();
                }
                break;
            }
            let turn = executor::turn(&mut claimer, Work::UpTo((n - runs).min(gucs::batch_size())));
            // The dispatches are not committed as done yet, but are gone for this transaction.
            claimer.committed();
            runs += turn.runs as i64;
            let armed = std::mem::take(&mut claimer.armed);
            if !armed.is_empty() {
                executor::look_at_armed(&mut claimer, &armed);
            }
            if turn.runs == 0 && claimer.armed.is_empty() {
                break;
            }
        }
    }
    runs
}

/// Routes and runs until nothing is left, including events of this still open transaction. Returns the number of runs.
/// While a conductor is at work, drain() leaves the committed events of other transactions to the conductor: drain()
/// would hold the lock on the router's cursor until this transaction ends, and no other session could route events
/// until then.
#[pg_extern]
fn drain() -> Result<i64, ErrorReport> {
    outside_of_runs("drain").or_report()?;
    let beside = conductor_at_work();
    let (mut runs, mut own, mut told) = (0, 0, HashSet::new());
    loop {
        if beside {
            wait_for_conductor();
        }
        let (routed_own, last) = router::route_own(own);
        own = last;
        let routed = match beside {
            true => router::run_own_timers(gucs::route_batch_size()),
            false => match router::route(gucs::route_batch_size(), true) {
                Routed::Busy => 0,
                Routed::Events { events, dispatches, more, .. } => events + dispatches + usize::from(more),
            },
        };
        let ran = dispatch_up_to(i64::MAX, &mut told);
        runs += ran;
        if routed_own == 0 && routed == 0 && ran == 0 {
            return Ok(runs);
        }
        pgrx::check_for_interrupts!();
    }
}

/// Does a conductor route the events that are committed?
fn conductor_at_work() -> bool {
    let at_work = |slot: &DatabaseSlot| {
        slot.state.load(Ordering::Acquire) == STATE_PRESENT
            && !slot.is_quiesced()
            && !slot.stopped.load(Ordering::Acquire)
    };
    crate::pg::failpoint::skips("drain_cursor")
        || gucs::enabled() && shared().database(shmem::my_database()).is_some_and(at_work)
}

/// How long drain() waits for the conductor to route the events committed before.
const CONDUCTOR_PATIENCE: Duration = Duration::from_secs(5);

/// Waits until the conductor has routed all that is committed now. A conductor that takes too long routes the rest
/// after drain().
fn wait_for_conductor() {
    // A transaction with one snapshot for all its statements would not see the conductor's progress.
    let slot = shared().database(shmem::my_database()).filter(|_| !snapshot::is_fixed());
    let (Some(slot), Some(now)) = (slot, identity::as_engine(crate::event_log::cursor::present)) else { return };
    let since = Instant::now();
    while !unread::has_routed(&now) && conductor_at_work() && since.elapsed() < CONDUCTOR_PATIENCE {
        slot.announce_events();
        process::nap(Duration::from_millis(1));
    }
}

/// Turns up to n timers that are due into dispatches, as the conductor does. 0 while another session is routing.
#[pg_extern]
fn run_timers(n: default!(i64, "1000")) -> Result<i64, ErrorReport> {
    check_count(n).or_report()?;
    Ok(router::run_timers(n) as i64)
}

/// Does the housekeeping that the conductor does now and then, and has every run that waits looked at once more: a
/// timer that was lost is set again, and a run that could go on does. Returns how many runs wait.
#[pg_extern]
fn sweep() -> Result<i64, ErrorReport> {
    superuser_only("sweep").or_report()?;
    janitor::keep_house(true);
    janitor::tidy();
    Ok(janitor::sweep_all() as i64)
}

fn superuser_only(what: &str) -> EngineResult<()> {
    if identity::is_superuser(identity::current_user()) {
        return Ok(());
    }
    Err(EngineError::not_allowed(format!("must be superuser to call automation.{what}()")))
}

/// Starts the workers of this database; without preloading, until the server's next restart.
#[pg_extern]
fn start_workers() -> Result<bool, ErrorReport> {
    start().or_report()
}

fn start() -> EngineResult<bool> {
    superuser_only("start_workers")?;
    if !shared().has_launcher() && process::start(&workers::launcher::PROCESS).is_none() {
        return Err(EngineError::out_of_workers("could not start the launcher")
            .detail("All background worker slots are in use.")
            .hint("Raise max_worker_processes and restart the server."));
    }
    shared().look_at_database(shmem::my_database());
    Ok(true)
}

/// Stops the workers of this database until start_workers() or the server's next restart.
#[pg_extern]
fn stop_workers() -> Result<bool, ErrorReport> {
    superuser_only("stop_workers").or_report()?;
    let Some(slot) = shared().database(shmem::my_database()) else { return Ok(false) };
    slot.stopped.store(true, Ordering::Release);
    slot.wake_conductor();
    Ok(true)
}

/// The engine's texts are UTF-8, so it needs a database whose texts the server can convert to UTF-8 and back.
fn check_encoding() -> EngineResult<()> {
    let encoding = names::database_encoding();
    let reason = match encoding.as_str() {
        "SQL_ASCII" => "in which the server does not know which letters the bytes of a text are",
        _ if server_text::is_convertible() => return Ok(()),
        _ => "which the server cannot convert to UTF8",
    };
    Err(EngineError::not_supported(format!("automation_engine cannot be used in a database with encoding {encoding}"))
        .detail(format!("It works with texts in UTF8. This database has {encoding}, {reason}."))
        .hint(
            "Create one with CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8', and load a dump of this one whose \
             texts you have converted.",
        ))
}

/// Called by the install script: starts the workers once the extension is committed.
#[pg_extern(sql = false)]
fn announce_extension() -> Result<(), ErrorReport> {
    check_encoding().or_report()?;
    if !names::owns_schema(c"automation", identity::current_user()) {
        return Err(EngineError::wrong_state("schema \"automation\" belongs to somebody else")
            .detail("Its owner could change what the extension puts there.")
            .hint("DROP SCHEMA automation, or rename it; the extension creates its own."))
        .or_report();
    }
    let today = clock::day(clock::now());
    for table in partitions::TABLES {
        partitions::ensure(table, today, today + 1);
    }
    if shared().has_launcher() {
        at_commit::launcher_at_commit();
    } else {
        pgrx::ereport!(
            PgLogLevel::NOTICE,
            PgSqlErrorCode::ERRCODE_WARNING,
            "automation_engine is not preloaded, so no workers are running",
            "HINT: Add it to shared_preload_libraries, or start the workers now with: SELECT automation.start_workers()."
        );
    }
    Ok(())
}

pub type StatusRow = (String, String, Option<String>);

/// The engine's condition: one row per thing worth knowing.
#[pg_extern]
fn status() -> TableIterator<'static, (name!(item, Text), name!(status, Text), name!(detail, Option<Text>))> {
    let shown = |(item, status, detail): StatusRow| (item.into(), status.into(), detail.map(Text));
    TableIterator::new(status_rows().into_iter().map(shown))
}

fn status_rows() -> Vec<StatusRow> {
    let row = |item: &str, status: &str, detail: Option<String>| (item.to_owned(), status.to_owned(), detail);
    let slot = shared().database(shmem::my_database());
    let mut rows = vec![
        row("enabled", if gucs::enabled() { "on" } else { "off" }, None),
        row(
            "launcher",
            if shared().has_launcher() { "running" } else { "not running" },
            (!shared().has_launcher())
                .then(|| "Preload automation_engine, or SELECT automation.start_workers().".to_owned()),
        ),
    ];
    let conductor = match slot {
        Some(slot) if slot.state.load(Ordering::Acquire) == STATE_PRESENT => {
            row("conductor", "running", Some(format!("pid {}", slot.conductor_pid.load(Ordering::Acquire))))
        }
        Some(slot) if slot.stopped.load(Ordering::Acquire) => row("conductor", "stopped", None),
        Some(slot) if slot.out_of_workers.load(Ordering::Acquire) => {
            row("conductor", "waiting", Some("max_worker_processes is used up".to_owned()))
        }
        None if shared().has_launcher() && !shared().has_room() => {
            let detail = format!(
                "all {DATABASES} slots for databases are taken; DROP EXTENSION automation_engine in one that does not need it, then SELECT automation.start_workers() here"
            );
            row("conductor", "no slot", Some(detail))
        }
        _ => row("conductor", "not running", None),
    };
    rows.push(conductor);
    rows.extend(shmem::frozen().map(|level| {
        let (place, command) = level.words();
        let detail = format!(
            "default_transaction_read_only is on for {place}: nothing is routed, run or delivered. The work goes on after: \
             {command}."
        );
        row("read_only", "frozen", Some(detail))
    }));
    rows.extend(super::waiting_owners::rows(slot));
    let courier = slot.map_or(0, |slot| slot.courier_pid.load(Ordering::Acquire));
    let in_flight = slot.map_or(0, |slot| slot.courier_in_flight.load(Ordering::Acquire));
    rows.push(match courier {
        _ if !gucs::http() => row("courier", "off", Some("automation_engine.http is off".to_owned())),
        0 if slot.is_some_and(|slot| slot.courier_starved.load(Ordering::Acquire)) => {
            row("courier", "starved", Some("max_worker_processes is used up".to_owned()))
        }
        0 => row("courier", "not running", Some("started when there is something to deliver".to_owned())),
        pid => row("courier", "running", Some(format!("pid {pid}, {in_flight} messages under way"))),
    });
    rows.extend(slot.and_then(held_up));
    let rescued = slot.map_or(0, |slot| slot.rescued.load(Ordering::Acquire));
    let detail = (rescued > 0).then(|| "Wake-ups that only the sweep found; automation.log names the runs.".to_owned());
    rows.push(row("rescued_wakeups", &rescued.to_string(), detail));
    let failing = janitor::failing();
    if !failing.is_empty() {
        let detail = format!("failing: {}; the server's log says why", failing.join(", "));
        rows.push(row("housekeeping", "warning", Some(detail)));
    }
    rows.extend(health::findings());
    rows
}

/// The session that keeps the conductor from routing.
fn held_up(slot: &DatabaseSlot) -> Option<StatusRow> {
    let pid = Some(slot.held_up_by.load(Ordering::Acquire)).filter(|pid| *pid != 0)?;
    let detail = format!(
        "No events are routed while the transaction of process {pid} is open, which called route() or run_timers(). \
         End it, or SELECT pg_terminate_backend({pid})."
    );
    Some(("routing".to_owned(), "held up".to_owned(), Some(detail)))
}

type WorkerRow = (
    Text,
    Option<i32>,
    Text,
    Option<Text>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<TimestampWithTimeZone>,
);

fn courier_row(slot: &DatabaseSlot) -> Option<WorkerRow> {
    let pid = slot.courier_pid.load(Ordering::Acquire);
    let busy = slot.courier_in_flight.load(Ordering::Acquire) > 0;
    let get = |counter: &std::sync::atomic::AtomicI64| Some(counter.load(Ordering::Acquire));
    let since = TimestampWithTimeZone::try_from(slot.courier_started_at.load(Ordering::Acquire)).ok();
    let state = if busy { "busy" } else { "idle" };
    let (batches, failed) = (get(&slot.courier_batches), get(&slot.courier_failed));
    let row = ("courier".into(), Some(pid), state.into(), None, None, None, batches, None, None, failed, since);
    (pid != 0).then_some(row)
}

/// The runs that executors execute at this moment; read once by each query on the view runs.
#[pg_extern(sql = false)]
fn running() -> Jsonb {
    let user = identity::current_user();
    let owner = |slot: &ExecutorSlot| pg_sys::Oid::from(slot.owner.load(Ordering::Acquire));
    let shown = shared().executors_of(shmem::my_database()).filter(|slot| identity::has_role(user, owner(slot)));
    let rows = shown.filter_map(|slot| {
        let seen = slot.running.seen()?;
        let (pid, step) = (slot.pid.load(Ordering::Acquire), seen.step);
        Some((seen.run.to_string(), serde_json::json!({ "pid": pid, "step": step, "since": seen.since })))
    });
    Jsonb(serde_json::Value::Object(rows.collect()))
}

/// The state of each process; read by the view stat_workers.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn worker_list() -> TableIterator<
    'static,
    (
        name!(worker, Text),
        name!(pid, Option<i32>),
        name!(state, Text),
        name!(owner, Option<Text>),
        name!(runs, Option<i64>),
        name!(failed_runs, Option<i64>),
        name!(batches, Option<i64>),
        name!(events, Option<i64>),
        name!(dispatches, Option<i64>),
        name!(errors, Option<i64>),
        name!(started_at, Option<TimestampWithTimeZone>),
    ),
> {
    let time = |micros: i64| (micros != 0).then(|| TimestampWithTimeZone::try_from(micros).ok()).flatten();
    let mut rows = Vec::new();
    if let Some(slot) = shared().database(shmem::my_database()) {
        let get = |counter: &std::sync::atomic::AtomicI64| Some(counter.load(Ordering::Acquire));
        let pid = slot.conductor_pid.load(Ordering::Acquire);
        let state = if pid != 0 { "running" } else { "not running" };
        rows.push((
            "conductor".into(),
            (pid != 0).then_some(pid),
            state.into(),
            None,
            None,
            None,
            get(&slot.turns),
            get(&slot.routed_events),
            get(&slot.routed_dispatches),
            get(&slot.errors),
            time(slot.started_at.load(Ordering::Acquire)),
        ));
    }
    rows.extend(shared().database(shmem::my_database()).and_then(courier_row));
    // The owner that an executor works for is shown to roles that may act for that owner, and to those that may see all
    // statistics.
    let (user, sees_all) = (identity::current_user(), identity::sees_all_statistics());
    for slot in shared().executors_of(shmem::my_database()) {
        let get = |counter: &std::sync::atomic::AtomicI64| Some(counter.load(Ordering::Acquire));
        let pid = slot.pid.load(Ordering::Acquire);
        let owner = Some(pg_sys::Oid::from(slot.owner.load(Ordering::Acquire)));
        let state = match (pid, slot.busy_since.load(Ordering::Acquire)) {
            (0, _) => "starting",
            (_, 0) => "idle",
            _ => "busy",
        };
        rows.push((
            "executor".into(),
            (pid != 0).then_some(pid),
            state.into(),
            owner.filter(|owner| sees_all || identity::has_role(user, *owner)).and_then(names::role_name).map(Text),
            get(&slot.runs),
            get(&slot.failed_runs),
            get(&slot.batches),
            None,
            None,
            None,
            time(slot.started_at.load(Ordering::Acquire)),
        ));
    }
    TableIterator::new(rows)
}
