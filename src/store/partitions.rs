//! Partitions of the append-only tables: made ahead, dropped when old. Never waits long for a lock: a waiting ACCESS
//! EXCLUSIVE lock would hold up every writer behind it.
use crate::pg::append::partition_name;
use crate::pg::catch::PgError;
use crate::pg::clock::{self, Micros};
use crate::pg::engine_sql::{query, run_ddl};
use crate::pg::identity::as_engine;
use crate::pg::names;
use crate::pg::settings::{Pinned, PlannerSettings};

/// A table with a partition for each day.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub name: &'static str,
    /// The column whose day it is. By the clock on the wall, never by one that a session has set.
    key: &'static str,
    /// The columns by which statements of the engine find rows.
    found_by: &'static str,
}

pub const TABLES: [Log; 4] = [
    Log { name: "event", key: "occurred_at", found_by: "id, occurred_at, cause_run" },
    Log { name: "run_history", key: "recorded_at", found_by: "id, recorded_at, event_id" },
    Log { name: "delivery", key: "ended_at", found_by: "id, ended_at" },
    Log { name: "delivery_attempt", key: "ended_at", found_by: "outbox_id, ended_at" },
];

/// Most rows that are moved out of the default partition, under a lock that keeps writers away from it.
const MOST_MOVED: u64 = 20_000;
/// Most rows of the default partition that are deleted at once.
const MOST_DELETED: u64 = 10_000;

/// Makes sure that the days from `first` to `last` of a table have their partitions. Rows of such a day may be in the
/// default partition already, because the clock on the wall was ahead for a while: they move to the new one.
pub fn ensure(table: Log, first: i64, last: i64) {
    let pinned = Pinned::open();
    pinned.set(c"lock_timeout", c"100ms");
    for day in first..=last {
        if names::internal_relation(&partition_name(table.name, day)).is_none() {
            as_engine(|| create(table, day));
        }
    }
}

fn create(table: Log, day: i64) {
    let _planner = PlannerSettings::pin();
    let name = partition_name(table.name, day);
    let Log { name: parent, key, .. } = table;
    let (from, to) = (literal(clock::day_start(day)), literal(clock::day_start(day + 1)));
    // Made beside the table and then attached: that takes a weaker lock on the table than CREATE ... PARTITION OF.
    run_ddl(&format!("CREATE TABLE automation_internal.{name} (LIKE automation_internal.{parent} INCLUDING ALL)"));
    let of_the_day =
        format!("FROM automation_internal.{parent}_default AS d WHERE d.{key} >= {from} AND d.{key} < {to}");
    let strays = |most: u64| run_ddl(&format!("SELECT {of_the_day} LIMIT {most}"));
    if strays(1) > 0 {
        run_ddl(&format!("LOCK TABLE automation_internal.{parent}_default IN ACCESS EXCLUSIVE MODE"));
        if strays(MOST_MOVED + 1) > MOST_MOVED {
            PgError {
                detail: Some(format!("More than {MOST_MOVED} rows of that day are in {parent}_default.")),
                hint: Some("The rows of that day stay there, and are deleted when their retention has passed.".into()),
                ..PgError::new("55000", format!("there is no partition {name}"))
            }
            .raise();
        }
        run_ddl(&format!(
            "WITH moved AS (DELETE {of_the_day} RETURNING d.*) INSERT INTO automation_internal.{name} SELECT m.* FROM moved AS m"
        ));
    }
    run_ddl(&format!(
        "ALTER TABLE automation_internal.{parent} ATTACH PARTITION automation_internal.{name} FOR VALUES FROM ({from}) TO ({to})"
    ));
    if !names::creating_extension() {
        run_ddl(&format!("ALTER EXTENSION automation_engine ADD TABLE automation_internal.{name}"));
    }
}

/// Deletes rows of the default partition that are older than a day, some at a time. A whole day that had no partition
/// of its own is there: the server was down when it should have been made.
pub fn delete_strays(table: Log, before: i64) -> u64 {
    let Log { name, key, .. } = table;
    let limit = literal(clock::day_start(before));
    let delete = format!(
        "DELETE FROM automation_internal.{name}_default AS d
          WHERE d.ctid = ANY (ARRAY(SELECT o.ctid FROM automation_internal.{name}_default AS o
                                     WHERE o.{key} < {limit} LIMIT {MOST_DELETED}))"
    );
    let _planner = PlannerSettings::pin();
    as_engine(|| run_ddl(&delete))
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
    let pinned = Pinned::open();
    pinned.set(c"lock_timeout", c"100ms");
    as_engine(|| {
        run_ddl(&format!("ALTER EXTENSION automation_engine DROP TABLE automation_internal.{name}"));
        run_ddl(&format!("DROP TABLE automation_internal.{name}"));
    });
}

// -1: never analyzed.
const ROWS: &str = "
    SELECT NULLIF(p.reltuples, -1)::bigint, pg_catalog.sum(CASE WHEN c.reltuples > 0 THEN c.reltuples ELSE 0 END)::bigint
      FROM pg_catalog.pg_class AS p
      JOIN pg_catalog.pg_inherits AS i ON i.inhparent = p.oid
      JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
     WHERE p.oid = $1
     GROUP BY p.reltuples";

/// Gathers the statistics of a whole table if its partitions have changed enough: autovacuum looks at them one by one
/// and never at the table. A small sample of the few columns that matter is enough for the planner to know that ids are
/// unique, and reads a tenth as much as ANALYZE would by default. Writers go on meanwhile.
pub fn gather_statistics(table: Log) {
    let Some(parent) = names::internal_relation(table.name) else { return };
    let rows = as_engine(|| query(ROWS, &[parent.into()], |row| (row.int8(1), row.int8(2).unwrap_or_default())));
    if rows.into_iter().any(|(known, rows)| automation_core::statistics::are_due(known, rows)) {
        let pinned = Pinned::open();
        pinned.set(c"lock_timeout", c"100ms");
        pinned.set(c"default_statistics_target", c"10");
        as_engine(|| run_ddl(&format!("ANALYZE automation_internal.{} ({})", table.name, table.found_by)));
    }
}
