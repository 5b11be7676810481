//! Functions that Postgres exports but pgrx does not bind.
use std::ffi::{c_char, c_int};

use pgrx::pg_sys;

use super::catch::guard;

mod sys {
    use super::*;

    unsafe extern "C-unwind" {
        pub fn nextval_internal(relid: pg_sys::Oid, check_permissions: bool) -> i64;
        pub fn Async_UnlistenAll();
        pub fn Async_Notify(channel: *const c_char, payload: *const c_char);
        pub fn ResetSequenceCaches();
        pub fn datum_image_eq(value1: pg_sys::Datum, value2: pg_sys::Datum, byval: bool, len: c_int) -> bool;
        pub fn has_subclass(relation: pg_sys::Oid) -> bool;
        pub fn find_inheritance_children(parent: pg_sys::Oid, lockmode: pg_sys::LOCKMODE) -> *mut pg_sys::List;
        pub fn get_partition_ancestors(relid: pg_sys::Oid) -> *mut pg_sys::List;
        pub fn enable_timeout_after(id: c_int, delay_ms: c_int);
        pub fn disable_timeout(id: c_int, keep_indicator: bool);
        pub fn get_timeout_indicator(id: c_int, reset_indicator: bool) -> bool;
    }
}

macro_rules! guarded {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        /// As in Postgres' own headers; an ERROR becomes a panic as with pgrx's bindings.
        ///
        /// # Safety
        /// That of the C function.
        pub unsafe fn $name($($arg: $type),*) $(-> $result)? {
            // SAFETY: one C call, nothing with a destructor in the closure.
            unsafe { guard(|| sys::$name($($arg),*)) }
        }
    )*};
}

#[allow(non_snake_case)]
mod wrappers {
    use super::*;

    guarded! {
        fn nextval_internal(relid: pg_sys::Oid, check_permissions: bool) -> i64;
        fn Async_UnlistenAll();
        fn Async_Notify(channel: *const c_char, payload: *const c_char);
        fn ResetSequenceCaches();
        fn datum_image_eq(value1: pg_sys::Datum, value2: pg_sys::Datum, byval: bool, len: c_int) -> bool;
        fn has_subclass(relation: pg_sys::Oid) -> bool;
        fn find_inheritance_children(parent: pg_sys::Oid, lockmode: pg_sys::LOCKMODE) -> *mut pg_sys::List;
        fn get_partition_ancestors(relid: pg_sys::Oid) -> *mut pg_sys::List;
        fn enable_timeout_after(id: c_int, delay_ms: c_int);
        fn disable_timeout(id: c_int, keep_indicator: bool);
        fn get_timeout_indicator(id: c_int, reset_indicator: bool) -> bool;
    }
}
pub use wrappers::*;

/// Place of STATEMENT_TIMEOUT in TimeoutId, the same in all supported versions.
pub const STATEMENT_TIMEOUT: c_int = 3;

/// The same symbols as in `pg_sys`, but without pgrx's guard around each: `catch` puts its own, which keeps everything
/// an error says; several calls can share one guard; signal handlers must be plain C functions.
pub mod unguarded {
    use super::*;

