//! A user's statement: prepared once with the parameter types it asks for, run with values bound, results as JSON.
//!
//! Everything here runs inside a subtransaction of the caller's: an error leaves SPI to be cleaned up by its rollback.
use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::catch::{PgError, catch};
use super::encode::{Encoding, LeftOut, write_string};
use super::parameter_types::{self, Origin, OwnType};
use super::raw::unguarded;
use super::server_text;
use super::writes::Write;

/// A parameter as text of the database, in the form the type's input function reads, or null.
pub type Parameter = Option<CString>;

/// A kept plan. Freed when dropped.
pub struct Statement {
    plan: pg_sys::SPIPlanPtr,
    types: Vec<pg_sys::Oid>,
    /// Where each type comes from.
    origins: Vec<Origin>,
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: the plan was kept by `prepare` and belongs to this value alone.
        unsafe {
            pg_sys::SPI_freeplan(self.plan);
        }
    }
}

/// The result of a statement.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Rows processed, as a command tag would count them.
    pub count: u64,
    /// Returned rows, each a JSON object in the database's encoding; fewer than `count` if a limit was reached.
    pub rows: Vec<Vec<u8>>,
    /// Rows are missing, or values in them that are nested too deeply.
    pub truncated: bool,
}

/// Opens SPI for the life of the value. Not closed when an error unwinds: the subtransaction's rollback does that.
pub struct Spi(());

impl Spi {
    pub fn open() -> Self {
        // SAFETY: pairs with `close`, or with the rollback of the surrounding subtransaction.
        unsafe { pg_sys::SPI_connect() };
        Spi(())
    }

    pub fn close(self) {
        // SAFETY: pairs with `open`.
        unsafe { pg_sys::SPI_finish() };
    }
}

impl Statement {
    /// Prepares `sql`, whose parameters are $1 to $n. A parameter gets the type that its place in the statement asks
    /// for, and text where nothing does.
    pub fn prepare(spi: &Spi, sql: &str, parameters: usize) -> Result<Self, PgError> {
        let text = server_text::c_string(sql)?;
        let types = parameter_types::of_places(&text, parameters)?;
        Self::with_types(spi, &text, types, vec![Origin::Place; parameters])
    }

    /// Prepares `sql` for values of these types. A parameter gets the type that its place in the statement asks for,
    /// and the type of its value where the place asks for none.
    pub fn prepare_for(spi: &Spi, sql: &str, own: &[OwnType]) -> Result<Self, PgError> {
        let text = server_text::c_string(sql)?;
        let (types, origins) = parameter_types::of_values(&text, own)?.into_iter().unzip();
        Self::with_types(spi, &text, types, origins)
    }

    /// Was the statement prepared for values like these?
    pub fn suits(&self, mut own: impl FnMut(usize) -> OwnType) -> bool {
        self.origins.iter().zip(&self.types).enumerate().all(|(i, (origin, type_oid))| match origin {
            Origin::Place => true,
            Origin::Plain => own(i).plain == *type_oid,
            Origin::Choice => own(i).choices.contains(type_oid),
        })
    }

    fn with_types(_spi: &Spi, text: &CStr, mut types: Vec<pg_sys::Oid>, origins: Vec<Origin>) -> Result<Self, PgError> {
        // SAFETY: one C call with pointers that outlive it.
        let plan = unsafe {
            let (source, count, oids) = (text.as_ptr(), types.len() as i32, types.as_mut_ptr());
            catch(|| unguarded::SPI_prepare(source, count, oids))?
        };
        if plan.is_null() {
            // SAFETY: reads a global set by the failed call.
            return Err(spi_error(unsafe { pg_sys::SPI_result }));
        }
        // SAFETY: the plan was just made, and is now kept until Drop.
        let refused = unsafe {
            pg_sys::SPI_keepplan(plan);
            refusal(plan, text)
        };
        let statement = Statement { plan, types, origins };
        refused.map_or(Ok(statement), Err)
    }

