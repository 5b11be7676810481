//! Findings of the health check: faults of the watched tables, and other states that need a person.
use automation_core::by_name::call;

use super::kinds::ROW_TRIGGER;
use super::tenant_pauses;
use crate::pg::engine_sql::{Arg, query};
use crate::pg::identity::{as_engine, current_user, sees_all_statistics};

const CAPTURE: &str = "
    SELECT k.kind,
           COALESCE(n.nspname || '.' || c.relname, k.relation::text),
           CASE WHEN c.oid IS NULL THEN 'the table does not exist any more'
                WHEN t.oid IS NULL THEN 'the capture trigger is missing'
                WHEN t.tgenabled = 'D' THEN 'the capture trigger is disabled'
                WHEN t.tgenabled = 'R' THEN 'the capture trigger fires only under session_replication_role = replica'
                WHEN t.tgfoid <> 'automation_internal.capture_change'::pg_catalog.regproc
                THEN 'the capture trigger was replaced by another of its name'
                WHEN l.partition IS NOT NULL THEN 'the capture trigger ' || l.problem || ' on partition ' || l.partition
                WHEN m.column_name IS NOT NULL
                THEN m.purpose || ' column \"' || m.column_name || '\" was renamed or dropped'
           END,
           $3 OR pg_catalog.has_table_privilege($2, k.relation,
                                                'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
      FROM automation_internal.entity_kind AS k
      LEFT JOIN pg_catalog.pg_class AS c ON c.oid = k.relation
      LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = c.oid AND t.tgname = $1
      LEFT JOIN LATERAL (
           SELECT p.relid::pg_catalog.regclass::text AS partition,
                  CASE WHEN x.oid IS NULL THEN 'is missing'
                       WHEN x.tgenabled = 'D' THEN 'is disabled'
                       ELSE 'fires only under session_replication_role = replica' END AS problem
             FROM pg_catalog.pg_partition_tree(c.oid) AS p
             LEFT JOIN pg_catalog.pg_trigger AS x
                    ON x.tgrelid = p.relid AND x.tgfoid = t.tgfoid AND x.tgname = t.tgname
            WHERE c.relkind = 'p' AND p.isleaf AND (x.oid IS NULL OR x.tgenabled IN ('D', 'R'))
            ORDER BY p.relid
            LIMIT 1) AS l ON true
      LEFT JOIN LATERAL (
           SELECT w.purpose, w.name AS column_name
             FROM (SELECT 1, 'key', u.name FROM pg_catalog.unnest(k.id_columns) AS u (name)
                    UNION ALL
                   SELECT 2, 'tenant', k.tenant_column
                    UNION ALL
                   SELECT 3, 'watched', u.name FROM pg_catalog.unnest(k.columns) AS u (name)
                    UNION ALL
                   SELECT 4, 'ignored', u.name FROM pg_catalog.unnest(k.ignored) AS u (name)) AS w (place, purpose, name)
            WHERE w.name IS NOT NULL
              AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                               WHERE a.attrelid = c.oid AND a.attname = w.name AND NOT a.attisdropped)
            ORDER BY w.place, w.name
            LIMIT 1) AS m ON true
     WHERE k.relation IS NOT NULL
     ORDER BY k.kind";

