//! Catching a Postgres error with all its fields.
//!
//! pgrx turns an ERROR into a Rust panic that carries SQLSTATE, message, detail and hint, but neither the context nor
//! the position, and it knows only Postgres' own SQLSTATEs. A failed step must show all of them.
use std::ffi::{CStr, c_char};

use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::panic::CaughtError;

use super::{report, server_text};

/// The fields of an ERROR.
#[derive(Debug, Clone, Default)]
pub struct PgError {
    pub sqlstate: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    pub context: Option<String>,
    /// 1-based character position in the statement that was parsed, if the error points at one.
    pub position: Option<usize>,
}

impl PgError {
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Self {
        PgError { sqlstate: sqlstate.to_owned(), message: message.into(), ..Default::default() }
    }

    /// Errors that say "try again", and nothing about the statement: serialization, deadlock, lock timeout.
    pub fn is_transient(&self) -> bool {
        matches!(self.sqlstate.as_str(), "40001" | "40P01" | "55P03")
    }

    /// Raises it again as an ERROR of the surrounding transaction.
    pub fn raise(self) -> ! {
        report::convert_next_error(report::Texts {
            message: &self.message,
            detail: self.detail.as_deref(),
            hint: self.hint.as_deref(),
        });
        let mut report = pgrx::pg_sys::panic::ErrorReport::new(
            pgrx::PgSqlErrorCode::from(packed_sqlstate(&self.sqlstate)),
            self.message,
            "automation_engine",
        );
        if let Some(detail) = self.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint {
            report = report.set_hint(hint);
        }
        report.report(pgrx::PgLogLevel::ERROR);
        unreachable!("an ERROR does not return")
    }

    pub fn from_caught(error: CaughtError) -> Self {
        match error {
            CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => PgError {
                sqlstate: sqlstate_text(report.sql_error_code() as i32),
                message: report.message().to_owned(),
                detail: report.detail().map(str::to_owned),
                hint: report.hint().map(str::to_owned),
                ..Default::default()
            },
            CaughtError::RustPanic { ereport, .. } => PgError {
                sqlstate: "XX000".to_owned(),
                message: format!("automation_engine bug: {}", ereport.message()),
                detail: Some(format!("{}:{}", ereport.file(), ereport.line_number())),
                hint: Some("Please report this with the definition of the automation.".to_owned()),
                ..Default::default()
            },
        }
    }
}

/// The five characters of a packed SQLSTATE.
pub fn sqlstate_text(packed: i32) -> String {
    (0..5).map(|i| char::from((((packed >> (6 * i)) & 0x3f) as u8) + b'0')).collect()
}

/// The packed form of a SQLSTATE in text.
pub fn packed_sqlstate(text: &str) -> i32 {
    text.bytes().take(5).enumerate().map(|(i, byte)| i32::from(byte.wrapping_sub(b'0') & 0x3f) << (6 * i)).sum()
}

/// Runs `call`, which must do nothing but call one C function, and returns its ERROR if it raises one.
///
/// # Safety
/// `call` must not own anything with a destructor: an ERROR jumps over its frame. The caller must restore the
/// transaction (roll back a subtransaction, or re-raise) before it goes on.
pub unsafe fn catch<R: Copy>(call: impl FnOnce() -> R) -> Result<R, PgError> {
    server_text::prepare();
    // SAFETY: as PG_TRY does: the stacks are saved before, restored after, on both ways out.
    unsafe {
        let exceptions = pg_sys::PG_exception_stack;
        let contexts = pg_sys::error_context_stack;
        let memory = pg_sys::CurrentMemoryContext;
        let mut result: Option<R> = None;
        let slot = &raw mut result;
        let jumped = call_with_sigsetjmp(false, |buffer: &SigJmpBufFields| {
            pg_sys::PG_exception_stack = (buffer as *const SigJmpBufFields).cast_mut().cast();
            *slot = Some(call());
            0
        });
        pg_sys::PG_exception_stack = exceptions;
        pg_sys::error_context_stack = contexts;
        if jumped == 0
            && let Some(value) = result
        {
            return Ok(value);
        }
        pg_sys::CurrentMemoryContext = memory;
        let data = pg_sys::CopyErrorData();
        pg_sys::FlushErrorState();
        let error = from_error_data(&*data);
        pg_sys::FreeErrorData(data);
        Err(error)
    }
}

/// Runs `call`, which must do nothing but call C functions; an ERROR leaves it as a panic, as with pgrx's own guard,
/// which reads the texts of an error as UTF-8 regardless of the database's encoding.
///
/// # Safety
/// `call` must not own anything with a destructor.
pub unsafe fn guard<R: Copy>(call: impl FnOnce() -> R) -> R {
    // SAFETY: as demanded of the caller; the error is raised again at once.
    unsafe {
        if server_text::is_utf8() {
            return pg_guard_ffi_boundary(call);
        }
        catch(call).unwrap_or_else(|error| error.raise())
    }
}

fn from_error_data(data: &pg_sys::ErrorData) -> PgError {
    let position = match (data.cursorpos, data.internalpos) {
        (at, _) if at > 0 => Some(at as usize),
        (_, at) if at > 0 => Some(at as usize),
        _ => None,
    };
    PgError {
        sqlstate: sqlstate_text(data.sqlerrcode),
        message: text(data.message).unwrap_or_default(),
        detail: text(data.detail),
        hint: text(data.hint),
        context: text(data.context),
        position,
    }
}

fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: ErrorData's strings are NUL-terminated and live until FreeErrorData.
    Some(server_text::read_c(unsafe { CStr::from_ptr(pointer) }))
}