    /// The tables that the statement writes when it runs, apart from writes by triggers and functions.
    pub fn writes(&self) -> Vec<Write> {
        // SAFETY: a kept plan.
        unsafe { super::writes::of_plan(self.plan) }
    }

    /// The type each parameter was given.
    pub fn types(&self) -> &[pg_sys::Oid] {
        &self.types
    }

    /// The plan itself, for `query_pages`, which reads its rows page by page.
    pub(super) fn plan(&self) -> pg_sys::SPIPlanPtr {
        self.plan
    }

    /// The parameters as a list for the executor.
    ///
    /// # Safety
    /// Call inside SPI; the list lives in the current memory context.
    pub(super) unsafe fn bound(&self, parameters: &[Parameter]) -> Result<pg_sys::ParamListInfo, PgError> {
        // SAFETY: the list has exactly as many entries as the plan has parameters.
        unsafe {
            let list = pg_sys::makeParamList(self.types.len() as i32);
            for (i, (&type_oid, parameter)) in self.types.iter().zip(parameters).enumerate() {
                let slot = (*list).params.as_mut_ptr().add(i);
                (*slot).ptype = type_oid;
                (*slot).pflags = pg_sys::PARAM_FLAG_CONST as u16;
                (*slot).isnull = parameter.is_none();
                (*slot).value = match parameter {
                    Some(text) => input(type_oid, text)?,
                    None => pg_sys::Datum::from(0usize),
                };
            }
            Ok(list)
        }
    }

