//! Events start runs, runs take effect exactly once, failures stay local.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use crate::pg_tests::{number, run, shop, text};
    use pgrx::prelude::*;

    fn define(name: &str, step: &str) {
        run(&format!(
            "SELECT automation.define('{name}', trigger => automation.on_created('orders'),
                                      steps => ARRAY[automation.sql($q${step}$q$, id => 'one')])"
        ));
    }

    #[pg_test]
    fn a_change_runs_its_automation_exactly_once() {
        shop();
        define("audit", "INSERT INTO effect (order_id) VALUES ({{ new.id }})");
        run("INSERT INTO orders SELECT g FROM generate_series(1, 250) AS g");
        assert_eq!(number("SELECT automation.drain()"), 250);
        assert_eq!(number("SELECT automation.drain()"), 0);
        assert_eq!(number("SELECT count(DISTINCT order_id) FROM effect"), 250);
        assert_eq!(number("SELECT count(*) FROM effect"), 250);
        assert_eq!(number("SELECT count(*) FROM automation.runs WHERE status = 'completed'"), 250);
    }

    #[pg_test]
    fn runs_of_one_entity_start_in_the_order_of_its_versions() {
        shop();
        run("SELECT automation.define('log', trigger => automation.on_changed('orders'),
                 steps => ARRAY[automation.sql($$INSERT INTO effect (order_id, what)
                                                 VALUES ({{ new.id }}, {{ new.status }})$$)])");
        run("INSERT INTO orders VALUES (1, '0')");
        run("DO $$ BEGIN FOR i IN 1..20 LOOP UPDATE orders SET status = i::text; END LOOP; END $$");
        run("SELECT automation.drain()");
        assert_eq!(
            text("SELECT string_agg(what, ',' ORDER BY place) FROM effect").as_deref(),
            Some("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20")
        );
    }

    #[pg_test]
    fn an_error_fails_that_run_only_and_says_why() {
        shop();
        run("ALTER TABLE effect ADD CHECK (order_id <> 2)");
        define("audit", "INSERT INTO effect (order_id) VALUES ({{ new.id }})");
        run("INSERT INTO orders SELECT g FROM generate_series(1, 3) AS g");
        run("SELECT automation.drain()");
        assert_eq!(number("SELECT count(*) FROM effect"), 2);
        assert_eq!(
            text(
                "SELECT sqlstate || ' ' || ended_reason || ' ' || message || ' / ' || detail || ' / ' || context
                    FROM automation.runs WHERE status = 'failed'"
            )
            .map(|line| line.split('/').next().unwrap_or_default().trim().to_owned())
            .as_deref(),
            Some(
                "23514 step_failed new row for relation \"effect\" violates check constraint \"effect_order_id_check\""
            )
        );
    }

    #[pg_test]
    fn values_are_bound_never_spliced() {
        shop();
        define("audit", "INSERT INTO effect (order_id, what) VALUES ({{ new.id }}, {{ new.note }})");
        run("INSERT INTO orders (id, note) VALUES (1, $q$'); DROP TABLE effect; --$q$)");
        run("SELECT automation.drain()");
        assert_eq!(text("SELECT what FROM effect").as_deref(), Some("'); DROP TABLE effect; --"));
    }

    #[pg_test]
    fn a_setting_that_a_step_makes_is_gone_with_the_step() {
        shop();
        define("dirty", "SELECT set_config('work_mem', '7MB', false)");
        run("INSERT INTO orders VALUES (1), (2)");
        run("SELECT automation.drain()");
        assert_ne!(text("SHOW work_mem").as_deref(), Some("7MB"));
        assert_eq!(number("SELECT count(*) FROM automation.runs WHERE status = 'completed'"), 2);
    }

    #[pg_test]
    fn transaction_control_is_refused() {
        shop();
        define("commits", "COMMIT");
        run("INSERT INTO orders VALUES (1)");
        run("SELECT automation.drain()");
        assert_eq!(text("SELECT sqlstate FROM automation.runs").as_deref(), Some("2D000"));
    }

    #[pg_test]
    fn a_chain_of_causes_ends_at_its_limit_and_the_refusal_is_recorded() {
        shop();
        run("SELECT automation.define('loop', trigger => automation.on_changed('orders'),
                 steps => ARRAY[automation.sql($$UPDATE orders SET total = total + 1 WHERE id = {{ new.id }}$$)])");
        run("INSERT INTO orders VALUES (1, 'x', 0)");
        run("SELECT automation.drain()");
        assert_eq!(text("SELECT total::text FROM orders").as_deref(), Some("17"));
        assert_eq!(number("SELECT count(*) FROM automation.log WHERE code = 'chain_too_deep'"), 1);
    }

    #[pg_test]
    fn a_run_started_by_hand_has_its_id_at_once_and_can_be_cancelled_before_it_starts() {
        shop();
        run("SELECT automation.define('manual', trigger => automation.on_call(),
                 steps => ARRAY[automation.sql($$INSERT INTO effect (what) VALUES ({{ payload.x }})$$)])");
        let first = number("SELECT automation.start_run('manual', '{\"x\": \"a\"}')");
        let second = number("SELECT automation.start_run('manual', '{\"x\": \"b\"}')");
        run(&format!("SELECT automation.cancel_run({second})"));
        run("SELECT automation.drain()");
        assert_eq!(text("SELECT string_agg(what, ',') FROM effect").as_deref(), Some("a"));
        assert_eq!(
            text(&format!(
                "SELECT string_agg(id || ' ' || status, ', ' ORDER BY id) FROM automation.runs WHERE id IN ({first}, {second})"
            )),
            Some(format!("{first} completed, {second} cancelled"))
        );
    }
}
