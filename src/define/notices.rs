//! Notices of define(): facts about a valid automation that its author should know.
use automation_core::definition::On;
use automation_core::program::Program;
use automation_core::steps::Touch;
use automation_core::suggest::nearest;
use automation_core::topic::{engine, is_pattern};
use pgrx::pg_sys;

use super::rights;
use crate::definitions::hearing;
use crate::pg::{identity, names};
use crate::store::{automations, kinds};

/// One notice for each `run` step whose automation does not exist or is not visible to the author. The automation may
/// be defined later.
pub fn missing_automations(own: &str, program: &Program) -> Vec<String> {
    let mut missing = Vec::new();
    for step in &program.steps {
        for touch in step.action.touches() {
            if let Touch::Automation(automation) = touch
                && automation != own
                && !may_be_run(automation, program.tenant.as_deref())
            {
                let step = &step.id;
                missing.push(format!("step \"{step}\" runs automation \"{automation}\", which does not exist yet"));
            }
        }
    }
    missing
}

/// Is there an automation of that name that runs of this tenant can start? An automation without a tenant has runs of
/// all tenants, which can start the automation of any tenant.
fn may_be_run(name: &str, tenant: Option<&str>) -> bool {
    let user = identity::current_user();
    let mut known = automations::of_name(name).into_iter().filter(|found| identity::has_role(user, found.owner));
    known.any(|found| tenant.is_none() || found.tenant.is_none() || found.tenant.as_deref() == tenant)
}

/// Triggers on a topic that no rule of derive_event() produces, although a rule produces a topic of a similar name. A
/// notice only: emit() may publish on the topic later.
pub fn nearly_derived(program: &Program) -> Vec<String> {
    let derivers = crate::definitions::derived::current();
    let triggers = program.triggers.iter().filter(|trigger| trigger.kind.is_none() && trigger.on == On::Event);
    let topics = triggers.flat_map(|trigger| &trigger.patterns).filter(|pattern| !is_pattern(pattern));
    let unknown = topics.filter(|topic| !derivers.topics().any(|known| known == topic.as_str()));
    let shown = rights::readable_topics(&derivers);
    let near = unknown.filter_map(|topic| Some((topic, nearest(topic, shown.iter().map(String::as_str))?)));
    near.map(|(topic, near)| format!("nothing derives topic \"{topic}\"; did you mean \"{near}\"?")).collect()
}

/// Triggers on kinds without a table whose owner has not let the automation's owner read them: they do not fire.
pub fn closed_kinds(program: &Program, owner: pg_sys::Oid) -> Vec<String> {
    let role = names::role_name(owner).unwrap_or_default();
    let kinds = program.triggers.iter().filter_map(|trigger| Some((trigger, kinds::find(trigger.kind.as_deref()?)?)));
    let closed = kinds.filter(|(_, kind)| kind.relation.is_none() && !hearing::may_read_kind(owner, kind));
    closed
        .map(|(trigger, kind)| {
            format!(
                "trigger \"{}\" does not fire yet: kind \"{1}\" belongs to another role, which can run: \
                 SELECT automation.grant_topic('{role}', '{1}', 'listen')",
                trigger.id, kind.kind
            )
        })
        .collect()
}

/// Triggers on topics that look like the engine's own but do not exist.
pub fn never_told(program: &Program) -> Vec<String> {
    let told = || engine::topics();
    let topics = program.triggers.iter().flat_map(|trigger| &trigger.patterns);
    let own = topics.filter(|topic| engine::is_engines(topic) && !is_pattern(topic));
    let unknown = own.filter(|topic| !told().any(|known| known == topic.as_str()));
    unknown
        .map(|topic| match nearest(topic, told()) {
            Some(near) => format!("the engine tells nothing on topic \"{topic}\"; did you mean \"{near}\"?"),
            None => format!("the engine tells nothing on topic \"{topic}\""),
        })
        .collect()
}

/// Notices that the automation cannot run yet: its owner may not run automations, or no workers are running.
pub fn of_owner(owner: pg_sys::Oid) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(refusal) = crate::store::owners::refusal(owner) {
        notices.push(format!("it will not run yet: {refusal}"));
    }
    if !crate::signal::shmem::shared().has_launcher() {
        notices.push("no workers are running: SELECT automation.start_workers()".to_owned());
    }
    notices
}