/// Tables that have the capture trigger and are not watched, nor below a watched one: their changes are events of a
/// kind that is not theirs any more. Only those that the caller has some right on.
const STRAYS: &str = "
    SELECT t.tgrelid::pg_catalog.regclass::text
      FROM pg_catalog.pg_trigger AS t
     WHERE t.tgfoid = 'automation_internal.capture_change'::pg_catalog.regproc
       AND t.tgname = $1
       AND NOT EXISTS (SELECT
                         FROM automation_internal.entity_kind AS k
                        WHERE k.relation = t.tgrelid
                           OR k.relation = pg_catalog.pg_partition_root(t.tgrelid))
       AND ($3 OR pg_catalog.has_table_privilege($2, t.tgrelid,
                                                 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'))
     ORDER BY 1";

/// Tables that were partitions of a watched table and were detached: Postgres takes the capture trigger away then. Only
/// those that the caller has some right on.
const DETACHED: &str = "
    SELECT w.leaf::pg_catalog.regclass::text, w.relation::pg_catalog.regclass::text
      FROM automation_internal.watched_partition AS w
      JOIN pg_catalog.pg_class AS c ON c.oid = w.leaf AND NOT c.relispartition
      JOIN automation_internal.entity_kind AS k ON k.relation = w.relation
     WHERE NOT EXISTS (SELECT FROM automation_internal.entity_kind AS o WHERE o.relation = w.leaf)
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = w.leaf AND t.tgname = $1)
       AND ($3 OR pg_catalog.has_table_privilege($2, w.leaf,
                                                 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'))
     ORDER BY 1";

/// Tables that have the name under which another table was watched: that table was renamed, and the one that has the
/// name now is not captured. Only tables on which the caller has some right.
const EXCHANGED: &str = "
    SELECT x.oid::pg_catalog.regclass::text, k.relation::pg_catalog.regclass::text, k.kind
      FROM automation_internal.entity_kind AS k
     CROSS JOIN pg_catalog.pg_class AS x
      JOIN pg_catalog.pg_namespace AS n ON n.oid = x.relnamespace
     -- to_regclass() would be an error where the caller may not use the schema
     WHERE pg_catalog.format('%I.%I', n.nspname, x.relname) = k.watched_as
       AND x.oid <> k.relation
       AND EXISTS (SELECT FROM pg_catalog.pg_class AS w WHERE w.oid = k.relation)
       AND x.relkind IN ('r', 'p')
       AND NOT EXISTS (SELECT FROM automation_internal.entity_kind AS o WHERE o.relation = x.oid)
       AND ($2 OR pg_catalog.has_table_privilege($1, x.oid,
                                                 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'))
     ORDER BY 1";

const REPLICATION_ROLE: &str = "
    SELECT 'setting of ' || COALESCE('role ' || r.rolname, '') || COALESCE(' database ' || d.datname, '')
      FROM pg_catalog.pg_db_role_setting AS s
      LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
      LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
     WHERE EXISTS (SELECT FROM pg_catalog.unnest(s.setconfig) AS c (entry)
                    WHERE c.entry IN ('session_replication_role=replica', 'automation_engine.capture=off'))
 UNION ALL
    SELECT 'this session'
     WHERE pg_catalog.current_setting('session_replication_role') = 'replica'";

const BACKLOG: &str = "
    SELECT (SELECT pg_catalog.count(*) FROM automation_internal.dispatch AS d),
           (SELECT pg_catalog.count(*) FROM automation_internal.dead_letter AS d)";

/// A watched table, as far as its capture is concerned.
struct Capture {
    kind: String,
    table: String,
    problem: Option<String>,
    /// The caller has some right on the table, or may see the statistics of all roles.
    named: bool,
}

const CAPTURED: &str = "captured";
const NOT_CAPTURED: &str = "not captured";

/// (item, status, detail): one row for each watched table that the caller has a right on, one for all the others
/// together, and other states that need a person.
pub fn findings() -> Vec<(String, String, Option<String>)> {
    let (user, sees_all) = (current_user(), sees_all_statistics());
    as_engine(|| {
        let args = [Arg::from(ROW_TRIGGER), user.into(), sees_all.into()];
        let captures = query(CAPTURE, &args, |row| Capture {
            kind: row.text(1).unwrap_or_default(),
            table: row.text(2).unwrap_or_default(),
            problem: row.text(3),
            named: row.bool(4).unwrap_or_default(),
        });
        let (named, others): (Vec<Capture>, Vec<Capture>) = captures.into_iter().partition(|capture| capture.named);
        let mut rows: Vec<_> = named.into_iter().map(named_row).chain(counted_row(&others)).collect();
        rows.extend(query(STRAYS, &args, |row| {
            let table = row.text(1).unwrap_or_default();
            let detail = format!(
                "{table} has the capture trigger and is not watched. SELECT automation.watch_table('{table}'), or drop \
                 the trigger \"{}\".",
                ROW_TRIGGER
            );
            (format!("table {table}"), "warning".to_owned(), Some(detail))
        }));
        rows.extend(query(DETACHED, &args, |row| {
            let (table, parent) = (row.text(1).unwrap_or_default(), row.text(2).unwrap_or_default());
            let detail = format!(
                "it was detached from {parent}, which is watched. SELECT automation.watch_table('{table}') watches it on its own."
            );
            (format!("table {table}"), NOT_CAPTURED.to_owned(), Some(detail))
        }));
        rows.extend(query(EXCHANGED, &[user.into(), sees_all.into()], |row| {
            let [table, watched, kind] = [1, 2, 3].map(|column| row.text(column).unwrap_or_default());
            let quoted = [&watched, &table, &kind].map(|text| text.replace('\'', "''"));
            let detail = format!(
                "kind {kind} is captured from {watched}, which had this name when it was watched. To go on with this table: \
                 SELECT automation.unwatch_table('{}'); SELECT automation.watch_table('{}', kind => '{}').",
                quoted[0], quoted[1], quoted[2]
            );
            (format!("table {table}"), NOT_CAPTURED.to_owned(), Some(detail))
        }));
        rows.extend(query(REPLICATION_ROLE, &[], |row| {
            let detail = format!("changes are not captured: {}", row.text(1).unwrap_or_default());
            ("session_replication_role".to_owned(), "warning".to_owned(), Some(detail))
        }));
        rows.extend(paused_tenants(user, sees_all));
        rows.extend(query(BACKLOG, &[], |row| {
            let (queued, dead) = (row.int8(1).unwrap_or_default(), row.int8(2).unwrap_or_default());
            let status = if dead > 0 { "warning" } else { "ok" };
            ("queue".to_owned(), status.to_owned(), Some(format!("{queued} queued, {dead} dead letters")))
        }));
        rows
    })
}

/// Most tenants that status() names one by one.
const MOST_TENANTS: i64 = 10;

/// Tenants for which an automation without a tenant is paused.
fn paused_tenants(user: pgrx::pg_sys::Oid, sees_all: bool) -> Vec<(String, String, Option<String>)> {
    let mut named = tenant_pauses::named(user, sees_all, MOST_TENANTS + 1);
    let more = named.len() as i64 > MOST_TENANTS;
    named.truncate(MOST_TENANTS as usize);
    let mut rows: Vec<_> = named
        .into_iter()
        .map(|pause| {
            let resume = call("resume", &pause.automation, Some(&pause.tenant));
            let detail = format!("{} since {}; {resume} starts it again", pause.reason, pause.since);
            (format!("automation {} for tenant {}", pause.automation, pause.tenant), "paused".to_owned(), Some(detail))
        })
        .collect();
    if more {
        let detail = "automation.paused_tenants names all".to_owned();
        rows.push(("further tenants".to_owned(), "paused".to_owned(), Some(detail)));
    }
    rows
}

fn named_row(capture: Capture) -> (String, String, Option<String>) {
    let Capture { kind, table, problem, .. } = capture;
    let status = if problem.is_some() { NOT_CAPTURED } else { CAPTURED };
    let detail = problem.map_or_else(|| table.clone(), |problem| format!("{table}: {problem}"));
    (format!("kind {kind}"), status.to_owned(), Some(detail))
}

/// Tables that the caller has no right on are not named, only counted.
fn counted_row(others: &[Capture]) -> Option<(String, String, Option<String>)> {
    let broken = others.iter().filter(|capture| capture.problem.is_some()).count();
    let status = if broken > 0 { NOT_CAPTURED } else { CAPTURED };
    let detail = match broken {
        0 => format!("{} watched tables you have no right on", others.len()),
        _ => format!("{broken} of {} watched tables you have no right on", others.len()),
    };
    (!others.is_empty()).then(|| ("other kinds".to_owned(), status.to_owned(), Some(detail)))
}
