//! A user's query, read page by page: one snapshot for all of it, one page in memory at a time, and nothing that it
//! calls may write.
//!
//! As with `statement`, everything here runs inside a subtransaction of the caller's.
use std::collections::HashSet;

use pgrx::pg_sys;

use super::catch::{PgError, catch};
use super::encode::LeftOut;
use super::parameter_types::OwnType;
use super::raw::{self, unguarded};
use super::server_text;
use super::settings::Pinned;
use super::statement::{Parameter, Spi, Statement, columns_of, encode_row, spi_error};

/// Rows that are in memory at the same time.
const PAGE: std::ffi::c_long = 1000;

/// A column of a query's result.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// The column of a table that this column of the result shows, if it shows one: table and name.
    pub origin: Option<(pg_sys::Oid, String)>,
}

/// One row of a page as JSON, or why it cannot be kept.
pub type PageRow = Result<Vec<u8>, LeftOut>;

/// Prepares a query and returns its columns. Refuses a statement that is no query, or would write.
pub fn prepare(spi: &Spi, sql: &str, own: &[OwnType]) -> Result<(Statement, Vec<Column>), PgError> {
    let statement = Statement::prepare_for(spi, sql, own)?;
    // SAFETY: the plan lives as long as the statement; its sources and their trees belong to it.
    let columns = unsafe { columns(statement.plan())? };
    Ok((statement, columns))
}

unsafe fn columns(plan: pg_sys::SPIPlanPtr) -> Result<Vec<Column>, PgError> {
    // SAFETY: as above; lists that belong to the plan are not freed.
    unsafe {
        let sources = pgrx::PgList::<pg_sys::CachedPlanSource>::from_pg(pg_sys::SPI_plan_get_plan_sources(plan));
        let (count, source) = (sources.len(), sources.get_ptr(0));
        std::mem::forget(sources);
        let Some(source) = source.filter(|_| count == 1) else {
            return Err(PgError {
                detail: Some(format!("It has {count} statements.")),
                ..PgError::new("42601", "the query must be one statement")
            });
        };
        let queries = pgrx::PgList::<pg_sys::Query>::from_pg((*source).query_list);
        let query = queries.get_ptr(0);
        std::mem::forget(queries);
        let Some(query) = query.filter(|_| !(*source).resultDesc.is_null()) else { return Err(no_query()) };
        if (*query).commandType == pg_sys::CmdType::CMD_UTILITY {
            return Err(no_query());
        }
        if (*query).commandType != pg_sys::CmdType::CMD_SELECT || (*query).hasModifyingCTE {
            return Err(PgError {
                hint: Some("Let the steps do that, row by row.".into()),
                ..PgError::new("25006", "the query must not change data")
            });
        }
        let targets = pgrx::PgList::<pg_sys::TargetEntry>::from_pg((*query).targetList);
        let shown: Vec<*mut pg_sys::TargetEntry> = targets.iter_ptr().filter(|target| !(**target).resjunk).collect();
        std::mem::forget(targets);
        let columns: Vec<Column> = (0..(*(*source).resultDesc).natts as usize)
            .map(|i| {
                let attribute = raw::attribute((*source).resultDesc, i);
                let name = server_text::read_c(std::ffi::CStr::from_ptr((*attribute).attname.data.as_ptr()));
                let origin = shown.get(i).and_then(|target| origin((**target).resorigtbl, (**target).resorigcol));
                Column { name, origin }
            })
            .collect();
        if columns.is_empty() {
            return Err(PgError::new("42P10", "the query returns no columns"));
        }
        let mut seen = HashSet::new();
        match columns.iter().find(|column| !seen.insert(column.name.as_str())) {
            Some(twice) => Err(PgError {
                hint: Some("Give each column a name of its own with AS.".into()),
                ..PgError::new("42701", format!("column \"{}\" is in the query's result twice", twice.name))
            }),
            None => Ok(columns),
        }
    }
}

/// Table and name of a column that a query shows.
fn origin(table: pg_sys::Oid, number: i16) -> Option<(pg_sys::Oid, String)> {
    if table == pg_sys::InvalidOid {
        return None;
    }
    // SAFETY: a catalog look-up; the name is a palloc'd C string, or null if there is no such column.
    unsafe {
        let name = pg_sys::get_attname(table, number, true);
        (!name.is_null()).then(|| (table, server_text::read_c(std::ffi::CStr::from_ptr(name))))
    }
}

