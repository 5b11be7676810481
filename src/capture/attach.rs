//! watch_table() and unwatch_table(): creates and drops the capture triggers of a table.
#![allow(unsafe_code)]
use automation_core::order::Order;
use pgrx::pg_sys;

use super::naming::{self, Name};
use super::plan::{Watch, live_columns, primary_key};
use crate::error::{EngineError, EngineResult};
use crate::event_log::events::append_move;
use crate::pg::engine_sql::run_ddl;
use crate::pg::server_text;
use crate::pg::{identity, names, raw};
use crate::store::kinds::{self, Kind, ROW_TRIGGER, Watched};
use crate::store::{automations, log, wakes};

/// Row and truncate trigger.
const TRIGGERS: [&str; 2] = [ROW_TRIGGER, "!automation_engine_truncate"];

/// Arguments of watch_table().
pub struct Request {
    pub relation: pg_sys::Oid,
    pub kind: Option<String>,
    pub id_columns: Option<Vec<String>>,
    pub columns: Option<Vec<String>>,
    pub ignore: Vec<String>,
    pub tenant_column: Option<String>,
}

/// An open relation that is closed again when dropped; the lock stays until the transaction ends.
struct Opened(pg_sys::Relation);

impl Opened {
    fn new(relation: pg_sys::Oid) -> EngineResult<Self> {
        // SAFETY: takes the lock that CREATE TRIGGER will take, so that nothing changes in between.
        let opened = unsafe { pg_sys::try_relation_open(relation, pg_sys::ShareRowExclusiveLock as i32) };
        if opened.is_null() {
            return Err(EngineError::wrong_object(format!("relation with oid {} does not exist", relation.to_u32())));
        }
        Ok(Opened(opened))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: closes the relation that `new` opened.
        unsafe { pg_sys::relation_close(self.0, pg_sys::NoLock as i32) }
    }
}

/// Installs capture on a table. Returns the kind under which its rows are known.
pub fn watch(request: Request) -> EngineResult<String> {
    let opened = Opened::new(request.relation)?;
    let table = names::relation_name(request.relation).unwrap_or_default();
    check_relation(&opened, &table)?;
    check_rights(request.relation, &table)?;
    let kind = match &request.kind {
        Some(kind) => kind.clone(),
        // SAFETY: an open relation.
        None => server_text::read_c(unsafe { std::ffi::CStr::from_ptr((*(*opened.0).rd_rel).relname.data.as_ptr()) }),
    };
    // SAFETY: an open relation.
    let table_owner = unsafe { (*(*opened.0).rd_rel).relowner };
    let previous = kinds::find_by_relation(request.relation);
    check_kind(&kind, request.relation)?;
    let watch = resolve_columns(&opened, &table, kind, &request)?;
    drop(opened);

    let argument = serde_json::to_string(&watch).map_err(|error| EngineError::bug(error.to_string()))?;
    let installed = installed_argument(request.relation);
    if let Some(previous) = &previous {
        if previous.kind == watch.kind && installed.as_deref() == Some(argument.as_str()) {
            return Ok(watch.kind);
        }
        check_steward(previous, request.relation, &table)?;
    }
    if previous.as_ref().is_none_or(|previous| previous.kind != watch.kind) {
        // The kind of a table that was dropped may not be forgotten yet: it goes on with its own roles, and with them
        // alone.
        match naming::check(&watch.kind, Some(table_owner))? {
            Name::GoesOn => kinds::hand_on(&watch.kind, request.relation),
            Name::New => kinds::remove(&watch.kind),
        }
    }
    if let Some(previous) = &previous
        && previous.kind != watch.kind
    {
        kinds::remove(&previous.kind);
    }
    install_triggers(&table, &argument, previous.is_some() || installed.is_some());
    kinds::save(
        &Watched {
            kind: &watch.kind,
            relation: Some(request.relation),
            table_owner: Some(table_owner),
            table: Some(&table),
            id_columns: &watch.id,
            columns: watch.columns.as_deref(),
            ignored: &watch.ignore,
            tenant_column: watch.tenant.as_deref(),
        },
        identity::current_user(),
    );
    if kinds::find(&watch.kind).is_none_or(|kept| kept.relation != Some(request.relation)) {
        // Another session was quicker: its table, or its state, has the name now.
        return Err(EngineError::taken(format!("kind \"{}\" already exists", watch.kind))
            .hint("Give another with kind => 'name'."));
    }
    kinds::remember_partitions();
    automations::note_change();
    let was = previous.as_ref().map(|previous| &previous.kind);
    let told: serde_json::Value = serde_json::from_str(&argument).unwrap_or_default();
    log::audit("table.watched", "", &serde_json::json!({ "table": table, "watch": told, "was": was }));
    if previous.is_none() && wakes::is_awaited(&watch.kind) {
        // Runs wait for entities of this kind since it was watched before, and may have missed changes.
        append_move(&Order::Look { kind: watch.kind.clone() });
    }
    Ok(watch.kind)
}

