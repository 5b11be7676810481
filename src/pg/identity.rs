//! Who the current statement runs as.
use pgrx::pg_sys;

use super::names;
use super::settings::Pinned;

/// Restores the user when dropped, also when an error unwinds.
struct Restore {
    user: pg_sys::Oid,
    context: i32,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: plain assignment of two process globals.
        unsafe { pg_sys::SetUserIdAndSecContext(self.user, self.context) }
    }
}

fn switch_to(role: pg_sys::Oid, restrictions: u32) -> Restore {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: reads and assigns two process globals; the guard puts them back.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(role, context | (pg_sys::SECURITY_LOCAL_USERID_CHANGE | restrictions) as i32);
    }
    Restore { user, context }
}

pub fn current_user() -> pg_sys::Oid {
    // SAFETY: reads a process global.
    unsafe { pg_sys::GetUserId() }
}

pub fn is_superuser(role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::superuser_arg(role) }
}

/// Does `member` have the rights of `role`?
pub fn has_role(member: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::has_privs_of_role(member, role) }
}

/// Runs an engine statement of ours with the rights of the extension's owner and with a search path that no user can
/// put objects into. Only for statements over our own tables with values of built-in types.
pub fn as_engine<R>(work: impl FnOnce() -> R) -> R {
    let _pinned = Pinned::engine();
    let _user = switch_to(names::engine_owner(), 0);
    work()
}

/// Runs `work` with the rights of `role`, for callers that drive another role's automations by hand. Postgres then
/// refuses whatever would outlive the switch and run as the caller later: deferred triggers, temporary objects,
/// prepared statements, cursors with hold.
pub fn as_role<R>(role: pg_sys::Oid, work: impl FnOnce() -> R) -> R {
    let _user = (role != current_user()).then(|| switch_to(role, pg_sys::SECURITY_RESTRICTED_OPERATION));
    work()
}

pub fn role_by_name(name: &str) -> Option<pg_sys::Oid> {
    let text = std::ffi::CString::new(name).ok()?;
    // SAFETY: a catalog look-up by a NUL-terminated name.
    let oid = unsafe { pg_sys::get_role_oid(text.as_ptr(), true) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Could `member` SET ROLE to `role`?
pub fn can_become(member: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::is_member_of_role(member, role) }
}

/// The role of the session, or the one it has set; not that of a function that runs with its owner's rights.
pub fn outer_user() -> pg_sys::Oid {
    // SAFETY: reads a process global.
    unsafe { super::raw::unguarded::GetOuterUserId() }
}

/// May `role` read the whole table: USAGE on its schema and SELECT on the table? SELECT on some columns is not enough,
/// since events carry them all. A table that is gone has nothing left to protect.
pub fn may_read(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups.
    unsafe {
        pg_sys::get_rel_relkind(relation) == 0
            || (pg_sys::pg_class_aclcheck(relation, role, pg_sys::ACL_SELECT) == pg_sys::AclResult::ACLCHECK_OK
                && may_use_schema_of(relation, role))
    }
}

/// May `role` name the objects of the schema that the table is in?
pub fn may_use_schema_of(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups.
    unsafe {
        let schema = pg_sys::get_rel_namespace(relation);
        pg_sys::pg_namespace_aclcheck(schema, role, pg_sys::ACL_USAGE) == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// Do row security policies of the table decide which of its rows `role` may read?
pub fn sees_some_rows_only(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up that raises nothing, as its last argument asks.
    unsafe {
        pg_sys::check_enable_rls(relation, role, true) == pg_sys::CheckEnableRlsResult::RLS_ENABLED as std::ffi::c_int
    }
}

/// May the current user see statistics of all roles, as in pg_stat_activity? Superusers and members of pg_monitor may.
pub fn sees_all_statistics() -> bool {
    has_role(current_user(), pg_sys::Oid::from(PG_READ_ALL_STATS))
}

/// The role pg_read_all_stats, which has the same oid in every cluster; pg_monitor is a member of it.
const PG_READ_ALL_STATS: u32 = 3375;
