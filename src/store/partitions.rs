//! Partitions of the append-only tables: made ahead, dropped when old. Never waits long for a lock: a waiting ACCESS
//! EXCLUSIVE lock would hold up every writer behind it.
use crate::pg::append::partition_name;
use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{query, run_ddl};
use crate::pg::identity::as_engine;
use crate::pg::names;
use crate::pg::settings::Pinned;

pub const TABLES: [&str; 4] = ["event", "run_history", "delivery", "delivery_attempt"];

/// Makes sure that the days from `first` to `last` have their partitions. A day whose rows may already be in the
/// default partition is left there: attaching would have to move them.
pub fn ensure(first: i64, last: i64) {
    let pinned = Pinned::new();
    pinned.set(c"lock_timeout", c"100ms");
    for table in TABLES {
        for day in first..=last {
            if names::internal_relation(&partition_name(table, day)).is_none() {
                as_engine(|| create(table, day));
            }
        }
    }
}

fn create(table: &str, day: i64) {
    let name = partition_name(table, day);
    let (from, to) = (literal(clock::day_start(day)), literal(clock::day_start(day + 1)));
    // Made beside the table and then attached: that takes a weaker lock on the table than CREATE ... PARTITION OF.
    run_ddl(&format!("CREATE TABLE automation_internal.{name} (LIKE automation_internal.{table} INCLUDING ALL)"));
    run_ddl(&format!(
        "ALTER TABLE automation_internal.{table} ATTACH PARTITION automation_internal.{name} FOR VALUES FROM ({from}) TO ({to})"
    ));
    if !names::creating_extension() {
        run_ddl(&format!("ALTER EXTENSION automation_engine ADD TABLE automation_internal.{name}"));
    }
}

fn literal(at: Micros) -> String {
    let seconds = (at + clock::POSTGRES_EPOCH) / 1_000_000;
    format!("pg_catalog.to_timestamp({seconds})")
}

const DAYS: &str = "
    SELECT c.relname::text
      FROM pg_catalog.pg_inherits AS i
      JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = $1
     ORDER BY c.relname";

/// Days of `table` that have a partition.
pub fn days(table: &str) -> Vec<i64> {
    let Some(parent) = names::internal_relation(table) else { return Vec::new() };
    let prefix = format!("{table}_d");
    as_engine(|| query(DAYS, &[parent.into()], |row| row.text(1)))
        .into_iter()
        .flatten()
        .filter_map(|name| name.strip_prefix(&prefix).and_then(|day| day.parse().ok()))
        .collect()
}

/// Drops the partition of a day.
pub fn drop_day(table: &str, day: i64) {
    let name = partition_name(table, day);
    let pinned = Pinned::new();
    pinned.set(c"lock_timeout", c"100ms");
    as_engine(|| {
        run_ddl(&format!("ALTER EXTENSION automation_engine DROP TABLE automation_internal.{name}"));
        run_ddl(&format!("DROP TABLE automation_internal.{name}"));
    });
}
