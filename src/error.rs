//! The errors that a user can get, as Postgres reports them. The only file that names a SQLSTATE.
#![allow(unsafe_code)]
use std::ffi::CString;

use automation_core::expr::{ExprError, ExprErrorKind};
use automation_core::ids::RunId;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::catch::{PgError, packed_sqlstate};
use crate::pg::report::{self, Texts};
use crate::pg::{identity, names, server_text};

/// An error on its way to the user: SQLSTATE, message, DETAIL, HINT, and where in their text it is.
#[derive(Debug)]
pub struct EngineError {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    caret: Option<Caret>,
}

/// The user's own text and the 1-based character in it to point at.
#[derive(Debug)]
struct Caret {
    text: String,
    position: usize,
}

impl Caret {
    /// The caret with no more of the text than a person looks at.
    fn excerpt(self) -> Caret {
        const MOST: usize = 2000;
        const AROUND: usize = 500;
        if self.text.chars().count() <= MOST {
            return self;
        }
        let before = (self.position - 1).min(AROUND);
        let from = self.position - 1 - before;
        let text: String = self.text.chars().skip(from).take(before + AROUND).collect();
        if from == 0 {
            return Caret { text: format!("{text}..."), position: self.position };
        }
        Caret { text: format!("...{text}..."), position: before + 4 }
    }
}

pub type EngineResult<T> = Result<T, EngineError>;

/// The SQLSTATE of a value that a role may not give a setting.
pub fn refused_setting() -> i32 {
    PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE as i32
}

/// Tells the client that a call succeeded and may need another call after it.
pub fn notice(message: String, hint: String) {
    let report = ErrorReport::new(PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message.clone(), "").set_hint(&hint);
    let texts = Texts { message: &message, detail: None, hint: Some(&hint) };
    report::converted(texts, || report.report(PgLogLevel::NOTICE));
}

impl EngineError {
    fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Self {
        EngineError { code, message: message.into(), detail: None, hint: None, caret: None }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a sentence to the detail.
    pub fn detail_also(self, sentence: String) -> Self {
        let detail = match &self.detail {
            Some(detail) => format!("{detail} {sentence}"),
            None => sentence,
        };
        self.detail(detail)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn unknown_automation(name: &str) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, format!("automation \"{name}\" does not exist"))
            .hint("List the automations you may see with: SELECT name FROM automation.automations.")
    }

