//! Grants on the engine's own objects.
use crate::pg::engine_sql::{Arg, query, run_ddl};
use crate::pg::identity::as_engine;

const SIGNATURES: &str = "
    SELECT pg_catalog.format('%I.%I(%s)', n.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid))
      FROM pg_catalog.pg_proc AS p
      JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
     WHERE n.nspname IN ('automation', 'automation_internal')
       AND p.proname = ANY ($1)";

/// Takes all rights from a role (a quoted name), then gives it exactly the named functions and the views.
pub fn replace(role: &str, functions: &[&str], grant: bool) {
    as_engine(|| {
        run_ddl(&format!("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA automation, automation_internal FROM {role}"));
        run_ddl(&format!("REVOKE ALL ON ALL TABLES IN SCHEMA automation FROM {role}"));
        run_ddl(&format!("REVOKE ALL ON SCHEMA automation FROM {role}"));
        if !grant {
            return;
        }
        run_ddl(&format!("GRANT USAGE ON SCHEMA automation TO {role}"));
        run_ddl(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA automation TO {role}"));
        for signature in query(SIGNATURES, &[Arg::texts(functions)], |row| row.text(1)).into_iter().flatten() {
            run_ddl(&format!("GRANT EXECUTE ON FUNCTION {signature} TO {role}"));
        }
    });
}
