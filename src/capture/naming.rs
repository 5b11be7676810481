//! Whether a role may give a name to a kind.
//!
//! Names of kinds are free again when a table is dropped or not watched any more, and free before they are first used.
//! Automations, and runs that wait, may listen to such a name: a table of a stranger must not start them.
use automation_core::ids::VersionId;
use pgrx::pg_sys;

use crate::definitions::versions::compile_stored;
use crate::error::{EngineError, EngineResult};
use crate::pg::identity;
use crate::store::{automations, kinds, wakes};

/// The relation of a kind's name to the role that wants to use it.
pub enum Name {
    /// It was used by the same role, or for a table of the same owner.
    GoesOn,
    /// It was not used before, or not by them.
    New,
}

/// Refuses a name that automations or waits of other roles listen to, unless the current user has the privileges of
/// those roles or of the one that used the name before, or the table is of the same owner as the one before.
pub fn check(kind: &str, table_owner: Option<pg_sys::Oid>) -> EngineResult<Name> {
    let user = identity::current_user();
    let mut before = kinds::former(kind);
    if let Some(found) = kinds::find(kind) {
        before = Some((found.owner, found.table_owner));
    }
    let goes_on = before
        .is_some_and(|(watcher, owner)| identity::has_role(user, watcher) || (owner.is_some() && owner == table_owner));
    if goes_on {
        return Ok(Name::GoesOn);
    }
    if !is_listened_to(kind, |owner| !identity::has_role(user, owner)) {
        return Ok(Name::New);
    }
    Err(EngineError::not_allowed(format!("kind \"{kind}\" is listened to by automations of other roles"))
        .detail("They were not written for these entities, and would be started by them.")
        .hint("Give another with kind => 'name', or let a superuser or the role that had the kind before do it."))
}

/// Does an active automation, or a run that waits, of such an owner name the kind?
fn is_listened_to(kind: &str, stranger: impl Fn(pg_sys::Oid) -> bool) -> bool {
    let versions: Vec<VersionId> = automations::active()
        .into_iter()
        .filter(|active| stranger(active.owner))
        .map(|active| active.version_id)
        .collect();
    let reads_state = format!("state.{kind}");
    let names = |document: &str| {
        document.contains(&reads_state) || compile_stored(document).is_ok_and(|program| program.names_kind(kind))
    };
    automations::versions(&versions).iter().any(|version| names(&version.document))
        || wakes::listeners_of_kind(kind).into_iter().any(stranger)
}
