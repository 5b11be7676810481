//! End-to-end tests: a real server, real workers, committed work.
//!
//! [`Cluster`] is a server of its own that can be stopped, crashed, reloaded and copied;
//! [`Database`] is one database on it, asked in SQL. Tests wait for facts with
//! [`Database::wait_until`], never for the clock.
//!
//! The server comes from `AE_PG_BIN`, or `.dev/pg-e2e` if that is unset; `make test` makes it.
//! As root it runs as user `postgres`, otherwise as the caller.

mod background;
pub mod bulk;
mod cluster;
mod database;
mod engine;
pub mod invariants;
pub mod patience;
pub mod post_office;
mod process;
pub mod receiver;
mod search;
mod shop;

use std::time::Duration;

/// Bound for work that must not wait for something that takes half a minute or more: a step that sleeps for an hour, a
/// receiver that hangs for 30 seconds, the end of an idle executor after a minute, a sweep after five. A machine with
/// other work to do stays within it; how quick the work is on a free machine is told by `make bench`, not by a test.
pub const AT_ONCE: Duration = Duration::from_secs(20);

pub use background::in_background;
pub use cluster::{Cluster, ClusterBuilder, Shutdown};
pub use database::{Database, SqlError, Worker};
pub use process::{Signal, is_alive, kill};