fn no_query() -> PgError {
    PgError {
        hint: Some("Give a SELECT, a VALUES or a WITH ... SELECT.".into()),
        ..PgError::new("42601", "the statement returns no rows")
    }
}

/// Makes the transaction read-only while it lives, for the writes that Postgres checks itself: statements, sequences,
/// DDL.
struct ReadOnly(bool);

impl ReadOnly {
    fn begin() -> Self {
        // SAFETY: a process global; rolling back the surrounding subtransaction would restore it as well.
        unsafe {
            let before = pg_sys::XactReadOnly;
            pg_sys::XactReadOnly = true;
            ReadOnly(before)
        }
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::XactReadOnly = self.0 }
    }
}

/// Starts the query without reading a row: are the rights and objects there that it needs?
pub fn try_out(_spi: &Spi, statement: &Statement, parameters: &[Parameter]) -> Result<(), PgError> {
    let _read_only = ReadOnly::begin();
    // SAFETY: the portal is closed before SPI is, or by the rollback of the subtransaction.
    unsafe {
        let portal = open(statement, parameters)?;
        pg_sys::SPI_cursor_close(portal);
    }
    Ok(())
}

unsafe fn open(statement: &Statement, parameters: &[Parameter]) -> Result<pg_sys::Portal, PgError> {
    // SAFETY: one C call with pointers that outlive it.
    unsafe {
        let (plan, list) = (statement.plan(), statement.bound(parameters)?);
        catch(|| unguarded::SPI_cursor_open_with_paramlist(std::ptr::null(), plan, list, false))
    }
}

/// Runs the query and hands its rows over, page by page. A row of more than `most` bytes, or with a
/// value that is nested too deeply, is not handed over.
pub fn each_page(
    _spi: &Spi,
    statement: &Statement,
    parameters: &[Parameter],
    most: usize,
    mut take: impl FnMut(Vec<PageRow>) -> Result<(), PgError>,
) -> Result<(), PgError> {
    // SAFETY: the portal and the memory of a page are closed before SPI is, or by the rollback of the subtransaction;
    // the tuple table is read before the next fetch.
    unsafe {
        let portal = {
            let _read_only = ReadOnly::begin();
            open(statement, parameters)?
        };
        let memory = pg_sys::AllocSetContextCreateExtended(
            pg_sys::CurrentMemoryContext,
            c"automation_engine page of rows".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        loop {
            {
                let _read_only = ReadOnly::begin();
                catch(|| unguarded::SPI_cursor_fetch(portal, true, PAGE))?;
            }
            let (table, count) = (pg_sys::SPI_tuptable, pg_sys::SPI_processed as usize);
            if table.is_null() {
                return Err(spi_error(pg_sys::SPI_result));
            }
            let outer = pg_sys::MemoryContextSwitchTo(memory);
            let rows = read(table, count, most);
            pg_sys::SPI_freetuptable(table);
            let taken = if rows.is_empty() { Ok(()) } else { take(rows) };
            pg_sys::MemoryContextSwitchTo(outer);
            pg_sys::MemoryContextReset(memory);
            taken?;
            pgrx::check_for_interrupts!();
            if count < PAGE as usize {
                break;
            }
        }
        pg_sys::SPI_cursor_close(portal);
        pg_sys::MemoryContextDelete(memory);
    }
    Ok(())
}

unsafe fn read(table: *mut pg_sys::SPITupleTable, count: usize, most: usize) -> Vec<PageRow> {
    // Values become text as they do in events, independent of the session's settings.
    let _output = Pinned::canonical_output();
    // SAFETY: the table holds so many tuples of its descriptor.
    unsafe {
        let descriptor = (*table).tupdesc;
        let columns = columns_of(descriptor);
        (0..count)
            .map(|i| {
                let tuple = *(*table).vals.add(i);
                // No value is more than eight times as long as its JSON; a row that cannot fit is not encoded.
                if (*tuple).t_len as usize / 8 > most {
                    return Err(LeftOut::TooLarge);
                }
                match encode_row(tuple, descriptor, &columns) {
                    (_, Some(reason)) => Err(reason),
                    (row, None) if row.len() > most => Err(LeftOut::TooLarge),
                    (row, None) => Ok(row),
                }
            })
            .collect()
    }
}
