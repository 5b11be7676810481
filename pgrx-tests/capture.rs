//! Row changes become events.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use crate::pg_tests::{number, run, shop, text};
    use pgrx::prelude::*;

    #[pg_test]
    fn a_real_difference_is_one_event_and_no_difference_is_none() {
        shop();
        run("INSERT INTO orders VALUES (1, 'new', 1.0)");
        run("UPDATE orders SET status = 'new', total = 1.00");
        assert_eq!(number("SELECT count(*) FROM automation.events"), 1);
        run("UPDATE orders SET status = 'paid'");
        assert_eq!(
            text("SELECT topic || ' ' || changed::text || ' ' || (prev ->> 'status') FROM automation.events LIMIT 1")
                .as_deref(),
            Some("orders.updated {status} new")
        );
    }

    #[pg_test]
    fn a_rolled_back_savepoint_leaves_no_event() {
        shop();
        run("DO $$ BEGIN INSERT INTO orders VALUES (1); RAISE 'no'; EXCEPTION WHEN OTHERS THEN NULL; END $$");
        assert_eq!(number("SELECT count(*) FROM automation.events"), 0);
    }

    #[pg_test]
    fn an_event_shows_the_row_as_sql_sees_it() {
        run("CREATE TABLE wide (id uuid PRIMARY KEY, n numeric, f float8, r real, t timestamptz, ts timestamp, d date,
                                i interval, b bytea, j json, jb jsonb, a numeric[], tx text, bo boolean, c \"char\",
                                ip inet, rg int4range, e name)");
        run("SELECT automation.watch_table('wide')");
        run("SET LOCAL timezone = 'UTC'");
        run("INSERT INTO wide VALUES
             (gen_random_uuid(), 123456789012345678901234567890.123456789, 1e300, 0.1, 'infinity',
              '2024-02-29 23:59:59.999999', '-infinity', '1 mon 2 days 03:04:05.000006', '\\x00ff', '{\"a\": [1, 1.0]}',
              '{\"x\": 1.10, \"y\": \"\\u00fc\"}', '{1.50,NULL,NaN}', E'quo\"te\\\\ \\n tab\\t', true, 'x', '10.0.0.1/8',
              '[1,5)', 'na'),
             (gen_random_uuid(), 'NaN', '-Infinity', 'NaN', '1900-01-01 00:00:00+00', 'infinity', '0001-01-01 BC',
              '-1 day', '', 'null', 'null', '{}', '', false, '', '::1', 'empty', '')");
        let differing = "SELECT count(*) FROM automation.events AS e JOIN wide AS w ON w.id = e.entity_id::uuid
                          WHERE e.next IS DISTINCT FROM to_jsonb(w)";
        assert_eq!(number(differing), 0);
        assert_eq!(number("SELECT count(*) FROM automation.events"), 2);
    }

    #[pg_test]
    fn numbers_are_written_as_sql_writes_them() {
        run("CREATE TABLE numbers (id serial PRIMARY KEY, n numeric)");
        run("SELECT automation.watch_table('numbers')");
        run("INSERT INTO numbers (n) SELECT v::numeric FROM unnest('{0,0.00,-0.0,1,-1,9,10,9999,10000,10001,99999999,100000000,
             0.1,0.0001,0.00010,0.00001,0.00000001,-0.5,1234.5678,12345.6789,1e4,1e8,1e20,1e100,1e250,1e300,1e-63,1e-64,1e-70,
             1e-300,NaN,Infinity,-Infinity}'::text[]) AS v");
        run("INSERT INTO numbers (n)
             SELECT (CASE WHEN i % 2 = 0 THEN 1 ELSE -1 END)
                    * round((random() * 1e9)::numeric * 10::numeric ^ (i % 40 - 20), (i * 7) % 45) FROM generate_series(1, 20000) AS i");
        run(
            "INSERT INTO numbers (n) SELECT i * 10::numeric ^ (k - 30) FROM generate_series(0, 20) AS i, generate_series(0, 60) AS k",
        );
        let differing = "SELECT count(*) FROM numbers AS w JOIN automation_internal.event AS e ON w.id = e.entity_id::int AND e.kind = 'numbers'
                          WHERE e.next ->> 'n' IS DISTINCT FROM w.n::text";
        assert_eq!(number(differing), 0);
        assert!(number("SELECT count(*) FROM automation.events WHERE kind = 'numbers'") > 21_000);
    }

    #[pg_test]
    fn a_value_over_the_limit_is_left_out_and_the_write_succeeds() {
        shop();
        run("INSERT INTO orders (id, note) VALUES (1, repeat('x', 200000))");
        assert_eq!(
            text("SELECT truncated::text || ' ' || coalesce(next ->> 'note', 'null') FROM automation.events")
                .as_deref(),
            Some("true null")
        );
    }

    #[pg_test(error = "cannot watch view public.v")]
    fn a_view_is_refused() {
        run("CREATE VIEW v AS SELECT 1 AS id");
        run("SELECT automation.watch_table('v')");
    }
}
