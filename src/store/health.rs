//! What is wrong with the watched tables.
use crate::pg::engine_sql::{Arg, query};
use crate::pg::identity::as_engine;

const CAPTURE: &str = "
    SELECT k.kind,
           COALESCE(n.nspname || '.' || c.relname, k.relation::text),
           CASE WHEN c.oid IS NULL THEN 'the table does not exist any more'
                WHEN t.oid IS NULL THEN 'the capture trigger is missing'
                WHEN t.tgenabled = 'D' THEN 'the capture trigger is disabled'
                WHEN t.tgenabled = 'R' THEN 'the capture trigger fires only under session_replication_role = replica'
                WHEN EXISTS (SELECT FROM pg_catalog.pg_partition_tree(c.oid) AS p
                               JOIN pg_catalog.pg_trigger AS x ON x.tgrelid = p.relid
                              WHERE x.tgname = $1 AND x.tgenabled = 'D')
                THEN 'the capture trigger is disabled on a partition'
                WHEN EXISTS (SELECT FROM pg_catalog.unnest(k.id_columns || COALESCE(k.columns, '{}')) AS w (name)
                              WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                                                 WHERE a.attrelid = c.oid AND a.attname = w.name
                                                   AND NOT a.attisdropped))
                THEN 'a watched column was renamed or dropped'
           END
      FROM automation_internal.entity_kind AS k
      LEFT JOIN pg_catalog.pg_class AS c ON c.oid = k.relation
      LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = c.oid AND t.tgname = $1
     WHERE k.relation IS NOT NULL
     ORDER BY k.kind";

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

/// (item, status, detail): one row per watched table, and what else needs a person.
pub fn findings() -> Vec<(String, String, Option<String>)> {
    as_engine(|| {
        let mut rows = query(CAPTURE, &[Arg::from(crate::capture::attach::ROW_TRIGGER)], |row| {
            let problem = row.text(3);
            let status = if problem.is_some() { "not captured" } else { "captured" };
            let table = row.text(2).unwrap_or_default();
            let detail = problem.map_or_else(|| table.clone(), |problem| format!("{table}: {problem}"));
            (format!("kind {}", row.text(1).unwrap_or_default()), status.to_owned(), Some(detail))
        });
        rows.extend(query(REPLICATION_ROLE, &[], |row| {
            let detail = format!("changes are not captured: {}", row.text(1).unwrap_or_default());
            ("session_replication_role".to_owned(), "warning".to_owned(), Some(detail))
        }));
        rows.extend(query(BACKLOG, &[], |row| {
            let (queued, dead) = (row.int8(1).unwrap_or_default(), row.int8(2).unwrap_or_default());
            let status = if dead > 0 { "warning" } else { "ok" };
            ("queue".to_owned(), status.to_owned(), Some(format!("{queued} queued, {dead} dead letters")))
        }));
        rows
    })
}
