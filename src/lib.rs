//! automation_engine: the Postgres shell around `automation_core`.
//!
//! `capture` writes events inside the user's transaction; `router` turns events into dispatches; `executor` runs them;
//! `workers` are the processes that call router and executor in loops; `api` is what SQL can call; `store` is the SQL;
//! `pg` is where Postgres' internals are touched.
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

extension_sql_file!("../sql/schema/00_schemas.sql", name = "schemas", bootstrap);
extension_sql_file!("../sql/schema/10_tables.sql", name = "tables", requires = ["schemas"]);
extension_sql_file!("../sql/schema/11_gates.sql", name = "gates", requires = ["tables"]);
extension_sql_file!("../sql/schema/12_schedules.sql", name = "schedules", requires = ["tables"]);
extension_sql_file!("../sql/schema/13_holds.sql", name = "holds", requires = ["tables"]);
extension_sql_file!("../sql/schema/14_subscriptions.sql", name = "subscriptions", requires = ["tables"]);
extension_sql_file!("../sql/schema/15_derived_events.sql", name = "derived_events", requires = ["tables"]);
extension_sql_file!("../sql/schema/16_engine_listeners.sql", name = "engine_listeners", requires = ["tables"]);
extension_sql_file!("../sql/schema/17_automation_effects.sql", name = "automation_effects", requires = ["tables"]);
extension_sql_file!("../sql/schema/18_counters.sql", name = "counters", requires = ["tables"]);
extension_sql_file!("../sql/schema/19_bulk.sql", name = "bulk", requires = ["tables"]);
extension_sql_file!("../sql/schema/20_capture.sql", name = "capture", requires = ["tables"]);
extension_sql_file!("../sql/schema/21_outbox.sql", name = "outbox", requires = ["tables"]);
extension_sql_file!("../sql/schema/22_topic_grants.sql", name = "topic_grants", requires = ["tables"]);
extension_sql_file!("../sql/schema/23_running.sql", name = "running", requires = ["tables"]);
extension_sql_file!(
    "../sql/schema/30_views.sql",
    name = "views",
    requires = ["tables", "schedules", "holds", "topic_grants", "running"]
);
extension_sql_file!("../sql/schema/40_builders.sql", name = "builders", requires = ["tables"]);
extension_sql_file!("../sql/schema/41_webhook.sql", name = "webhook", requires = ["builders", "outbox"]);
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

/// What `cargo pgrx test` asks for.
#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'automation_engine'", "automation_engine.allow_superuser_automations = on"]
    }
}