    unsafe extern "C-unwind" {
        pub fn SPI_execute_plan_extended(plan: pg_sys::SPIPlanPtr, options: *const pg_sys::SPIExecuteOptions) -> c_int;
        pub fn SPI_prepare(src: *const c_char, nargs: c_int, argtypes: *mut pg_sys::Oid) -> pg_sys::SPIPlanPtr;
        pub fn parse_analyze_varparams(
            parse_tree: *mut pg_sys::RawStmt,
            source_text: *const c_char,
            param_types: *mut *mut pg_sys::Oid,
            num_params: *mut c_int,
            query_env: *mut pg_sys::QueryEnvironment,
        ) -> *mut pg_sys::Query;
        pub fn raw_parser(text: *const c_char, mode: pg_sys::RawParseMode::Type) -> *mut pg_sys::List;
        pub fn OidInputFunctionCall(
            function: pg_sys::Oid,
            text: *mut c_char,
            typioparam: pg_sys::Oid,
            typmod: i32,
        ) -> pg_sys::Datum;
        pub fn SPI_cursor_open_with_paramlist(
            name: *const c_char,
            plan: pg_sys::SPIPlanPtr,
            params: pg_sys::ParamListInfo,
            read_only: bool,
        ) -> pg_sys::Portal;
        pub fn SPI_cursor_fetch(portal: pg_sys::Portal, forward: bool, count: std::ffi::c_long);
        pub fn stringToQualifiedNameList(text: *const c_char) -> *mut pg_sys::List;
        pub fn CommitTransactionCommand();
        pub fn AfterTriggerFireDeferred();
        pub fn standard_ExecutorFinish(query: *mut pg_sys::QueryDesc);
        #[allow(clippy::too_many_arguments)]
        pub fn standard_ProcessUtility(
            statement: *mut pg_sys::PlannedStmt,
            query: *const c_char,
            read_only_tree: bool,
            context: pg_sys::ProcessUtilityContext::Type,
            params: pg_sys::ParamListInfo,
            environment: *mut pg_sys::QueryEnvironment,
            destination: *mut pg_sys::DestReceiver,
            completion: *mut pg_sys::QueryCompletion,
        );
        pub fn numeric_out(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
        pub fn SPI_execute_plan(
            plan: pg_sys::SPIPlanPtr,
            values: *mut pg_sys::Datum,
            nulls: *const c_char,
            read_only: bool,
            count: std::ffi::c_long,
        ) -> c_int;
        pub fn SPI_prepare_cursor(
            src: *const c_char,
            nargs: c_int,
            argtypes: *mut pg_sys::Oid,
            options: c_int,
        ) -> pg_sys::SPIPlanPtr;
        pub fn SPI_execute(src: *const c_char, read_only: bool, count: std::ffi::c_long) -> c_int;
        pub fn jsonb_in(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
        pub fn FindDefaultConversion(namespace: pg_sys::Oid, from: i32, to: i32) -> pg_sys::Oid;
        // Called while Postgres puts an error together, see pg::report.
        pub fn CopyErrorData() -> *mut pg_sys::ErrorData;
        pub fn FreeErrorData(data: *mut pg_sys::ErrorData);
        pub fn errmsg_internal(format: *const c_char, ...) -> c_int;
        pub fn errdetail_internal(format: *const c_char, ...) -> c_int;
        pub fn errhint(format: *const c_char, ...) -> c_int;
        // These raise nothing.
        pub fn GetDatabaseEncoding() -> c_int;
        pub fn GetCurrentTimestamp() -> pg_sys::TimestampTz;
        pub fn GetCurrentSubTransactionId() -> pg_sys::SubTransactionId;
        pub fn GetTopFullTransactionIdIfAny() -> pg_sys::FullTransactionId;
        pub fn GetOuterUserId() -> pg_sys::Oid;
        pub fn HeapTupleHeaderGetCmin(tuple: pg_sys::HeapTupleHeader) -> pg_sys::CommandId;
        pub fn HeapTupleHeaderGetCmax(tuple: pg_sys::HeapTupleHeader) -> pg_sys::CommandId;
        pub fn heap_deform_tuple(
            tuple: pg_sys::HeapTuple,
            descriptor: pg_sys::TupleDesc,
            values: *mut pg_sys::Datum,
            nulls: *mut bool,
        );
        pub fn MemoryContextReset(context: pg_sys::MemoryContext);
        pub fn IsTransactionBlock() -> bool;
        pub fn ParamsErrorCallback(arg: *mut std::ffi::c_void);
        pub fn pq_startmsgread();
        pub fn pq_peekbyte() -> c_int;
        pub fn pq_endmsgread();
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        fn pq_buffer_has_data() -> bool;
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        fn pq_buffer_remaining_data() -> isize;
        pub fn pg_trigger_depth(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
        // Several of these share one guard, see pg::insert and pg::append.
        pub fn table_open(relation: pg_sys::Oid, lockmode: pg_sys::LOCKMODE) -> pg_sys::Relation;
        pub fn table_close(relation: pg_sys::Relation, lockmode: pg_sys::LOCKMODE);
        pub fn index_open(relation: pg_sys::Oid, lockmode: pg_sys::LOCKMODE) -> pg_sys::Relation;
        pub fn index_close(relation: pg_sys::Relation, lockmode: pg_sys::LOCKMODE);
        pub fn RelationGetIndexList(relation: pg_sys::Relation) -> *mut pg_sys::List;
        pub fn list_free(list: *mut pg_sys::List);
        pub fn GetCurrentCommandId(used: bool) -> pg_sys::CommandId;
        pub fn heap_insert(
            relation: pg_sys::Relation,
            tuple: pg_sys::HeapTuple,
            command: pg_sys::CommandId,
            options: c_int,
            state: pg_sys::BulkInsertState,
        );
        pub fn heap_multi_insert(
            relation: pg_sys::Relation,
            slots: *mut *mut pg_sys::TupleTableSlot,
            count: c_int,
            command: pg_sys::CommandId,
            options: c_int,
            state: pg_sys::BulkInsertState,
        );
        pub fn index_insert(
            index: pg_sys::Relation,
            values: *mut pg_sys::Datum,
            nulls: *mut bool,
            place: pg_sys::ItemPointer,
            heap: pg_sys::Relation,
            unique: pg_sys::IndexUniqueCheck::Type,
            unchanged: bool,
            info: *mut pg_sys::IndexInfo,
        ) -> bool;
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pub fn _bt_get_endpoint(
            index: pg_sys::Relation,
            level: u32,
            rightmost: bool,
            snapshot: pg_sys::Snapshot,
        ) -> pg_sys::Buffer;
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        pub fn _bt_get_endpoint(index: pg_sys::Relation, level: u32, rightmost: bool) -> pg_sys::Buffer;
        pub fn LockBuffer(buffer: pg_sys::Buffer, mode: c_int);
        pub fn UnlockReleaseBuffer(buffer: pg_sys::Buffer);
        pub fn MarkBufferDirty(buffer: pg_sys::Buffer);
        pub fn BufferGetBlockNumber(buffer: pg_sys::Buffer) -> pg_sys::BlockNumber;
        pub fn PageGetExactFreeSpace(page: pg_sys::Page) -> pg_sys::Size;
        pub fn PageAddItemExtended(
            page: pg_sys::Page,
            item: pg_sys::Item,
            size: pg_sys::Size,
            at: pg_sys::OffsetNumber,
            flags: c_int,
        ) -> pg_sys::OffsetNumber;
        pub fn log_newpage_buffer(buffer: pg_sys::Buffer, page_std: bool) -> pg_sys::XLogRecPtr;
        pub fn CheckForSerializableConflictIn(
            relation: pg_sys::Relation,
            tuple: pg_sys::ItemPointer,
            block: pg_sys::BlockNumber,
        );
        pub fn MakeSingleTupleTableSlot(
            descriptor: pg_sys::TupleDesc,
            operations: *const pg_sys::TupleTableSlotOps,
        ) -> *mut pg_sys::TupleTableSlot;
        pub fn ExecStoreHeapTuple(
            tuple: pg_sys::HeapTuple,
            slot: *mut pg_sys::TupleTableSlot,
            free: bool,
        ) -> *mut pg_sys::TupleTableSlot;
        pub fn ExecDropSingleTupleTableSlot(slot: *mut pg_sys::TupleTableSlot);
        pub fn heap_attisnull(tuple: pg_sys::HeapTuple, attribute: c_int, descriptor: pg_sys::TupleDesc) -> bool;
        pub fn nocachegetattr(
            tuple: pg_sys::HeapTuple,
            attribute: c_int,
            descriptor: pg_sys::TupleDesc,
        ) -> pg_sys::Datum;
        pub fn die(signal: c_int);
        pub fn SignalHandlerForConfigReload(signal: c_int);
    }

    /// Has the client sent more than the message that is being worked on?
    ///
    /// # Safety
    /// Only in a process that serves a client.
    pub unsafe fn has_unread_message() -> bool {
        // SAFETY: reads state of the current process.
        unsafe {
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            let unread = pq_buffer_has_data();
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            let unread = pq_buffer_remaining_data() > 0;
            unread
        }
    }
}

/// Attribute number `index` (from 0) of a row descriptor.
///
/// # Safety
/// The descriptor must be valid and have more than `index` attributes.
#[cfg(not(feature = "pg18"))]
pub unsafe fn attribute(descriptor: pg_sys::TupleDesc, index: usize) -> *const pg_sys::FormData_pg_attribute {
    // SAFETY: attrs is an array of natts entries behind the descriptor's header.
    unsafe { (*descriptor).attrs.as_ptr().add(index) }
}

#[cfg(feature = "pg18")]
pub unsafe fn attribute(descriptor: pg_sys::TupleDesc, index: usize) -> *const pg_sys::FormData_pg_attribute {
    // SAFETY: since version 18 the attributes stand behind natts compact ones.
    unsafe {
        let compact = (*descriptor).compact_attrs.as_ptr();
        compact.add((*descriptor).natts as usize).cast::<pg_sys::FormData_pg_attribute>().add(index)
    }
}

/// Value of attribute `number` (from 1) of a tuple, None if it is null. Raises nothing.
///
/// # Safety
/// The tuple was formed with the descriptor, which has that attribute.
pub unsafe fn attribute_of(
    tuple: pg_sys::HeapTuple,
    number: c_int,
    descriptor: pg_sys::TupleDesc,
) -> Option<pg_sys::Datum> {
    // SAFETY: as demanded of the caller.
    unsafe {
        if unguarded::heap_attisnull(tuple, number, descriptor) {
            return None;
        }
        Some(unguarded::nocachegetattr(tuple, number, descriptor))
    }
}