/// Removes capture from a table; its recorded events stay.
pub fn unwatch(relation: pg_sys::Oid) -> EngineResult<bool> {
    let table = names::relation_name(relation).unwrap_or_default();
    let Some(kind) = kinds::find_by_relation(relation) else {
        check_rights(relation, &table)?;
        return Ok(false);
    };
    check_steward(&kind, relation, &table)?;
    drop_triggers(&table);
    kinds::remove(&kind.kind);
    automations::note_change();
    log::audit("table.unwatched", "", &serde_json::json!({ "table": table, "kind": kind.kind }));
    Ok(true)
}

/// Is the current user the role that watched the table, or its owner, or has the privileges of one of them? Only such a
/// role may change which columns are recorded: others rely on them.
pub fn is_steward(kind: &Kind, relation: pg_sys::Oid) -> bool {
    let user = identity::current_user();
    // SAFETY: a catalog look-up.
    identity::has_role(user, kind.owner) || unsafe { pg_sys::pg_class_ownercheck(relation, user) }
}

fn check_steward(kind: &Kind, relation: pg_sys::Oid, table: &str) -> EngineResult<()> {
    if is_steward(kind, relation) {
        return Ok(());
    }
    let watcher = names::role_name(kind.owner).unwrap_or_default();
    Err(EngineError::not_allowed(format!("must be owner of table {table}, or have watched it"))
        .detail(format!("It is watched as kind \"{}\" by \"{watcher}\".", kind.kind))
        .hint("What is recorded of a table is changed, or ended, by its owner or by the role that watched it."))
}

fn check_relation(opened: &Opened, table: &str) -> EngineResult<()> {
    // SAFETY: an open relation and its catalog entry.
    let (oid, class) = unsafe { ((*opened.0).rd_id, &*(*opened.0).rd_rel) };
    let refuse = |what: &str, hint: &str| {
        Err(EngineError::wrong_object(format!("cannot watch {what} {table}")).hint(hint.to_owned()))
    };
    let own_schema = table.starts_with("automation_internal.") || table.starts_with("automation.");
    // SAFETY: catalog look-ups.
    unsafe {
        match class.relkind as u8 {
            b'r' | b'p' => {}
            b'v' | b'm' => return refuse("view", "Watch the tables it reads from."),
            b'f' => {
                return refuse(
                    "foreign table",
                    "Changes made on the other server would not be seen; watch the table there.",
                );
            }
            _ => return refuse("relation", "Only tables and partitioned tables can be watched."),
        }
        if class.relpersistence as u8 == b't' {
            return refuse("temporary table", "It is visible to one session only; use a table that is not temporary.");
        }
        if pg_sys::IsSystemRelation(opened.0) || own_schema {
            return refuse("system table", "Watch tables of your application.");
        }
        if class.relispartition {
            let root = names::relation_name(super::plan::root_of(oid)).unwrap_or_default();
            return refuse(
                "partition",
                &format!("Watch the partitioned table: SELECT automation.watch_table('{root}')."),
            );
        }
        if class.relkind as u8 == b'r' && raw::has_subclass(oid) && has_children(oid) {
            return refuse("inheritance parent", "Watch each child table, or use declarative partitioning.");
        }
    }
    Ok(())
}

/// has_subclass may be true long after the last child is gone.
unsafe fn has_children(oid: pg_sys::Oid) -> bool {
    // SAFETY: a catalog scan that returns a list or null.
    unsafe { !raw::find_inheritance_children(oid, pg_sys::NoLock as i32).is_null() }
}

pub fn check_rights(relation: pg_sys::Oid, table: &str) -> EngineResult<()> {
    let user = identity::current_user();
    for (mode, name) in [(pg_sys::ACL_TRIGGER, "TRIGGER"), (pg_sys::ACL_SELECT, "SELECT")] {
        // SAFETY: a catalog look-up.
        let result = unsafe { pg_sys::pg_class_aclcheck(relation, user, mode) };
        if result != pg_sys::AclResult::ACLCHECK_OK {
            return Err(EngineError::not_allowed(format!("permission denied for table {table}"))
                .detail(format!("Watching a table needs the {name} privilege on it."))
                .hint(format!("GRANT TRIGGER, SELECT ON {table} TO {};", names::role_name(user).unwrap_or_default())));
        }
    }
    Ok(())
}

/// A kind is one segment of a topic.
pub fn check_kind_name(kind: &str) -> EngineResult<()> {
    let bad =
        kind.is_empty() || kind.len() > 200 || kind.contains(['.', '*', '#']) || kind.chars().any(char::is_control);
    if bad {
        return Err(EngineError::invalid(format!("invalid kind \"{kind}\""))
            .detail("A kind is one segment of a topic: not empty, at most 200 bytes, without \".\", \"*\", \"#\" and control characters.")
            .hint("Give one with kind => 'name'."));
    }
    if kind == "automation" || kind.starts_with('_') {
        return Err(
            EngineError::invalid(format!("kind \"{kind}\" is reserved")).hint("Give another with kind => 'name'.")
        );
    }
    Ok(())
}