    /// Runs the statement. At most `max_rows` rows and `max_bytes` of JSON are kept of its result.
    pub fn execute(
        &self,
        _spi: &Spi,
        parameters: &[Parameter],
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Outcome, PgError> {
        // SAFETY: the tuple table is read before SPI is closed.
        unsafe {
            let list = self.bound(parameters)?;
            let options = pg_sys::SPIExecuteOptions {
                params: list,
                read_only: false,
                ..std::mem::zeroed::<pg_sys::SPIExecuteOptions>()
            };
            let (plan, options) = (self.plan, &raw const options);
            let code = catch(|| unguarded::SPI_execute_plan_extended(plan, options))?;
            if code < 0 {
                return Err(spi_error(code));
            }
            Ok(collect(max_rows, max_bytes))
        }
    }
}

/// Why a statement that parses can never run as a step.
unsafe fn refusal(plan: pg_sys::SPIPlanPtr, text: &CStr) -> Option<PgError> {
    // SAFETY: a valid plan; its sources and their parse trees live as long as it does.
    let trees: Vec<*mut pg_sys::RawStmt> = unsafe {
        let sources = pgrx::PgList::<pg_sys::CachedPlanSource>::from_pg(pg_sys::SPI_plan_get_plan_sources(plan));
        let trees = sources.iter_ptr().map(|source| (*source).raw_parse_tree).collect();
        // the list belongs to the plan
        std::mem::forget(sources);
        trees
    };
    if trees.is_empty() {
        return Some(PgError::new("42601", "there is no statement"));
    }
    trees.into_iter().filter(|tree| !tree.is_null()).find_map(|tree| {
        // SAFETY: as above; a node is read as the type that its tag names.
        let (code, at) = unsafe {
            let node = (*tree).stmt;
            let code = match (*node).type_ {
                // COMMIT and the like are left to the run that tries them: inside DO or CALL they cannot be seen
                // either.
                pg_sys::NodeTag::T_CopyStmt if (*node.cast::<pg_sys::CopyStmt>()).filename.is_null() => {
                    pg_sys::SPI_ERROR_COPY
                }
                _ => return None,
            };
            (code, (*tree).stmt_location.max(0) as usize)
        };
        let (before, rest) = text.to_bytes().split_at_checked(at)?;
        let blanks = rest.len() - rest.trim_ascii_start().len();
        let position = Some(server_text::read(before).chars().count() + blanks + 1);
        Some(PgError { position, ..spi_error(code) })
    })
}

/// The value that the input function of a type reads from a text.
pub(super) fn input(type_oid: pg_sys::Oid, text: &CStr) -> Result<pg_sys::Datum, PgError> {
    // SAFETY: the input function of the type itself, called with a C string.
    unsafe {
        let (mut function, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        pg_sys::getTypeInputInfo(type_oid, &mut function, &mut parameter);
        let source = text.as_ptr().cast_mut();
        catch(|| unguarded::OidInputFunctionCall(function, source, parameter, -1))
    }
}

unsafe fn collect(max_rows: usize, max_bytes: usize) -> Outcome {
    // SAFETY: called right after SPI_execute; the tuple table is valid until SPI_finish.
    unsafe {
        let mut outcome = Outcome { count: pg_sys::SPI_processed, ..Default::default() };
        let table = pg_sys::SPI_tuptable;
        if table.is_null() {
            return outcome;
        }
        let descriptor = (*table).tupdesc;
        let columns = columns_of(descriptor);
        let mut bytes = 0;
        for i in 0..(*table).numvals as usize {
            if outcome.rows.len() >= max_rows || bytes >= max_bytes {
                outcome.truncated = true;
                break;
            }
            let tuple = *(*table).vals.add(i);
            // No value is more than eight times as long as its JSON (an array of bigint); a row that cannot fit is not
            // encoded.
            if (*tuple).t_len as usize / 8 > max_bytes {
                outcome.truncated = true;
                break;
            }
            let (row, left_out) = encode_row(tuple, descriptor, &columns);
            outcome.truncated |= left_out.is_some();
            bytes += row.len();
            if bytes > max_bytes {
                outcome.truncated = true;
                break;
            }
            outcome.rows.push(row);
        }
        pg_sys::SPI_freetuptable(table);
        outcome
    }
}

/// The columns of a result: each name as a JSON text, and how its values are written.
pub(super) unsafe fn columns_of(descriptor: pg_sys::TupleDesc) -> Vec<(Vec<u8>, Encoding)> {
    // SAFETY: a valid descriptor.
    let column = |i| unsafe {
        let attribute = super::raw::attribute(descriptor, i);
        let mut name = Vec::new();
        write_string(&mut name, CStr::from_ptr((*attribute).attname.data.as_ptr()).to_bytes());
        (name, Encoding::of_type((*attribute).atttypid))
    };
    // SAFETY: as above.
    (0..unsafe { (*descriptor).natts } as usize).map(column).collect()
}

/// A row as a JSON object. A value that is too large or nested too deeply is null, and the reason is returned.
pub(super) unsafe fn encode_row(
    tuple: pg_sys::HeapTuple,
    descriptor: pg_sys::TupleDesc,
    columns: &[(Vec<u8>, Encoding)],
) -> (Vec<u8>, Option<LeftOut>) {
    let (mut out, mut left_out) = (Vec::with_capacity(64), None);
    out.push(b'{');
    for (i, (name, encoding)) in columns.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        let mut null = false;
        // SAFETY: the tuple was formed with this descriptor, the attribute number is within it.
        let value = unsafe { pg_sys::SPI_getbinval(tuple, descriptor, i as i32 + 1, &mut null) };
        let start = out.len();
        let written = if null { None } else { Some(encoding.write(value, &mut out)) };
        if let Some(Err(reason)) = written {
            out.truncate(start);
            left_out = Some(reason);
        }
        if !matches!(written, Some(Ok(()))) {
            out.extend_from_slice(b"null");
        }
    }
    out.push(b'}');
    (out, left_out)
}

pub(super) fn spi_error(code: i32) -> PgError {
    match code {
        pg_sys::SPI_ERROR_TRANSACTION => PgError {
            hint: Some("Leave transaction control to the engine: a step and its bookkeeping commit together.".into()),
            ..PgError::new("2D000", "a step cannot begin, commit or roll back a transaction")
        },
        pg_sys::SPI_ERROR_COPY => PgError {
            hint: Some("Use COPY with a file or a program, or INSERT ... SELECT.".into()),
            ..PgError::new("0A000", "a step cannot use COPY with the client's standard input or output")
        },
        other => PgError::new("XX000", format!("SPI error {other}")),
    }
}
