//! Read-only transactions, and default_transaction_read_only as a session that logs in now would get it. That is asked
//! of the catalog, because a worker's own session keeps the value that it got when it began.
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;

use pgrx::pg_sys;

use super::process::my_database;
use super::{clock, names};

/// The oids of pg_db_role_setting and of its index on (setdatabase, setrole), the same in every version.
const RELATION: u32 = 2964;
const INDEX: u32 = 2965;
const SETDATABASE: i16 = 1;
const SETROLE: i16 = 2;
const SETCONFIG: usize = 3;

const ENTRY: &[u8] = b"default_transaction_read_only=";

/// Raises the error of an INSERT in a read-only transaction, if this is one.
pub fn refuse_insert() {
    // SAFETY: reads a flag of the transaction under way; the name is NUL-terminated.
    unsafe { pg_sys::PreventCommandIfReadOnly(c"INSERT".as_ptr()) }
}

/// Where the setting is on for the whole database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    System,
    AllRoles,
    Database,
}

impl Level {
    /// For messages: the level at which the setting is on, and the command that ends it.
    pub fn words(self) -> (String, String) {
        match self {
            Level::System => (
                "the server".to_owned(),
                "ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()".to_owned(),
            ),
            Level::AllRoles => {
                ("all roles".to_owned(), "ALTER ROLE ALL RESET default_transaction_read_only".to_owned())
            }
            Level::Database => {
                let name = names::database_name(my_database());
                let quoted = names::quote_identifier(&name);
                (format!("database \"{name}\""), format!("ALTER DATABASE {quoted} RESET default_transaction_read_only"))
            }
        }
    }
}

/// Has the whole database the setting on? Then no worker writes. The order is that of a log-in: the database's setting
/// decides, else that of all roles, else the server's, which the launcher has read.
pub fn frozen(server: impl FnOnce() -> bool) -> Option<Level> {
    let database = stored(my_database(), pg_sys::InvalidOid).map(|on| (on, Level::Database));
    let all = || stored(pg_sys::InvalidOid, pg_sys::InvalidOid).map(|on| (on, Level::AllRoles));
    let (on, level) = database.or_else(all).unwrap_or_else(|| (server(), Level::System));
    on.then_some(level)
}

/// Has the role the setting on, in this database or in every database?
pub fn of_role(role: pg_sys::Oid) -> bool {
    stored(my_database(), role).or_else(|| stored(pg_sys::InvalidOid, role)).unwrap_or_default()
}

/// The setting in the configuration of the server. Only for the launcher, whose session has no database and so no
/// settings of one.
pub fn of_server() -> bool {
    // SAFETY: reads a setting of this process.
    unsafe { pg_sys::DefaultXactReadOnly }
}

/// How long, in microseconds, a worker relies on the value that it has read: it asks before every step, and a look-up
/// costs.
const BELIEVED: i64 = 100_000;

/// The value that was read last for a database and a role, and when.
type Read = HashMap<(pg_sys::Oid, pg_sys::Oid), (Option<bool>, i64)>;
thread_local!(static READ: RefCell<Read> = RefCell::new(HashMap::new()));

/// The setting of a database (or of all databases) and a role (or of all roles). Sessions of users look it up each
/// time.
fn stored(database: pg_sys::Oid, role: pg_sys::Oid) -> Option<bool> {
    // SAFETY: reads a process global.
    if unsafe { pg_sys::MyBackendType } != pg_sys::BackendType::B_BG_WORKER {
        return look_up(database, role);
    }
    let (key, now) = ((database, role), clock::passed());
    let known = READ.with(|read| read.borrow().get(&key).filter(|(_, at)| now - at < BELIEVED).map(|(on, _)| *on));
    known.unwrap_or_else(|| {
        let on = look_up(database, role);
        READ.with(|read| read.borrow_mut().insert(key, (on, now)));
        on
    })
}

/// The setting as ALTER DATABASE and ALTER ROLE store it.
fn look_up(database: pg_sys::Oid, role: pg_sys::Oid) -> Option<bool> {
    let mut found = None;
    // SAFETY: a scan of a shared catalog by its index inside a transaction; values that are read from a row are copied
    // before the scan goes on.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::Oid::from(RELATION), pg_sys::AccessShareLock as i32);
        let mut keys = [pg_sys::ScanKeyData::default(); 2];
        for (key, (column, value)) in keys.iter_mut().zip([(SETDATABASE, database), (SETROLE, role)]) {
            let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
            pg_sys::ScanKeyInit(key, column, equal, pg_sys::Oid::from(pg_sys::F_OIDEQ), pg_sys::Datum::from(value));
        }
        let scan = pg_sys::systable_beginscan(
            relation,
            pg_sys::Oid::from(INDEX),
            true,
            std::ptr::null_mut(),
            2,
            keys.as_mut_ptr(),
        );
        let tuple = pg_sys::systable_getnext(scan);
        if !tuple.is_null() {
            let column = std::num::NonZeroUsize::new(SETCONFIG).unwrap_or(std::num::NonZeroUsize::MIN);
            found = pgrx::htup::heap_getattr_raw(tuple, column, (*relation).rd_att).and_then(|array| entry(array));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
    found
}

/// The value of default_transaction_read_only in an array of texts `name=value`.
///
/// # Safety
/// `array` is a text[] that lives during the call.
unsafe fn entry(array: pg_sys::Datum) -> Option<bool> {
    // SAFETY: the array is taken apart as the text[] that it is; the texts in it are stored in line.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            pg_sys::TEXTOID,
            -1,
            false,
            pg_sys::TYPALIGN_INT as std::ffi::c_char,
            &mut values,
            &mut nulls,
            &mut count,
        );
        let values = std::slice::from_raw_parts(values, usize::try_from(count).unwrap_or_default());
        values.iter().find_map(|value| {
            let text = value.cast_mut_ptr::<pg_sys::varlena>();
            let bytes = std::slice::from_raw_parts(pgrx::vardata_any(text).cast::<u8>(), pgrx::varsize_any_exhdr(text));
            let word = CString::new(bytes.strip_prefix(ENTRY)?).ok()?;
            let mut on = false;
            pg_sys::parse_bool(word.as_ptr(), &mut on).then_some(on)
        })
    }
}
