//! The hot statements find their rows through the indexes made for them, without statistics and whatever the data.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use crate::event_log::events;
    use crate::pg_tests::{run, text};
    use crate::store::{bulk, bulk_tally, dispatches, dwells, gates, live, schedules, timers};
    use pgrx::prelude::*;

    /// The plan of a statement of ours, planned as the engine plans it.
    fn plan(sql: &str, types: &str, values: &str) -> String {
        let _pinned = crate::pg::settings::PlannerSettings::pin();
        run("SET LOCAL plan_cache_mode = force_generic_plan");
        run(&format!("PREPARE hot ({types}) AS {sql}"));
        let lines = Spi::connect(|client| {
            client
                .select(&format!("EXPLAIN (COSTS OFF) EXECUTE hot ({values})"), None, &[])
                .map(|rows| rows.filter_map(|row| row.get::<String>(1).ok().flatten()).collect::<Vec<_>>().join("\n"))
        });
        run("DEALLOCATE hot");
        lines.unwrap_or_else(|error| panic!("{error}"))
    }

    #[pg_test]
    fn a_claim_walks_the_primary_key_in_order() {
        let plan = plan(dispatches::CLAIM, "oid, bigint, bigint", "10, 1, 100");
        assert!(plan.contains("Index Scan using dispatch_pkey"), "{plan}");
        assert!(!plan.contains("Seq Scan on dispatch"), "{plan}");
    }

    #[pg_test]
    fn executors_find_events_by_id_in_the_partition_of_their_day() {
        let plan = plan(events::MANY, "bigint[], timestamptz, timestamptz", "'{1,2,3}', now(), now()");
        assert!(plan.contains("_id_idx") && plan.contains("Subplans Removed"), "{plan}");
    }

    #[pg_test]
    fn the_router_finds_what_is_held_or_about_to_be_by_index() {
        let queued = plan(dwells::QUEUED, "bigint[]", "'{1,2,3}'");
        assert!(queued.contains("dispatch_held_idx") && !queued.contains("Seq Scan"), "{queued}");
        let held = plan(dwells::FIND, "bigint[], text[], text[], bigint[]", "'{1}', '{t}', '{k}', '{0}'");
        assert!(held.contains("dwell_automation_id_trigger_id_key_key") && !held.contains("Seq Scan"), "{held}");
    }

    #[pg_test]
    fn schedules_that_are_due_are_found_by_their_next_tick() {
        let due = plan(schedules::TAKE_DUE, "timestamptz, bigint, boolean, oid", "now(), 100, true, 10");
        assert!(due.contains("Index Scan using schedule_next_tick_idx"), "{due}");
        assert!(!due.contains("Sort"), "{due}");
        let next = plan(timers::NEXT, "timestamptz", "'-infinity'");
        assert!(next.contains("schedule_next_tick_idx") && next.contains("timer_due_at_idx"), "{next}");
    }

    #[pg_test]
    fn gates_count_and_look_for_keys_by_index() {
        let window = plan(
            gates::COUNT_WINDOW,
            "integer, bigint, text, timestamptz, timestamptz, bigint, bigint, timestamptz, timestamptz",
            "1, 2, 'k', now(), now(), 3, 100, now(), now()",
        );
        assert!(window.contains("window_event_pkey") && !window.contains("Seq Scan"), "{window}");
        let executions = plan(
            gates::COUNT_EXECUTIONS,
            "integer, timestamptz, text, boolean, bigint, text",
            "1, now(), NULL, false, 9, ''",
        );
        assert!(executions.contains("execution_automation_id_tenant_at_idx"), "{executions}");
        let runs = plan(live::WITH_KEY, "integer, text, bigint", "1, 'k', 9");
        assert!(runs.contains("run_automation_id_mode_key_idx") && !runs.contains("Seq Scan"), "{runs}");
        let lowest = plan(dispatches::LOWEST, "oid, bigint, bigint", "10, 1, 100");
        assert!(lowest.contains("dispatch_pkey") && !lowest.contains("Sort"), "{lowest}");
    }

    #[pg_test]
    fn whoever_tends_a_bulk_job_finds_it_and_its_next_rows_by_their_keys() {
        let job = plan(bulk::LOCK, "bigint", "1");
        assert!(job.contains("Index Scan using bulk_job_pkey") && !job.contains("Seq Scan"), "{job}");
        let look = plan(bulk::FIND, "bigint", "1");
        assert!(look.contains("Index Scan Backward using bulk_look_pkey") && !look.contains("Sort"), "{look}");
        for (take, compared) in [(bulk_tally::TAKE_FROM, ">="), (bulk_tally::TAKE_OF, "=")] {
            let tallies = plan(take, "bigint, text", "1, '7'");
            let condition = format!("Index Cond: ((job_id = $1) AND (xid {compared} ($2)::xid8))");
            assert!(tallies.contains(&condition) && !tallies.contains("Filter:"), "{tallies}");
        }
        let rows = plan(bulk::ITEMS, "bigint, bigint, bigint", "1, 500, 500");
        assert!(rows.contains("Index Scan using bulk_item_pkey") && !rows.contains("Sort"), "{rows}");
    }

    #[pg_test]
    fn every_public_object_has_a_comment() {
        let missing = text(
            "SELECT string_agg(what, ', ') FROM (
                 SELECT 'function ' || p.oid::regprocedure AS what FROM pg_proc AS p
                  WHERE p.pronamespace = 'automation'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
                 UNION ALL
                 SELECT 'relation ' || c.oid::regclass FROM pg_class AS c
                  WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v'
                    AND obj_description(c.oid, 'pg_class') IS NULL
                 UNION ALL
                 SELECT 'column ' || c.oid::regclass || '.' || a.attname FROM pg_class AS c
                   JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
                  WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v'
                    AND col_description(c.oid, a.attnum) IS NULL) AS m",
        );
        assert_eq!(missing, None);
    }
}
