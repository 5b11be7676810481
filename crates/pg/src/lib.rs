//! Safe wrappers around Postgres internals. Besides the entry points of the extension, this is where unsafe code lives.
//! Nothing here knows of automations, events or runs: the extension depends on this crate, never the other way round.
#![allow(unsafe_code)]

pub mod append;
pub mod btree_append;
pub mod catch;
pub mod clock;
pub mod encode;
mod encode_nested;
pub mod engine_sql;
pub mod failpoint;
pub mod identity;
pub mod innocence;
pub mod insert;
pub mod instant;
pub mod jsonb;
pub mod key_lock;
pub mod key_type;
pub mod listen;
pub mod names;
pub mod notify;
pub mod numeric_text;
pub mod ordinary_insert;
pub mod parameter_types;
pub mod process;
pub mod query_pages;
pub mod random;
pub mod raw;
pub mod read_only;
pub mod regclass;
pub mod report;
pub mod server_text;
pub mod session;
pub mod settings;
pub mod snapshot;
pub mod statement;
pub mod statement_alone;
pub mod subtransaction;
pub mod table_scan;
pub mod text;
pub mod threads;
pub mod watch;
pub mod writes;