fn check_kind(kind: &str, relation: pg_sys::Oid) -> EngineResult<()> {
    check_kind_name(kind)?;
    match kinds::find(kind) {
        Some(other) if other.relation != Some(relation) => {
            let another = "Give another with kind => 'name'.";
            let (holder, hint) = match other.relation {
                Some(oid) => match names::relation_name(oid) {
                    Some(table) => (format!("It is the kind of table {table}."), to_move(kind, oid, &table, relation)),
                    // The kind's table was dropped: the name is free.
                    None => return Ok(()),
                },
                None => ("It is a kind whose state is kept by set_state().".to_owned(), None),
            };
            Err(EngineError::taken(format!("kind \"{kind}\" already exists"))
                .detail(holder)
                .hint(hint.unwrap_or_else(|| another.to_owned())))
        }
        _ => Ok(()),
    }
}

/// How to give the kind of a table to the table that has taken over its name, as when a table is rebuilt and then
/// exchanged by renaming. None if the table still has the name under which it was watched.
fn to_move(kind: &str, holder: pg_sys::Oid, table: &str, wanted: pg_sys::Oid) -> Option<String> {
    let wanted = names::relation_name(wanted)?;
    (kinds::watched_as(holder)? == wanted).then(|| {
        let [table, wanted, kind] = [table, wanted.as_str(), kind].map(|text| text.replace('\'', "''"));
        format!(
            "It was watched when it had the name {wanted}. To go on with the table that has the name now: SELECT \
             automation.unwatch_table('{table}'); SELECT automation.watch_table('{wanted}', kind => '{kind}'). To keep both, \
             give another with kind => 'name'."
        )
    })
}

fn resolve_columns(opened: &Opened, table: &str, kind: String, request: &Request) -> EngineResult<Watch> {
    let live = live_columns(opened.0);
    let names: Vec<&str> = live.iter().map(|(_, name, ..)| name.as_str()).collect();
    let given = request.id_columns.iter().chain(&request.columns).flatten().chain(&request.ignore);
    for column in given.chain(&request.tenant_column) {
        if !names.contains(&column.as_str()) {
            let mut error = EngineError::undefined_column(column, table);
            if let Some(close) = automation_core::suggest::nearest(column, names.iter().copied()) {
                error = error.hint(format!("Did you mean \"{close}\"?"));
            }
            return Err(error);
        }
    }
    let id = match &request.id_columns {
        Some(columns) if !columns.is_empty() => columns.clone(),
        _ => {
            let key = primary_key(opened.0);
            live.iter().filter(|(i, ..)| key.contains(i)).map(|(_, name, ..)| name.clone()).collect()
        }
    };
    if id.is_empty() {
        return Err(EngineError::wrong_state(format!("table {table} has no primary key"))
            .detail("An entity needs an id that does not change.")
            .hint("Add a primary key, or name the columns that identify a row: id_columns => '{a,b}'."));
    }
    if let Some(ignored) = request.ignore.iter().find(|column| id.contains(column)) {
        return Err(EngineError::invalid(format!("column \"{ignored}\" is part of the id and cannot be ignored")));
    }
    let (columns, ignore) = (request.columns.clone(), request.ignore.clone());
    Ok(Watch { kind, id, columns, ignore, tenant: request.tenant_column.clone() })
}

/// The argument of the row trigger that is there now.
fn installed_argument(relation: pg_sys::Oid) -> Option<String> {
    let opened = Opened::new(relation).ok()?;
    // SAFETY: an open relation; its trigger descriptor and the strings in it live as long as it is open.
    unsafe {
        let triggers = (*opened.0).trigdesc;
        if triggers.is_null() {
            return None;
        }
        (0..(*triggers).numtriggers as usize)
            .map(|i| &*(*triggers).triggers.add(i))
            .find(|trigger| std::ffi::CStr::from_ptr(trigger.tgname).to_bytes() == ROW_TRIGGER.as_bytes())
            .filter(|trigger| trigger.tgnargs > 0)
            .map(|trigger| server_text::read_c(std::ffi::CStr::from_ptr(*trigger.tgargs)))
    }
}

fn install_triggers(table: &str, argument: &str, replace: bool) {
    if replace {
        drop_triggers(table);
    }
    let argument = pgrx::spi::quote_literal(argument);
    let [row, truncate] = TRIGGERS.map(names::quote_identifier);
    identity::as_engine(|| {
        run_ddl(&format!(
            "CREATE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON {table} \
             FOR EACH ROW EXECUTE FUNCTION automation_internal.capture_change({argument})"
        ));
        run_ddl(&format!(
            "CREATE TRIGGER {truncate} AFTER TRUNCATE ON {table} \
             FOR EACH STATEMENT EXECUTE FUNCTION automation_internal.capture_change({argument})"
        ));
        // So that DROP EXTENSION takes the triggers along instead of refusing.
        for trigger in [&row, &truncate] {
            run_ddl(&format!("ALTER TRIGGER {trigger} ON {table} DEPENDS ON EXTENSION automation_engine"));
        }
    });
}

fn drop_triggers(table: &str) {
    identity::as_engine(|| {
        for trigger in TRIGGERS {
            run_ddl(&format!("DROP TRIGGER IF EXISTS {} ON {table}", names::quote_identifier(trigger)));
        }
    });
}
