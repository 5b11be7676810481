//! Runs that wait, of every kind: each row of `asked` must leave exactly one row in `effect` once it is released, and
//! one more if its run started another. The tables are those that `tests/invariants.sql` asks.

use std::time::Duration;

use crate::database::Database;

/// The kinds of waits, each an automation of its own.
pub const KINDS: &[&str] = &["until", "delay", "event", "signal", "parent", "lanes", "retry"];

/// Points that only runs which wait pass.
pub const POINTS: &[&str] = &["suspended", "armed", "before_arm_commit", "wakes_found", "timers_taken"];

const SCHEMA: &str = "
    CREATE ROLE patient LOGIN;
    CREATE TABLE asked (id int PRIMARY KEY, kind text NOT NULL);
    CREATE TABLE lamp (id int PRIMARY KEY, lit boolean NOT NULL DEFAULT false);
    CREATE TABLE effect (
        seq bigint GENERATED ALWAYS AS IDENTITY,
        automation text NOT NULL,
        account int NOT NULL,
        version bigint NOT NULL DEFAULT 1,
        change bigint NOT NULL DEFAULT 1,
        run bigint NOT NULL,
        by_role name NOT NULL DEFAULT current_user,
        at timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE VIEW expected_effect AS
        SELECT kind AS automation, id AS account, 1::bigint AS version, 1::bigint AS change FROM asked
         UNION ALL
        SELECT 'child', id, 1, 1 FROM asked WHERE kind = 'parent';
    GRANT SELECT ON asked, lamp TO patient;
    GRANT INSERT ON effect TO patient;
    SELECT automation.watch_table('asked');
    SELECT automation.watch_table('lamp');
    CREATE FUNCTION ask(kind text, waits automation.step[]) RETURNS void LANGUAGE sql AS $$
        SELECT automation.define(kind, run_as => 'patient',
            trigger => automation.on_created('asked', filter => format('new.kind == %L', kind)),
            steps => waits || ARRAY[automation.sql(format(
                'INSERT INTO effect (automation, account, run) VALUES (%L, {{ trigger.new.id }}, {{ run.id }})', kind))]) $$;
    SELECT automation.define('child', run_as => 'patient', trigger => automation.on_call(), steps => ARRAY[
        automation.wait_until('state.lamp[payload.id].lit'),
        automation.sql('INSERT INTO effect (automation, account, run) VALUES (''child'', {{ payload.id }}, {{ run.id }})')]);
    SELECT ask('until', ARRAY[automation.wait_until('state.lamp[new.id].lit', timeout => '1 hour')]);
    SELECT ask('delay', ARRAY[automation.delay('500 milliseconds')]);
    SELECT ask('event', ARRAY[automation.wait_for_event('release', filter => 'payload.id == trigger.new.id')]);
    SELECT ask('signal', ARRAY[automation.wait_signal('go', key => '{{ new.id }}')]);
    SELECT ask('parent', ARRAY[automation.run('child', args => '{\"id\": \"{{ new.id }}\"}')]);
    SELECT ask('lanes', ARRAY[automation.parallel(ARRAY[
        automation.wait_until('state.lamp[new.id].lit'),
        automation.sequence(ARRAY[automation.delay('100 milliseconds'), automation.wait_until('state.lamp[new.id].lit')]),
        automation.wait_signal('go', key => '{{ new.id }}')])]);
    SELECT ask('retry', ARRAY[automation.sql('SELECT 1 / (SELECT lit::int FROM lamp WHERE id = {{ new.id }})',
        retry => automation.retry(delays => array_fill(interval '3 seconds', ARRAY[100])))])";

/// Everything that was asked for has ended, and nothing is left to do.
const SETTLED: &str = "
    SELECT NOT EXISTS (SELECT FROM automation_internal.run)
       AND NOT EXISTS (SELECT FROM automation_internal.dispatch)
       AND NOT EXISTS (SELECT FROM expected_effect AS x
                        WHERE NOT EXISTS (SELECT FROM effect AS e WHERE e.automation = x.automation AND e.account = x.account))";

impl Database<'_> {
    /// Creates the tables and the automations.
    #[track_caller]
    pub fn open_waiting_room(&self) {
        self.execute(SCHEMA);
    }

    /// Asks for so many runs of each kind with numbers from `first` on; returns the next number.
    #[track_caller]
    pub fn ask(&self, first: i64, each: i64) -> i64 {
        let next = first + each * KINDS.len() as i64;
        if let Err(error) = self.try_ask(first, each) {
            panic!("{error}\n{}", self.cluster().log_tail());
        }
        next
    }

    /// The same where the server may be on its way down.
    pub fn try_ask(&self, first: i64, each: i64) -> Result<(), crate::SqlError> {
        let kinds = KINDS.join(",");
        self.try_execute(&format!(
            "WITH n AS (SELECT generate_series({first}, {first} + {each} * {count} - 1) AS id),
                  l AS (INSERT INTO lamp (id) SELECT id FROM n)
             INSERT INTO asked SELECT id, (string_to_array('{kinds}', ','))[id % {count} + 1] FROM n",
            count = KINDS.len()
        ))
    }

    /// Lets the runs of these numbers go on that wait; each kind of wait in a transaction of its own.
    pub fn try_release(&self, from: i64, below: i64) -> Result<(), crate::SqlError> {
        let range = format!("id >= {from} AND id < {below}");
        self.try_execute(&format!("UPDATE lamp SET lit = true WHERE {range} AND NOT lit"))?;
        self.try_execute(&format!(
            "SELECT automation.emit('release', jsonb_build_object('id', id)) FROM asked WHERE kind = 'event' AND {range}"
        ))?;
        self.try_execute(&format!(
            "SELECT automation.signal('go', key => id::text) FROM asked WHERE kind IN ('signal', 'lanes') AND {range}"
        ))
    }

    #[track_caller]
    pub fn release(&self, from: i64, below: i64) {
        if let Err(error) = self.try_release(from, below) {
            panic!("{error}\n{}", self.cluster().log_tail());
        }
    }

    /// Waits until every run of these numbers has begun to wait, and the engine has nothing else to do.
    #[track_caller]
    pub fn wait_until_all_wait(&self, below: i64) {
        self.wait_until(
            "every run waits",
            &format!(
                "SELECT NOT EXISTS (SELECT FROM asked WHERE id < {below} AND kind <> 'delay'
                                       AND NOT EXISTS (SELECT FROM automation_internal.run AS r
                                                        WHERE r.kind = 'asked' AND r.entity_id = asked.id::text))
                    AND NOT EXISTS (SELECT FROM automation_internal.dispatch)
                    AND NOT EXISTS (SELECT FROM automation_internal.timer WHERE reason = 'a')"
            ),
        );
    }

    /// Waits until every run has begun.
    #[track_caller]
    pub fn wait_until_all_have_begun(&self) {
        self.wait_until(
            "every run has begun",
            "SELECT NOT EXISTS (SELECT id::text FROM asked
                                EXCEPT
                                (SELECT entity_id FROM automation_internal.run WHERE kind = 'asked'
                                  UNION ALL
                                 SELECT entity_id FROM automation_internal.run_history WHERE kind = 'asked'))",
        );
    }

    /// Waits until every run has ended, and expects all invariants to hold.
    #[track_caller]
    pub fn expect_all_ended(&self) -> Duration {
        let took = self.wait_at_most(Duration::from_secs(90), "every run has ended", SETTLED);
        self.expect_invariants();
        took
    }
}
