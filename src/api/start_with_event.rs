//! Starting a run as if an event had happened (R001-52): an event of the same shape, and the same one twice is one run.
use std::rc::Rc;

use automation_core::ids::{EventId, RunId};
use automation_core::order::Start;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::capture::state::{Difference, difference};
use crate::definitions::by_name::Named;
use crate::definitions::tenant_view::TenantColumns;
use crate::definitions::tenant_view::check_tenant;
use crate::error::{EngineError, EngineResult, OrReport};
use crate::event_log::events::{self, Event, Op};
use crate::pg::append::next_id;
use crate::pg::clock::{self, Micros};
use crate::pg::identity;
use crate::pg::jsonb::Jsonb;
use crate::pg::text::Text;
use crate::runs::order::{check_paused, place, startable};

type Json = serde_json::Value;

/// How long the same event is the same run (R001-41).
const SAME_FOR: Micros = 10 * 60 * 1_000_000;

/// The members that a given event may have, as expressions and automation.events name them. `FOLLOWING` are members
/// that follow from these.
const MEMBERS: [&str; 11] =
    ["topic", "kind", "id", "entity_id", "prev", "old", "next", "new", "payload", "actor", "tenant"];
const FOLLOWING: [&str; 11] = [
    "event_id",
    "op",
    "delta",
    "changed",
    "truncated",
    "depth",
    "cause_run",
    "occurred_at",
    "role",
    "dedup_key",
    "xid",
];

/// Starts a run as if an event had happened. The same event again within ten minutes gives the run that it started.
#[pg_extern]
fn start_with_event(
    name: Option<Text>,
    event: Option<Jsonb>,
    tenant: default!(Option<Text>, "NULL"),
) -> Result<Option<i64>, ErrorReport> {
    let name = name.as_deref();
    let tenant = tenant.as_deref();
    let (Some(name), Some(event)) = (name, event) else { return Ok(None) };
    start(&Named { function: "start_with_event", name, tenant }, &event.0).map(Some).or_report()
}

fn start(named: &Named<'_>, given: &Json) -> EngineResult<i64> {
    let known = startable(named)?;
    let name = known.name.as_str();
    let tenant = known.tenant.as_deref().or(named.tenant.filter(|tenant| !tenant.is_empty()));
    let event = Rc::new(made_up(name, given, tenant)?);
    // An update that moves the entity to another tenant is a deletion or a creation for the automation's tenant.
    let columns = TenantColumns::default();
    let event = columns.seen_by(known.tenant.as_deref(), &columns.of_new_values(event)).ok_or_else(|| {
        EngineError::invalid(format!("automation \"{name}\" does not see this event"))
            .detail("It moves an entity from one tenant to another, and neither is the automation's.")
    })?;
    check_paused(&known, event.tenant.as_deref())?;
    let topic = format!("automation.invocation.{name}");
    // Two events are the same if all their fields but the time are.
    let same = Event { occurred_at: 0, ..Event::clone(&event) }.to_json();
    let tenant = event.tenant.as_deref();
    let fingerprint = format!("{} {same}", known.id);
    let (first, key) = events::claim_fingerprint(tenant, &topic, &fingerprint, clock::engine_now(), SAME_FOR);
    if let Some(run) = (first != EventId(0)).then(|| run_of(first)).flatten() {
        return Ok(run.0);
    }
    let run_id = RunId(next_id("run_id_seq"));
    let start = Start {
        automation_id: known.id,
        version_id: known.version_id,
        run_id,
        event: Some(event.to_json()),
        // Unlike with start_run(), a run for an equal event is a duplicate.
        dedup: true,
        ..Default::default()
    };
    let placed = place(name, tenant, start, None);
    events::name_dedup(tenant, &topic, &key, placed);
    Ok(run_id.0)
}

/// The run that an order started.
fn run_of(order: EventId) -> Option<RunId> {
    Some(events::one(order)?.start()?.run_id)
}

/// The event that was meant.
fn made_up(name: &str, given: &Json, tenant: Option<&str>) -> EngineResult<Event> {
    let members = given.as_object().ok_or_else(|| EngineError::invalid("an event must be a JSON object"))?;
    let known = || MEMBERS.into_iter().chain(FOLLOWING);
    if let Some(other) = members.keys().find(|member| !known().any(|known| known == member.as_str())) {
        let error = EngineError::invalid(format!("an event has no \"{other}\""));
        return Err(match automation_core::suggest::nearest(other, known()) {
            Some(near) => error.hint(format!("Did you mean \"{near}\"?")),
            None => error.hint("It has topic, kind, id, prev, next, payload, actor and tenant."),
        });
    }
    let member = |name: &str| members.get(name).filter(|value| !value.is_null());
    let text = |name: &str| match member(name) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(Json::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(EngineError::invalid(format!("\"{name}\" of an event must be text"))),
    };
    let kind = text("kind")?;
    // A row of automation.events has the number of the event in id.
    let entity_id = if members.contains_key("entity_id") { text("entity_id")? } else { text("id")? };
    let state = |name: &str, other: &str| match member(name).or(member(other)) {
        Some(state) if !state.is_object() => {
            Err(EngineError::invalid(format!("\"{name}\" of an event must be an object")))
        }
        state => Ok(state),
    };
    let (old, new) = (state("prev", "old")?, state("next", "new")?);
    let (op, changed, prev, next) = match (&kind, difference(old, new)) {
        (Some(_), Some(Difference { op, changed, prev, next })) => {
            let changed = if op == Op::Updated { changed } else { Vec::new() };
            (op, changed, (op != Op::Created).then_some(prev), (op != Op::Deleted).then_some(next))
        }
        (Some(_), None) => {
            return Err(EngineError::invalid("an event of a kind needs prev, next or both")
                .hint("Without prev it is created, without next deleted."));
        }
        (None, Some(_)) => {
            return Err(EngineError::invalid("an event with prev or next needs a kind")
                .hint("What an event of no kind carries is its payload."));
        }
        (None, None) => (Op::Emitted, Vec::new(), None, None),
    };
    let topic = match text("topic")? {
        Some(topic) if topic.is_empty() || automation_core::topic::validate(&topic).is_err() => {
            return Err(EngineError::invalid(format!("invalid topic \"{topic}\"")));
        }
        Some(topic) if automation_core::topic::is_pattern(&topic) => {
            return Err(EngineError::invalid(format!("topic \"{topic}\" is a pattern")));
        }
        None if kind.is_none() => Some(format!("automation.invocation.{name}")),
        given => given,
    };
    let own = text("tenant")?;
    check_tenant(own.as_deref())?;
    if let (Some(own), Some(tenant)) = (own.as_deref(), tenant)
        && own != tenant
    {
        return Err(EngineError::invalid(format!("automation \"{name}\" sees no events of tenant \"{own}\""))
            .detail(format!("It is tenant \"{tenant}\"'s.")));
    }
    Ok(Event {
        id: EventId(0),
        xid: 0,
        occurred_at: clock::engine_now(),
        cause_run: None,
        relation: None,
        role: identity::current_user(),
        depth: 0,
        op,
        truncated: false,
        kind,
        entity_id,
        topic,
        tenant: own.or(tenant.map(str::to_owned)),
        actor: text("actor")?,
        changed,
        prev,
        next,
        payload: match (member("payload"), op) {
            (Some(payload), _) => Some(payload.to_string()),
            (None, Op::Emitted) => Some("{}".to_owned()),
            (None, _) => None,
        },
        window: None,
    })
}
