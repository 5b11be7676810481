//! Defining automations and leading them through their life.
use automation_core::lifecycle::{Refusal, Status};
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::define::cycles;
use crate::define::webhooks;
use crate::define::{self, Defined};
use crate::definitions::by_name::Named;
use crate::definitions::schedules;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::pg::identity;
use crate::pg::jsonb::Jsonb;
use crate::pg::text::Text;
use crate::runs::pause::{tell, thaw};
use crate::runs::{bulk, cancel, holds};
use crate::store::automations::{self, Automation};
use crate::store::gates;

fn row(defined: Defined) -> (Text, i32, Text, Vec<Text>) {
    let notices = defined.notices.into_iter().map(Text).collect();
    (defined.name.into(), defined.version, defined.status.into(), notices)
}

/// Saves an automation from its document; called by automation.define().
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn define_document(
    document: Jsonb,
    run_as: default!(Option<Text>, "NULL"),
    status: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<'static, (name!(name, Text), name!(version, i32), name!(status, Text), name!(notices, Vec<Text>))>,
    ErrorReport,
> {
    let run_as = run_as.as_deref();
    let status = status.as_deref();
    define::define(document.0, run_as, status).map(row).map(TableIterator::once).or_report()
}

/// Saves an automation from a document in text form.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn define_text(
    document: Text,
    run_as: default!(Option<Text>, "NULL"),
    status: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<'static, (name!(name, Text), name!(version, i32), name!(status, Text), name!(notices, Vec<Text>))>,
    ErrorReport,
> {
    let document = &*document;
    let run_as = run_as.as_deref();
    let status = status.as_deref();
    parse_document(document)
        .and_then(|json| define::define(json, run_as, status))
        .map(row)
        .map(TableIterator::once)
        .or_report()
}

fn parse_document(text: &str) -> EngineResult<serde_json::Value> {
    serde_json::from_str(text).map_err(|error| {
        let mut report = EngineError::invalid(format!("invalid JSON in definition: {error}"));
        let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
        report.point(text, line_start + error.column().saturating_sub(1));
        report
    })
}

/// Lists everything that is wrong with a document, without saving it.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn validate(
    document: Jsonb,
) -> Result<
    TableIterator<
        'static,
        (
            name!(severity, Text),
            name!(path, Text),
            name!(line, Option<i32>),
            name!(col, Option<i32>),
            name!(sqlstate, Text),
            name!(message, Text),
            name!(hint, Option<Text>),
        ),
    >,
    ErrorReport,
> {
    let owner = identity::current_user();
    let (findings, warnings) = match define::examine(&document.0, owner) {
        Ok((document, program, writes)) => {
            let circles = cycles::warnings(&document.name, &program, &writes);
            let circles = circles.into_iter().map(|message| (message, Some(cycles::HINT.to_owned())));
            let doubts = webhooks::doubts(&program, owner).into_iter().map(|message| (message, None));
            (Vec::new(), circles.chain(doubts).collect())
        }
        Err(findings) => (findings, Vec::new()),
    };
    let warnings = warnings.into_iter().map(|(message, hint)| {
        // A warning is about no single place of the document.
        ("warning".into(), Text::default(), None, None, "01000".into(), message.into(), hint.map(Text))
    });
    let rows = findings.into_iter().map(|finding| {
        let (sqlstate, message, hint, place) = finding.error.parts();
        (
            "error".into(),
            finding.path.as_str().into(),
            place.map(|(line, _)| line as i32),
            place.map(|(_, column)| column as i32),
            sqlstate.into(),
            message.into(),
            hint.map(Text::from),
        )
    });
    Ok(TableIterator::new(rows.chain(warnings).collect::<Vec<_>>()))
}

/// The versions of an automation, newest first, with how many runs are still on each.
#[pg_extern(stable)]
#[allow(clippy::type_complexity)]
fn versions(
    name: Option<Text>,
    tenant: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(version, i32),
            name!(current, bool),
            name!(created_at, TimestampWithTimeZone),
            name!(created_by, Text),
            name!(runs, i64),
            name!(document, Jsonb),
        ),
    >,
    ErrorReport,
> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    let Some(name) = name else { return Ok(TableIterator::empty()) };
    let known = Named { function: "versions", name, tenant }.find().or_report()?;
    let rows = automations::history_of(known.id).into_iter().filter_map(|version| {
        let document = serde_json::from_str(&version.document).ok()?;
        let created_at = TimestampWithTimeZone::try_from(version.created_at).ok()?;
        let current = version.version == known.version;
        Some((version.version, current, created_at, version.created_by.into(), version.runs, Jsonb(document)))
    });
    Ok(TableIterator::new(rows.collect::<Vec<_>>()))
}

/// The canonical document of an automation.
#[pg_extern(stable)]
fn document(name: Option<Text>, tenant: default!(Option<Text>, "NULL")) -> Result<Option<Jsonb>, ErrorReport> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    let Some(name) = name else { return Ok(None) };
    Named { function: "document", name, tenant }
        .find()
        .and_then(|found| serde_json::from_str(&found.document).map_err(|error| EngineError::bug(error.to_string())))
        .map(|document| Some(Jsonb(document)))
        .or_report()
}

/// The row that the functions that change a status return.
type Answer = TableIterator<
    'static,
    (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
>;

/// No name, no row: as a strict function answers.
fn answer(function: &str, name: Option<&str>, tenant: Option<&str>, to: Status) -> Result<Answer, ErrorReport> {
    match name {
        Some(name) => transition(&Named { function, name, tenant }, to).map(TableIterator::once).or_report(),
        None => Ok(TableIterator::empty()),
    }
}

type Outcome = (bool, Option<Text>, Option<Text>, Option<Text>);

/// Starts an automation: from draft, or again from paused.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn activate(
    name: Option<Text>,
    tenant: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
    >,
    ErrorReport,
> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    answer("activate", name, tenant, Status::Active)
}

/// Starts a paused automation again.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn resume(
    name: Option<Text>,
    tenant: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
    >,
    ErrorReport,
> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    answer("resume", name, tenant, Status::Active)
}

/// Stops an automation from starting runs. Its `on_pause` decides about those under way.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn pause(
    name: Option<Text>,
    tenant: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
    >,
    ErrorReport,
> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    answer("pause", name, tenant, Status::Paused)
}

/// Makes a paused automation a draft again.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn revert_to_draft(
    name: Option<Text>,
    tenant: default!(Option<Text>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (name!(ok, bool), name!(applied, Option<Text>), name!(reason, Option<Text>), name!(message, Option<Text>)),
    >,
    ErrorReport,
> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    answer("revert_to_draft", name, tenant, Status::Draft)
}

/// A refusal is a row; that the owner may not read a table is an error, which names the right that is missing.
fn transition(named: &Named<'_>, to: Status) -> EngineResult<Outcome> {
    match try_transition(named, to) {
        Ok(applied) => Ok((true, Some(applied.into()), None, None)),
        Err(NotDone::Refused(refusal)) => {
            Ok((false, None, Some(refusal.reason().into()), Some(refusal.message().into())))
        }
        Err(NotDone::Denied(error)) => Err(error),
    }
}

/// Why a status was not changed.
enum NotDone {
    Refused(Refusal),
    Denied(EngineError),
}

impl From<Refusal> for NotDone {
    fn from(refusal: Refusal) -> Self {
        NotDone::Refused(refusal)
    }
}

/// An automation of a role whose rights the caller has, locked until this transaction ends. Looked at before it is
/// locked: a caller without the owner's rights must not hold the lock, nor wait for it. With `shared`, a tenant without
/// an automation of that name means the automation without a tenant.
fn lock_visible(named: &Named<'_>, shared: bool) -> EngineResult<Option<Automation>> {
    let found = if shared { named.found_for_tenant()? } else { named.found()? };
    let Some(found) = found else { return Ok(None) };
    let locked = automations::lock(&found.name, found.tenant.as_deref());
    Ok(locked.filter(|found| identity::has_role(identity::current_user(), found.owner)))
}

