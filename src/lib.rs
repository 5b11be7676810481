//! automation_engine: the Postgres shell around `automation_core`.
//!
//! `capture` writes events inside the user's transaction; `router` turns events into dispatches; `executor` runs them;
//! `workers` are the processes that call router and executor in loops; `api` has the functions that SQL can call;
//! `store` is the SQL; `pg` is where Postgres' internals are touched.
use automation_pg as pg;
use pgrx::prelude::*;

mod api;
mod capture;
mod courier;
mod define;
mod definitions;
mod error;
mod event_log;
mod executor;
mod gucs;
mod janitor;
mod provenance;
mod router;
mod runs;
mod secrets;
mod signal;
mod store;
mod workers;

::pgrx::pg_module_magic!();

// Each file holds the tables of one subject and the views on them; its name is the name of the file.
extension_sql_file!("../sql/schema/00_schemas.sql", name = "schemas", bootstrap);
extension_sql_file!("../sql/schema/entities.sql", name = "entities", requires = ["schemas"]);
extension_sql_file!("../sql/schema/log.sql", name = "log", requires = ["entities"]);
extension_sql_file!("../sql/schema/automations.sql", name = "automations", requires = ["schemas"]);
extension_sql_file!("../sql/schema/gates.sql", name = "gates", requires = ["automations"]);
extension_sql_file!("../sql/schema/schedules.sql", name = "schedules", requires = ["automations"]);
extension_sql_file!("../sql/schema/holds.sql", name = "holds", requires = ["schemas"]);
extension_sql_file!("../sql/schema/runs.sql", name = "runs", requires = ["log", "automations", "schedules", "holds"]);
extension_sql_file!("../sql/schema/bulk.sql", name = "bulk", requires = ["automations"]);
extension_sql_file!("../sql/schema/webhooks.sql", name = "webhooks", requires = ["automations"]);
extension_sql_file!("../sql/schema/stats.sql", name = "stats", requires = ["automations"]);
extension_sql_file!("../sql/schema/builders.sql", name = "builders", requires = ["schemas"]);
extension_sql_file!("../sql/schema/90_finalize.sql", name = "finalize", finalize);

/// Called when the library is loaded: by the postmaster if preloaded, else by the first session that needs it.
#[allow(non_snake_case)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    gucs::init();
    pg::watch::install(gucs::evaluation_timeout);
    pg::subtransaction::set_interruption_check(signal::running::interrupted);
    signal::at_commit::set_listeners(&[capture::LISTENER, event_log::LISTENER]);
    workers::quiesce::install_hook();
    capture::end_of_statement::install_hook();
    if pg::process::preloading() {
        signal::shmem::request();
        pg::process::register_static(&workers::launcher::PROCESS);
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[path = "../pgrx-tests/mod.rs"]
mod pg_tests;

/// The functions that `cargo pgrx test` asks for.
#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'automation_engine'", "automation_engine.allow_superuser_automations = on"]
    }
}
