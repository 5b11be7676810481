//! The role that the current statement runs as.
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

/// Was `role` made a member of `other`, directly or through other roles? Being a superuser does not count.
pub fn was_made_member(role: pg_sys::Oid, other: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::is_member_of_role_nosuper(role, other) }
}

/// May `role` read any file that the server can read?
pub fn may_read_server_files(role: pg_sys::Oid) -> bool {
    has_role(role, pg_sys::Oid::from(pg_sys::ROLE_PG_READ_SERVER_FILES))
}

/// Runs an engine statement of ours with the rights of the extension's owner and with a search path that no user can
/// put objects into. Only for statements over our own tables with values of built-in types.
pub fn as_engine<R>(work: impl FnOnce() -> R) -> R {
    let _pinned = Pinned::engine();
    let _user = switch_to(names::engine_owner(), 0);
    work()
}

/// Runs `work` with the rights of `role`, for callers that drive another role's automations by hand. Postgres then
/// refuses every command that would undo the switch (RESET ROLE) or outlive it and run as the caller later: deferred
/// triggers, temporary objects, prepared statements, cursors with hold. Without effect in a process that logged in as
/// `role` and is that role now, as an executor is: no other rights are there to be got.
pub fn as_role<R>(role: pg_sys::Oid, work: impl FnOnce() -> R) -> R {
    let _user = (!is_throughout(role)).then(|| switch_to(role, pg_sys::SECURITY_RESTRICTED_OPERATION));
    work()
}

/// Is `role` the one that logged in, that of the session, and the current one? SET ROLE and SET SESSION AUTHORIZATION
/// change the latter two and can be undone by RESET.
fn is_throughout(role: pg_sys::Oid) -> bool {
    // SAFETY: reads process globals, which are set in every process with a database.
    let logged_in = unsafe { [pg_sys::GetAuthenticatedUserId(), pg_sys::GetSessionUserId(), outer_user()] };
    role == current_user() && logged_in.into_iter().all(|user| user == role)
}

/// The attributes of a role that a log-in to this database asks for.
pub struct LoginRights {
    pub name: String,
    pub superuser: bool,
    pub can_login: bool,
    /// The role's VALID UNTIL has passed.
    pub has_expired: bool,
    /// The role's CONNECTION LIMIT is 0.
    pub without_connections: bool,
    /// The role has the privilege CONNECT on this database.
    pub can_connect: bool,
}

/// None if the role does not exist.
pub fn login_rights(role: pg_sys::Oid) -> Option<LoginRights> {
    use pg_sys::SysCacheIdentifier::AUTHOID;
    // SAFETY: catalog look-ups inside a transaction; the tuple is released after its fields were copied.
    unsafe {
        // Changes that other sessions have committed; otherwise they would be heard of with the next lock only.
        pg_sys::AcceptInvalidationMessages();
        let tuple = pg_sys::SearchSysCache1(AUTHOID as i32, pg_sys::Datum::from(role));
        if tuple.is_null() {
            return None;
        }
        let form = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_authid>();
        let column = pg_sys::Anum_pg_authid_rolvaliduntil as pg_sys::AttrNumber;
        let mut for_ever = false;
        let until = pg_sys::SysCacheGetAttr(AUTHOID as i32, tuple, column, &mut for_ever);
        let rights = LoginRights {
            name: super::server_text::read_c(std::ffi::CStr::from_ptr(form.rolname.data.as_ptr())),
            superuser: form.rolsuper,
            can_login: form.rolcanlogin,
            has_expired: !for_ever && (until.value() as i64) < super::clock::now(),
            without_connections: form.rolconnlimit == 0 && !form.rolsuper,
            can_connect: may_connect(role),
        };
        pg_sys::ReleaseSysCache(tuple);
        Some(rights)
    }
}

/// Has the role the privilege CONNECT on this database?
fn may_connect(role: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups.
    unsafe {
        #[cfg(feature = "pg15")]
        let answer = pg_sys::pg_database_aclcheck(pg_sys::MyDatabaseId, role, pg_sys::ACL_CONNECT as pg_sys::AclMode);
        #[cfg(not(feature = "pg15"))]
        let answer = pg_sys::object_aclcheck(
            pg_sys::DatabaseRelationId,
            pg_sys::MyDatabaseId,
            role,
            pg_sys::ACL_CONNECT as pg_sys::AclMode,
        );
        answer == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// May the current user learn which role something belongs to, where only its owner's members see the thing itself?
pub fn may_name(role: pg_sys::Oid) -> bool {
    let user = current_user();
    has_role(user, role) || has_role(user, pg_sys::Oid::from(pg_sys::ROLE_PG_MONITOR))
}

pub fn role_by_name(name: &str) -> Option<pg_sys::Oid> {
    // A letter that the database's encoding lacks is in no name.
    let text = super::server_text::c_string(name).ok()?;
    // SAFETY: a catalog look-up by a NUL-terminated name.
    let oid = unsafe { pg_sys::get_role_oid(text.as_ptr(), true) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Could `member` SET ROLE to `role`? From PostgreSQL 16 on a membership may be granted WITH SET FALSE.
pub fn can_become(member: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    #[cfg(feature = "pg15")]
    use pg_sys::is_member_of_role as can_set_role;
    #[cfg(not(feature = "pg15"))]
    use pg_sys::member_can_set_role as can_set_role;
    // SAFETY: a catalog look-up.
    unsafe { can_set_role(member, role) }
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