    /// A name that several objects have.
    pub fn ambiguous(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_AMBIGUOUS_FUNCTION, message)
    }

    pub fn unknown_run(id: RunId) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, format!("run {id} does not exist"))
            .hint("List the runs you may see with: SELECT id, automation, status FROM automation.runs.")
    }

    pub fn unknown_kind(kind: &str) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, format!("kind \"{kind}\" is not watched"))
    }

    pub fn unknown_role(name: &str) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
    }

    pub fn undefined(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message)
    }

    pub fn undefined_name(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN, message)
    }

    pub fn not_allowed(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
    }

    /// `owner` of an automation may not read a table: which right is missing, and how to give it.
    pub fn closed_table(relation: pg_sys::Oid, owner: pg_sys::Oid) -> Self {
        let table = names::relation_name(relation).unwrap_or_default();
        let schema = names::schema_of(relation).unwrap_or_default();
        let owner_name = names::role_name(owner).unwrap_or_default();
        let role = names::quote_identifier(&owner_name);
        let (needs, grant) = match identity::may_use_schema_of(relation, owner) {
            true => ("SELECT on the table", format!("GRANT SELECT ON {table} TO {role};")),
            false => (
                "USAGE on the schema and SELECT on the table",
                format!("GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {table} TO {role};"),
            ),
        };
        Self::not_allowed(format!("permission denied for table {table}"))
            .detail(format!("The automation's owner \"{owner_name}\" needs {needs}, to be told of its changes."))
            .hint(grant)
    }

    pub fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_DATETIME_FIELD_OVERFLOW, message)
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
    }

    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, message)
    }

    pub fn null_argument(name: &str) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, format!("{name} must not be null"))
    }

    pub fn too_deep() -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_STATEMENT_TOO_COMPLEX, "JSON document is nested too deeply")
            .detail("A document can have 127 levels.")
    }

    /// A file of the server's machine cannot be read.
    pub fn unreadable_file(path: &str, why: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_FILE, format!("could not read file \"{path}\"")).detail(why)
    }

    pub fn wrong_object(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE, message)
    }

    pub fn undefined_column(column: &str, table: &str) -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
            format!("column \"{column}\" does not exist in table \"{table}\""),
        )
    }

    pub fn wrong_state(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    }

    /// A state is in the way that will be gone the next time, such as a lock; a run's step with this error is tried
    /// again.
    pub fn try_again(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE, message)
    }

    pub fn taken(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT, message)
    }

    /// A role has as many of something as it may have.
    pub fn over_quota(what: &str, role: &str, has: i64, most: u32, setting: &str) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, format!("role \"{role}\" has too many {what}"))
            .detail(format!("It has {has}; {setting} is {most}."))
            .hint(format!(
                "Remove some, or have a superuser run: ALTER ROLE \"{role}\" SET {setting} = {};",
                u64::from(most) * 2
            ))
    }

    pub fn out_of_slots(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, message)
    }

    pub fn out_of_workers(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES, message)
    }

    /// dispatch() and drain() pass over the work of an owner that may not run automations.
    pub fn not_run(reason: &str) -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION,
            format!("queued work was not run: {reason}"),
        )
        .hint("It stays queued, and goes on when the role has the right back.")
    }

    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, format!("automation_engine bug: {}", message.into()))
            .hint("Please report this together with what you did.")
    }

    /// An error of the expression language; `place` says where the text stands, e.g. `filter of automation "x"`.
    pub fn expression(place: &str, text: &str, error: &ExprError) -> Self {
        let message = match error.message.split_once(" at or near ") {
            Some((what, near)) => format!("{what} in {place} at or near {near}"),
            None => format!("{} in {place}", error.message),
        };
        let mut report = Self::in_text(text, error);
        report.message = message;
        report
    }

    /// An error of the expression language in a text that the caller has just given, so that nothing needs a name.
    pub fn in_text(text: &str, error: &ExprError) -> Self {
        let mut report = Self::new(expression_code(error.kind), error.message.clone());
        report.detail = error.detail.clone();
        report.hint = error.hint.clone();
        if let Some((text, at)) = error.place_in(text) {
            report.point(text, at);
        }
        report
    }

    /// Says which part of an automation it is about.
    pub fn place(mut self, place: &str) -> Self {
        self.message = format!("{} in {place}", self.message);
        self
    }

    /// An error of a statement that the user wrote; `position` is the 1-based character in their text.
    pub fn statement(place: &str, text: &str, error: &PgError, position: Option<usize>) -> Self {
        let code = PgSqlErrorCode::from(packed_sqlstate(&error.sqlstate));
        let mut report = Self::new(code, format!("{} in {place}", error.message));
        report.detail = error.detail.clone();
        report.hint = error.hint.clone();
        report.caret = position.map(|position| Caret { text: text.to_owned(), position });
        report
    }

    pub fn point(&mut self, text: &str, byte: usize) {
        let position = text.char_indices().take_while(|(at, _)| *at < byte).count() + 1;
        self.caret = Some(Caret { text: text.to_owned(), position });
    }

    /// Is a missing right the error?
    pub fn is_denial(&self) -> bool {
        self.code == PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE
    }

    /// Tells it without stopping the statement.
    pub fn warn(self) {
        let mut report = ErrorReport::new(self.code, self.message.clone(), "automation_engine");
        if let Some(hint) = &self.hint {
            report = report.set_hint(hint);
        }
        report::converted(Texts { detail: None, ..self.texts() }, || report.report(PgLogLevel::WARNING));
    }

    fn texts(&self) -> Texts<'_> {
        Texts { message: &self.message, detail: self.detail.as_deref(), hint: self.hint.as_deref() }
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// This error as the error of a step.
    pub fn to_pg(&self) -> PgError {
        let (sqlstate, message, hint, _) = self.parts();
        PgError { detail: self.detail.clone(), hint: hint.map(str::to_owned), ..PgError::new(&sqlstate, message) }
    }

    /// Everything of it as one row of `validate()`: SQLSTATE, message, hint, and the 1-based line and column.
    pub fn parts(&self) -> (String, &str, Option<&str>, Option<(usize, usize)>) {
        let place = self.caret.as_ref().map(|caret| {
            let before: String = caret.text.chars().take(caret.position - 1).collect();
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            (line, column)
        });
        (crate::pg::catch::sqlstate_text(self.code as i32), &self.message, self.hint.as_deref(), place)
    }
}

impl From<spi::Error> for EngineError {
    fn from(error: spi::Error) -> Self {
        Self::bug(format!("a statement of the engine failed: {error}"))
    }
}

