//! Warns, when an automation is defined, that it can start itself: through tables that its statements write, events
//! derived from those, topics that it publishes, or automations that it runs. Writes by functions and triggers are not
//! seen.
use std::collections::HashMap;

use automation_core::cycles::{self, Made, Node};
use automation_core::ids::AutomationId;
use automation_core::program::Program;
use pgrx::pg_sys;
use serde_json::Value as Json;

use crate::capture;
use crate::definitions::derived::{self, Derivers};
use crate::pg::identity;
use crate::pg::writes::Write;
use crate::store::{effects, kinds};

/// The hint for a warning about a loop.
pub const HINT: &str = "Make sure that a filter or a condition ends it; a chain of runs that does not end is cut off.";

/// The warnings about an automation that is about to be saved. Automations that the caller may not see are left out.
pub fn warnings(name: &str, program: &Program, writes: &[Write]) -> Vec<String> {
    let mut own = Node::of(name, program);
    if own.makes.is_empty() && writes.is_empty() {
        return Vec::new();
    }
    let world = World::now();
    own.makes.extend(world.made_by(writes));
    if own.makes.is_empty() {
        return Vec::new();
    }
    let user = identity::current_user();
    let mut nodes = vec![own];
    for (owner, node, writes) in effects::of_others(name, program.tenant.as_deref()) {
        let (Ok(mut node), Ok(writes)) = (serde_json::from_str::<Node>(&node), serde_json::from_str(&writes)) else {
            continue;
        };
        if identity::has_role(user, owner) {
            node.makes.extend(world.made_by(&read(&writes)));
            nodes.push(node);
        }
    }
    cycles::loop_through(name, &nodes).map(|way| cycles::warning(&way)).into_iter().collect()
}

/// Stores the events that an automation makes and the tables it writes, for the warnings about other automations.
pub fn remember(automation: AutomationId, name: &str, program: &Program, writes: &[Write]) {
    let node = Node::of(name, program);
    if node.makes.is_empty() && writes.is_empty() {
        return effects::replace(automation, None);
    }
    let writes: Vec<Json> = writes.iter().map(shown).collect();
    let node = serde_json::to_string(&node).unwrap_or_default();
    effects::replace(automation, Some((&node, &Json::from(writes).to_string())));
}

fn shown(write: &Write) -> Json {
    serde_json::json!({ "relation": write.relation.to_u32(), "verb": write.verb, "columns": write.columns })
}

fn read(stored: &Json) -> Vec<Write> {
    let verbs = ["created", "updated", "deleted"];
    let one = |write: &Json| {
        let verb = verbs.into_iter().find(|verb| write["verb"] == *verb)?;
        let columns = write["columns"].as_array()?.iter().filter_map(|name| name.as_str().map(str::to_owned));
        let relation = pg_sys::Oid::from(u32::try_from(write["relation"].as_u64()?).ok()?);
        Some(Write { relation, verb, columns: columns.collect() })
    };
    stored.as_array().into_iter().flatten().filter_map(one).collect()
}

/// The watched kinds, and the rules that derive events from them.
struct World {
    kinds: HashMap<pg_sys::Oid, String>,
    derivers: std::rc::Rc<Derivers>,
}

impl World {
    fn now() -> World {
        let watched = kinds::all().into_iter().filter_map(|kind| Some((kind.relation?, kind.kind)));
        World { kinds: watched.collect(), derivers: derived::current() }
    }

    /// The events that writes make. A write to a partition makes the events of its table.
    fn made_by(&self, writes: &[Write]) -> Vec<Made> {
        let mut made = Vec::new();
        for write in writes {
            let Some(kind) = self.kinds.get(&capture::watched_root(write.relation)) else { continue };
            let fields = (write.verb == "updated").then(|| write.columns.clone());
            let change = Made { topic: format!("{kind}.{}", write.verb), fields };
            made.extend(change.derived(self.derivers.of_kind(kind)));
            made.push(change);
        }
        made
    }
}