/// The one place that changes an automation's status on request.
fn try_transition(named: &Named<'_>, to: Status) -> Result<&'static str, NotDone> {
    let known = lock_visible(named, true).map_err(NotDone::Denied)?.ok_or(Refusal::NotFound)?;
    if let (Some(tenant), None) = (named.tenant.filter(|tenant| !tenant.is_empty()), &known.tenant) {
        return super::tenants::transition(&known, tenant, to).map_err(NotDone::Denied);
    }
    let from = Status::parse(&known.status).ok_or(Refusal::NotFound)?;
    let resumed = to == Status::Active && super::tenants::resume(&known, None);
    if resumed && from == to {
        return Ok("transitioned");
    }
    let document: serde_json::Value = serde_json::from_str(&known.document).unwrap_or_default();
    let count = |list: &str| document.get(list).and_then(serde_json::Value::as_array).map_or(0, Vec::len);
    let becomes_active = to == Status::Active && from != Status::Active;
    let valid = match becomes_active && count("steps") > 0 {
        true => triggers_are_valid(&known, &document).map_err(NotDone::Denied)?,
        false => true,
    };
    let Some(action) = from.transition(to, count("steps"), if valid { count("triggers") } else { 0 })? else {
        let action = match to {
            Status::Active => "automation.activated",
            Status::Paused => "automation.paused",
            Status::Draft => "automation.reverted_to_draft",
        };
        let details = serde_json::json!({ "from": from.word(), "to": to.word(), "no_op": true });
        known.audit(action, details);
        return Ok("recorded");
    };
    let user = crate::pg::names::role_name(identity::current_user()).unwrap_or_default();
    let disabled = serde_json::json!({ "disabled_by": "user", "blame": user });
    automations::set_status(known.id, from.word(), to.word(), "user", &disabled);
    automations::note_change();
    tell(&known, from, to, action);
    Ok("transitioned")
}

/// Is everything that its triggers need still there? An error if the owner may not read one of their tables.
fn triggers_are_valid(known: &Automation, document: &serde_json::Value) -> EngineResult<bool> {
    let findings = define::examine(document, known.owner).err().unwrap_or_default();
    let mut of_triggers = findings.into_iter().filter(|finding| finding.path.starts_with("trigger")).peekable();
    let valid = of_triggers.peek().is_none();
    match of_triggers.find(|finding| finding.error.is_denial()) {
        Some(denied) => Err(denied.error),
        None => Ok(valid),
    }
}

/// Removes an automation. Runs that are queued or wait are cancelled (runs => 'cancel') or go on to their end
/// ('finish').
#[pg_extern]
fn drop_automation(
    name: Option<Text>,
    runs: default!(Option<Text>, "'cancel'"),
    tenant: default!(Option<Text>, "NULL"),
) -> Result<(), ErrorReport> {
    let name = name.as_deref();
    let runs = runs.as_deref();
    let tenant = tenant.as_deref();
    match (name, runs) {
        (Some(name), Some(runs)) => {
            drop_checked(&Named { function: "drop_automation", name, tenant }, runs).or_report()
        }
        _ => Ok(()),
    }
}

fn drop_checked(named: &Named<'_>, runs: &str) -> EngineResult<()> {
    named.find()?;
    let known = lock_visible(named, false)?.ok_or_else(|| EngineError::unknown_automation(named.name))?;
    match runs {
        "cancel" => cancel::cancel_all(known.id)?,
        "finish" => {
            automations::let_runs_finish(known.id);
            bulk::cancel_all(known.id, true);
            thaw(known.id);
        }
        other => {
            return Err(
                EngineError::invalid(format!("invalid value \"{other}\" for runs")).hint("Use cancel or finish.")
            );
        }
    }
    gates::forget(known.id);
    schedules::rest(known.id);
    holds::drop_inactive(known.id, "it was dropped");
    automations::drop(known.id);
    automations::note_change();
    known.audit("automation.dropped", serde_json::json!({ "version": known.version }));
    Ok(())
}