fn expression_code(kind: ExprErrorKind) -> PgSqlErrorCode {
    match kind {
        ExprErrorKind::Syntax => PgSqlErrorCode::ERRCODE_SYNTAX_ERROR,
        ExprErrorKind::UnknownName => PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
        ExprErrorKind::UnknownFunction => PgSqlErrorCode::ERRCODE_UNDEFINED_FUNCTION,
        ExprErrorKind::TypeMismatch => PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
        ExprErrorKind::TooComplex => PgSqlErrorCode::ERRCODE_STATEMENT_TOO_COMPLEX,
        ExprErrorKind::BudgetExceeded => PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        ExprErrorKind::DivisionByZero => PgSqlErrorCode::ERRCODE_DIVISION_BY_ZERO,
        ExprErrorKind::OutOfRange => PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
        ExprErrorKind::InvalidPattern => PgSqlErrorCode::ERRCODE_INVALID_REGULAR_EXPRESSION,
        _ => PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
    }
}

/// Does work whose arguments must not get into the server's log: an error of it is logged without the statement that
/// was sent and without the context, in which a statement or its parameters may stand as well. The caller sees all of
/// it.
pub fn without_statement<T>(work: impl FnOnce() -> EngineResult<T>) -> EngineResult<T> {
    // SAFETY: as for the caret: the callback lives as long as the transaction, longer than the report of its error. It
    // is taken off again if there is none.
    unsafe {
        let callback =
            pg_sys::MemoryContextAllocZero(pg_sys::TopTransactionContext, size_of::<pg_sys::ErrorContextCallback>())
                .cast::<pg_sys::ErrorContextCallback>();
        let previous = pg_sys::error_context_stack;
        (*callback).previous = previous;
        (*callback).callback = Some(hide_statement);
        pg_sys::error_context_stack = callback;
        let result = work();
        if result.is_ok() {
            pg_sys::error_context_stack = previous;
        }
        result
    }
}

unsafe extern "C-unwind" fn hide_statement(_argument: *mut std::ffi::c_void) {
    // SAFETY: the functions only set fields of the current error.
    unsafe {
        pg_sys::errhidestmt(true);
        pg_sys::errhidecontext(true);
    }
}

/// Turns our results into those that a `#[pg_extern]` returns, keeping the caller's file and line.
pub trait OrReport<T> {
    #[track_caller]
    fn or_report(self) -> Result<T, ErrorReport>;
}

impl<T> OrReport<T> for EngineResult<T> {
    #[track_caller]
    fn or_report(self) -> Result<T, ErrorReport> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => {
                report::convert_next_error(error.texts());
                let mut report = ErrorReport::new(error.code, error.message, "automation_engine");
                if let Some(detail) = error.detail {
                    report = report.set_detail(detail);
                }
                if let Some(hint) = error.hint {
                    report = report.set_hint(hint);
                }
                if let Some(caret) = error.caret {
                    install_caret(caret.excerpt());
                }
                Err(report)
            }
        }
    }
}

/// pgrx reports the error after this function has returned, so the callback that adds the position must stay on the
/// stack of error contexts; the error's own clean-up takes it off.
fn install_caret(caret: Caret) {
    let Ok(text) = CString::new(&*server_text::write(&caret.text)) else { return };
    // SAFETY: everything the callback reads is palloc'd in the transaction's memory, which outlives the report of the
    // error that we are about to raise.
    unsafe {
        let context = pg_sys::TopTransactionContext;
        let query = pg_sys::MemoryContextStrdup(context, text.as_ptr());
        let position = pg_sys::MemoryContextAllocZero(context, size_of::<CaretArgument>()).cast::<CaretArgument>();
        *position = CaretArgument { query, position: caret.position as i32 };
        let callback = pg_sys::MemoryContextAllocZero(context, size_of::<pg_sys::ErrorContextCallback>())
            .cast::<pg_sys::ErrorContextCallback>();
        (*callback).previous = pg_sys::error_context_stack;
        (*callback).callback = Some(add_caret);
        (*callback).arg = position.cast();
        pg_sys::error_context_stack = callback;
    }
}

struct CaretArgument {
    query: *const std::ffi::c_char,
    position: i32,
}

unsafe extern "C-unwind" fn add_caret(argument: *mut std::ffi::c_void) {
    // SAFETY: `argument` is the value that install_caret put there; the functions only set fields of the current error.
    unsafe {
        let argument = &*argument.cast::<CaretArgument>();
        pg_sys::internalerrquery(argument.query);
        pg_sys::internalerrposition(argument.position);
    }
}
