SET LOCAL search_path = pg_catalog, pg_temp;
-- Public views: plural, newest first. Each shows a caller only what belongs to roles it is a member of; a superuser
-- is a member of all. docs/rights.md says so view by view, and tests/pg_regress/sql/zz_rights.sql holds each view to it:
-- a security barrier, and for each table with an owner the clause pg_catalog.pg_has_role(<owner>, 'USAGE'). The clause is
-- written out, since a function of ours would need EXECUTE for every role that was granted SELECT on one view alone.

CREATE VIEW automation.automations WITH (security_barrier) AS
SELECT a.name,
       a.status,
       a.version,
       v.document ->> 'description' AS description,
       (SELECT pg_catalog.string_agg(t.value ->> 'id', ', ' ORDER BY t.ordinality)
          FROM pg_catalog.jsonb_array_elements(v.document -> 'triggers') WITH ORDINALITY AS t) AS triggers,
       pg_catalog.jsonb_array_length(v.document -> 'steps') AS steps,
       COALESCE((SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE r.oid = a.owner), a.owner_name) AS owner,
       a.tenant,
       a.disabled_by,
       a.disable_details,
       a.created_at,
       a.updated_at,
       a.activated_at,
       a.paused_at
  FROM automation_internal.automation AS a
  JOIN automation_internal.automation_version AS v ON v.id = a.version_id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY a.name, a.tenant NULLS FIRST;
COMMENT ON VIEW automation.automations IS 'Your automations, one row each.';
COMMENT ON COLUMN automation.automations.name IS 'The name it was defined with.';
COMMENT ON COLUMN automation.automations.status IS 'draft, active or paused. Only an active one starts runs.';
COMMENT ON COLUMN automation.automations.version IS 'Counts the definitions; a run keeps the version it started with.';
COMMENT ON COLUMN automation.automations.description IS 'What its author says it is for.';
COMMENT ON COLUMN automation.automations.triggers IS 'Ids of its triggers.';
COMMENT ON COLUMN automation.automations.steps IS 'How many steps it has.';
COMMENT ON COLUMN automation.automations.owner IS 'The role whose rights its steps have; its last known name if it does not exist any more.';
COMMENT ON COLUMN automation.automations.tenant IS 'The tenant whose events it sees, NULL for all.';
COMMENT ON COLUMN automation.automations.disabled_by IS 'Who paused it: a person (user) or the engine (system).';
COMMENT ON COLUMN automation.automations.disable_details IS 'When and why it was paused.';
COMMENT ON COLUMN automation.automations.created_at IS 'When it was first defined.';
COMMENT ON COLUMN automation.automations.updated_at IS 'When its definition or status last changed.';
COMMENT ON COLUMN automation.automations.activated_at IS 'When it was first activated.';
COMMENT ON COLUMN automation.automations.paused_at IS 'When it was paused, if it is.';

CREATE VIEW automation.runs WITH (security_barrier) AS
SELECT r.id,
       a.name AS automation,
       v.version,
       r.status,
       r.key,
       r.kind || ':' || r.entity_id AS entity,
       r.waiting_for,
       r.started_at,
       r.took,
       r.steps,
       CASE WHEN r.error IS NOT NULL
            THEN COALESCE(r.error ->> 'sqlstate', '') || ': ' || (r.error ->> 'message') END AS error,
       COALESCE(a.tenant, r.tenant) AS tenant,
       CASE WHEN r.trigger_no < 0 THEN 'manual'
            ELSE v.document -> 'triggers' -> r.trigger_no::integer ->> 'id' END AS trigger,
       r.event_id,
       r.parent,
       r.ended_at,
       r.ended_reason,
       r.attempt,
       r.error ->> 'sqlstate' AS sqlstate,
       r.error ->> 'message' AS message,
       r.error ->> 'detail' AS detail,
       r.error ->> 'hint' AS hint,
       r.error ->> 'context' AS context,
       (r.now ->> 'pid')::integer AS pid,
       r.now ->> 'step' AS step,
       timestamptz '2000-01-01 00:00:00+00' + (r.now ->> 'since')::bigint * interval '1 microsecond' AS since,
       (SELECT t.retry_of FROM automation_internal.run_retry AS t WHERE t.run_id = r.id) AS retry_of
  FROM (SELECT h.id, h.automation_id, h.version_id, h.trigger_no, h.event_id, h.status, h.key, h.kind, h.entity_id,
               h.started_at, h.ended_at, h.ended_at - h.started_at AS took,
               pg_catalog.json_array_length(COALESCE(h.steps, '[]')) AS steps, h.error, h.tenant, h.ended_reason,
               h.attempt, h.owner, h.parent, NULL::text AS waiting_for, NULL::jsonb AS now
          FROM automation_internal.run_history AS h
        UNION ALL
        SELECT l.id, l.automation_id, l.version_id, l.trigger_no, l.event_id,
               CASE WHEN (SELECT automation_internal.running()) ? l.id::text THEN 'running'
                    WHEN l.status = 'queued' THEN 'pending' ELSE 'waiting' END, l.key, l.kind, l.entity_id,
               l.started_at, NULL, COALESCE(timestamptz '2000-01-01 00:00:00+00'
                + pg_catalog.substring(pg_catalog.current_setting('automation_engine.clock', true),
                                     '^(-\d{1,17}|\d{1,18})$')::bigint * interval '1 microsecond',
                pg_catalog.clock_timestamp()) - l.started_at,
               pg_catalog.json_array_length(l.steps), NULL, l.tenant, NULL, 0, l.owner, l.parent,
               CASE WHEN (SELECT automation_internal.running()) ? l.id::text THEN NULL
                    WHEN l.status = 'frozen' THEN 'the automation to be active again'
                    WHEN l.status = 'queued' THEN 'its turn'
                    ELSE (SELECT pg_catalog.string_agg(w.value ->> 'for', '; ' ORDER BY w.ordinality)
                            FROM pg_catalog.json_array_elements(l.waits) WITH ORDINALITY AS w) END,
               -- read once by a query, and no join, which would stand in the way of an index on the number
               (SELECT automation_internal.running()) -> l.id::text
          FROM automation_internal.run AS l
        UNION ALL
        SELECT d.run_id, d.automation_id, d.version_id, d.trigger_no, d.event_id,
               CASE WHEN x.now IS NOT NULL THEN 'running' ELSE 'pending' END, NULL, e.kind, e.entity_id,
               timestamptz '2000-01-01 00:00:00+00' + (x.now ->> 'since')::bigint * interval '1 microsecond', NULL,
               pg_catalog.clock_timestamp()
                - (timestamptz '2000-01-01 00:00:00+00' + (x.now ->> 'since')::bigint * interval '1 microsecond'),
               0, NULL, e.tenant, NULL, d.attempt, d.owner,
               CASE WHEN e.op = 's' THEN (e.next ->> 'parent')::bigint END, NULL, x.now
          FROM automation_internal.dispatch AS d
         CROSS JOIN LATERAL (SELECT (SELECT automation_internal.running()) -> d.run_id::text AS now) AS x
          LEFT JOIN automation_internal.event AS e ON e.id = d.event_id AND e.occurred_at = d.event_at
         WHERE d.reason IN ('t', 'm')) AS r
  JOIN automation_internal.automation AS a ON a.id = r.automation_id
  JOIN automation_internal.automation_version AS v ON v.id = r.version_id
 WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')
 ORDER BY r.id DESC;
COMMENT ON VIEW automation.runs IS 'Every run you may see, newest first: those that are queued, those that execute, those that wait and those that ended.';
COMMENT ON COLUMN automation.runs.id IS 'Number of the run, for timeline(id) and cancel_run(id).';
COMMENT ON COLUMN automation.runs.automation IS 'Which automation.';
COMMENT ON COLUMN automation.runs.version IS 'The version of the definition this run uses.';
COMMENT ON COLUMN automation.runs.status IS 'pending, running, waiting, completed, failed, cancelled, skipped or hot.';
COMMENT ON COLUMN automation.runs.key IS 'The value of the automation''s key expression.';
COMMENT ON COLUMN automation.runs.entity IS 'kind:id of what changed.';
COMMENT ON COLUMN automation.runs.waiting_for IS 'What a waiting run waits for.';
COMMENT ON COLUMN automation.runs.started_at IS 'When an executor began it.';
COMMENT ON COLUMN automation.runs.took IS 'From start to end.';
COMMENT ON COLUMN automation.runs.steps IS 'How many steps were executed or skipped.';
COMMENT ON COLUMN automation.runs.error IS 'SQLSTATE and message of what failed.';
COMMENT ON COLUMN automation.runs.tenant IS 'Tenant of the event, or of the automation.';
COMMENT ON COLUMN automation.runs.trigger IS 'Id of the trigger that fired, or manual.';
COMMENT ON COLUMN automation.runs.event_id IS 'The event that started it, see automation.events.';
COMMENT ON COLUMN automation.runs.parent IS 'The run that started this one.';
COMMENT ON COLUMN automation.runs.ended_at IS 'When it ended.';
COMMENT ON COLUMN automation.runs.ended_reason IS 'Why it ended as it did, for example step_failed.';
COMMENT ON COLUMN automation.runs.attempt IS 'How often a server crash interrupted it.';
COMMENT ON COLUMN automation.runs.sqlstate IS 'SQLSTATE of the error that failed it.';
COMMENT ON COLUMN automation.runs.message IS 'Message of that error.';
COMMENT ON COLUMN automation.runs.detail IS 'DETAIL of that error.';
COMMENT ON COLUMN automation.runs.hint IS 'HINT of that error.';
COMMENT ON COLUMN automation.runs.context IS 'CONTEXT of that error.';
COMMENT ON COLUMN automation.runs.pid IS 'Process id of the executor that executes it now, see pg_stat_activity.';
COMMENT ON COLUMN automation.runs.step IS 'The step that is executed now; of a long name the beginning. (commit) while deferred triggers of the steps execute.';
COMMENT ON COLUMN automation.runs.since IS 'When that executor took it up.';
COMMENT ON COLUMN automation.runs.retry_of IS 'The run that this one repeats, see retry_run().';

CREATE VIEW automation.run_steps WITH (security_barrier) AS
SELECT r.run_id,
       s.ordinality::integer AS seq,
       s.value ->> 'id' AS step,
       s.value ->> 'kind' AS kind,
       s.value ->> 'status' AS status,
       COALESCE((s.value ->> 'attempt')::integer, 1) AS attempt,
       r.started_at + ((s.value ->> 'at_us')::bigint * interval '1 microsecond') AS started_at,
       (s.value ->> 'took_us')::bigint * interval '1 microsecond' AS took,
       (s.value -> 'result')::jsonb AS result,
       s.value -> 'error' ->> 'message' AS error
  FROM (SELECT h.id AS run_id, h.owner, h.started_at, h.steps
          FROM automation_internal.run_history AS h
        UNION ALL
        SELECT l.id, l.owner, l.started_at, l.steps
          FROM automation_internal.run AS l) AS r
 CROSS JOIN LATERAL pg_catalog.json_array_elements(r.steps) WITH ORDINALITY AS s
 WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')
 UNION ALL
SELECT l.id,
       (pg_catalog.json_array_length(l.steps) + w.ordinality)::integer,
       w.value ->> 'step',
       w.value ->> 'kind',
       'waiting',
       1,
       timestamptz '2000-01-01 00:00:00+00' + (w.value ->> 'since')::bigint * interval '1 microsecond',
       NULL,
       NULL,
       NULL
  FROM automation_internal.run AS l
 CROSS JOIN LATERAL pg_catalog.json_array_elements(l.waits) WITH ORDINALITY AS w
 WHERE pg_catalog.pg_has_role(l.owner, 'USAGE')
 ORDER BY run_id DESC, seq;
COMMENT ON VIEW automation.run_steps IS 'The steps of each run in the order in which they were taken.';
COMMENT ON COLUMN automation.run_steps.run_id IS 'The run.';
COMMENT ON COLUMN automation.run_steps.seq IS 'Counts the steps taken, from 1.';
COMMENT ON COLUMN automation.run_steps.step IS 'Id of the step in the definition.';
COMMENT ON COLUMN automation.run_steps.kind IS 'What kind of step: sql, delay, branch ...';
COMMENT ON COLUMN automation.run_steps.status IS 'pending, executing, waiting, completed, failed or skipped.';
COMMENT ON COLUMN automation.run_steps.attempt IS 'Which try this was.';
COMMENT ON COLUMN automation.run_steps.started_at IS 'When it began.';
COMMENT ON COLUMN automation.run_steps.took IS 'How long it took.';
COMMENT ON COLUMN automation.run_steps.result IS 'What it gave back, as steps.<id> shows it to later steps.';
COMMENT ON COLUMN automation.run_steps.error IS 'Message of the error that failed it.';

CREATE VIEW automation.events WITH (security_barrier) AS
SELECT e.id,
       COALESCE(e.topic, e.kind || CASE e.op WHEN 'c' THEN '.created' WHEN 'u' THEN '.updated' WHEN 'd' THEN '.deleted'
                                             WHEN 't' THEN '.truncated' END) AS topic,
       e.kind,
       e.entity_id,
       CASE e.op WHEN 'c' THEN 'created' WHEN 'u' THEN 'updated' WHEN 'd' THEN 'deleted' WHEN 't' THEN 'truncated'
                 WHEN 's' THEN 'started' WHEN 'g' THEN 'signalled' WHEN 'r' THEN 'ended' WHEN 'm' THEN 'moved'
                 ELSE 'emitted' END AS op,
       CASE WHEN e.op = 'u' AND e.changed IS NULL
            THEN ARRAY(SELECT f.name FROM pg_catalog.json_object_keys(e.prev) AS f (name) ORDER BY f.name COLLATE "C")
            ELSE e.changed END AS changed,
       CASE WHEN e.op = 'u' THEN e.next::jsonb || COALESCE(e.prev::jsonb, '{}') ELSE e.prev::jsonb END AS prev,
       CASE WHEN e.op NOT IN ('s', 'm') THEN e.next::jsonb END AS next,
       e.payload::jsonb AS payload,
       e.actor,
       pg_catalog.pg_get_userbyid(e.role) AS role,
       e.cause_run,
       e.depth,
       e.tenant,
       e.dedup_key,
       e.truncated,
       e.occurred_at,
       e.xid
  FROM automation_internal.event AS e
 WHERE CASE
       -- Orders to the engine (a start, a signal, the end of a run, a move), whatever table they are about: their payload
       -- is what the role that gave the order has read, a row of its own query for example.
       WHEN e.op IN ('s', 'g', 'r', 'm') THEN pg_catalog.pg_has_role(e.role, 'USAGE')
       -- Changes of a kind without a table: its owner decides which roles read it.
       WHEN e.relation IS NULL AND e.op IN ('c', 'u', 'd', 't')
       THEN EXISTS (SELECT FROM automation_internal.entity_kind AS k
                     WHERE k.kind = e.kind AND k.relation IS NULL
                       AND (pg_catalog.pg_has_role(k.created_by, 'USAGE')
                            OR EXISTS (SELECT FROM automation_internal.topic_grant AS g
                                        WHERE g.may = 'listen'
                                          AND (g.prefix = '' OR g.prefix = k.kind)
                                          AND g.of_role IN (0, k.created_by)
                                          AND pg_catalog.pg_has_role(g.grantee, 'USAGE'))))
       -- Custom events, by Grants::may_read() of crates/core/src/topic/grants.rs, and events of the engine.
       WHEN e.relation IS NULL
       THEN pg_catalog.pg_has_role(e.role, 'USAGE')
            OR (e.op = 'e'
                AND NOT e.topic LIKE 'automation.%'
                AND EXISTS (SELECT FROM automation_internal.topic_grant AS g
                             WHERE (g.prefix = '' OR g.prefix = e.topic
                                    OR pg_catalog.starts_with(e.topic, g.prefix || '.'))
                               AND CASE WHEN g.may = 'listen'
                                        THEN g.of_role IN (0, e.role) AND pg_catalog.pg_has_role(g.grantee, 'USAGE')
                                        ELSE g.settled
                                             AND (g.of_role = 0 OR pg_catalog.pg_has_role(g.of_role, 'USAGE'))
                                             AND pg_catalog.pg_has_role(e.role, g.grantee, 'USAGE') END))
       -- Changes of a table: SELECT on all of it and USAGE on its schema, as they are now. With row security in force for the
       -- caller, none: no policy can be evaluated for a row as it once was. NULL: the table is gone.
       ELSE COALESCE(pg_catalog.has_table_privilege(e.relation, 'SELECT')
                     AND NOT pg_catalog.row_security_active(e.relation)
                     AND (SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
                            FROM pg_catalog.pg_class AS c
                           WHERE c.oid = e.relation),
                     pg_catalog.pg_has_role(e.role, 'USAGE')) END
 ORDER BY e.id DESC;
COMMENT ON VIEW automation.events IS 'What happened, newest first: changes of tables you may read whole and of kinds you may read, events and orders of your own roles, and events you were granted to hear.';
COMMENT ON COLUMN automation.events.id IS 'Number of the event; rises in the order of a row''s versions.';
COMMENT ON COLUMN automation.events.topic IS 'kind.created, kind.updated, kind.deleted, kind.truncated, or the topic it was published with.';
COMMENT ON COLUMN automation.events.kind IS 'Kind of the entity that changed.';
COMMENT ON COLUMN automation.events.entity_id IS 'Its key as text; a composite key as a JSON list.';
COMMENT ON COLUMN automation.events.op IS 'created, updated, deleted, truncated, emitted, started, signalled, ended (a run) or moved (a run).';
COMMENT ON COLUMN automation.events.changed IS 'Names of the fields that differ.';
COMMENT ON COLUMN automation.events.prev IS 'The entity before.';
COMMENT ON COLUMN automation.events.next IS 'The entity after.';
COMMENT ON COLUMN automation.events.payload IS 'What was published with it.';
COMMENT ON COLUMN automation.events.actor IS 'automation_engine.actor of the writer, or its role; system:automation:<name> for a run''s own writes.';
COMMENT ON COLUMN automation.events.role IS 'The role that wrote.';
COMMENT ON COLUMN automation.events.cause_run IS 'The run that wrote, if one did.';
COMMENT ON COLUMN automation.events.depth IS 'How many runs deep the chain of causes is.';
COMMENT ON COLUMN automation.events.tenant IS 'The tenant it belongs to.';
COMMENT ON COLUMN automation.events.dedup_key IS 'The key that emit() was given.';
COMMENT ON COLUMN automation.events.truncated IS 'Values over the size limit were left out.';
COMMENT ON COLUMN automation.events.occurred_at IS 'When the change was made; its transaction may have committed later.';
COMMENT ON COLUMN automation.events.xid IS 'The transaction that wrote it.';

CREATE VIEW automation.dispatches WITH (security_barrier) AS
SELECT d.id,
       NULLIF(d.run_id, 0) AS run_id,
       a.name AS automation,
       CASE d.reason WHEN 't' THEN 'trigger' WHEN 'm' THEN 'manual' WHEN 'w' THEN 'wake' WHEN 'd' THEN 'due'
                     WHEN 'e' THEN 'event' WHEN 'g' THEN 'signal' WHEN 'r' THEN 'run_ended' WHEN 'k' THEN 'skip'
                     WHEN 'z' THEN 'thaw' WHEN 'x' THEN 'timeout' WHEN 'a' THEN 'arm' WHEN 's' THEN 'sweep'
                     WHEN 'q' THEN 'turn' WHEN 'h' THEN 'hold' WHEN 'b' THEN 'hold_check' WHEN 'o' THEN 'hold_over'
                     WHEN 'j' THEN 'bulk' END AS reason,
       COALESCE(d.event_id, d.cause_id) AS event_id,
       d.attempt,
       d.created_at,
       pg_catalog.pg_get_userbyid(d.owner) AS owner,
       a.tenant
  FROM automation_internal.dispatch AS d
  JOIN automation_internal.automation AS a ON a.id = d.automation_id
 WHERE pg_catalog.pg_has_role(d.owner, 'USAGE')
 ORDER BY d.id DESC;
COMMENT ON VIEW automation.dispatches IS 'Work that is routed but not yet done.';
COMMENT ON COLUMN automation.dispatches.id IS 'Place in the queue.';
COMMENT ON COLUMN automation.dispatches.run_id IS 'The run it will start or move.';
COMMENT ON COLUMN automation.dispatches.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.dispatches.reason IS 'What starts it (trigger, manual) or moves it (wake, due, event, signal, run_ended, skip, thaw, timeout, arm, sweep, turn); hold, hold_check and hold_over are about what is held for a while; bulk begins the next rows of a bulk job.';
COMMENT ON COLUMN automation.dispatches.event_id IS 'The event behind it.';
COMMENT ON COLUMN automation.dispatches.attempt IS 'How often a server crash interrupted it.';
COMMENT ON COLUMN automation.dispatches.created_at IS 'When it was routed.';
COMMENT ON COLUMN automation.dispatches.owner IS 'The role that will run it.';
COMMENT ON COLUMN automation.dispatches.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.waiting WITH (security_barrier) AS
SELECT x.run_id, x.automation, x.step, x.waiting_for, x.since, x.deadline, x.refs, x.kind, x.key, x.entity, x.frozen,
       x.tenant
  FROM (
SELECT l.id AS run_id,
       a.name AS automation,
       w.value ->> 'step' AS step,
       w.value ->> 'for' AS waiting_for,
       timestamptz '2000-01-01 00:00:00+00' + (w.value ->> 'since')::bigint * interval '1 microsecond' AS since,
       timestamptz '2000-01-01 00:00:00+00' + (w.value ->> 'due')::bigint * interval '1 microsecond' AS deadline,
       (SELECT pg_catalog.array_agg(r.value ORDER BY r.ordinality)
          FROM pg_catalog.json_array_elements_text(w.value -> 'refs') WITH ORDINALITY AS r) AS refs,
       w.value ->> 'kind' AS kind,
       l.key,
       l.kind || ':' || l.entity_id AS entity,
       l.status = 'frozen' AS frozen,
       a.tenant,
       w.ordinality AS place
  FROM automation_internal.run AS l
  JOIN automation_internal.automation AS a ON a.id = l.automation_id
 CROSS JOIN LATERAL pg_catalog.json_array_elements(l.waits) WITH ORDINALITY AS w
 WHERE pg_catalog.pg_has_role(l.owner, 'USAGE')
 UNION ALL
SELECT h.run_id,
       a.name,
       h.trigger_id,
       'trigger ' || h.trigger_id || ' to be held',
       h.since,
       h.deadline,
       CASE WHEN h.event ->> 'entity_id' IS NOT NULL
            THEN ARRAY[(h.event ->> 'kind') || ':' || (h.event ->> 'entity_id')] END,
       'hold_for',
       h.key,
       (h.event ->> 'kind') || ':' || (h.event ->> 'entity_id'),
       false,
       a.tenant,
       0
  FROM automation_internal.dwell AS h
  JOIN automation_internal.automation AS a ON a.id = h.automation_id
 WHERE pg_catalog.pg_has_role(h.owner, 'USAGE')) AS x
 ORDER BY x.run_id DESC, x.place;
COMMENT ON VIEW automation.waiting IS 'What your runs wait for, and triggers that are held for a while before they start one (kind hold_for), newest first.';
COMMENT ON COLUMN automation.waiting.run_id IS 'The run, or the one that will be started.';
COMMENT ON COLUMN automation.waiting.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.waiting.step IS 'The step at which it waits, or the trigger that is held.';
COMMENT ON COLUMN automation.waiting.waiting_for IS 'What for: a condition, an event, a signal, a run, or time.';
COMMENT ON COLUMN automation.waiting.since IS 'Since when.';
COMMENT ON COLUMN automation.waiting.deadline IS 'When it is over in any case; of what is held, when it fires.';
COMMENT ON COLUMN automation.waiting.refs IS 'The entities whose change is looked at; kind:* means any.';
COMMENT ON COLUMN automation.waiting.kind IS 'The kind of step; hold_for for a trigger.';
COMMENT ON COLUMN automation.waiting.key IS 'The run''s key; of a trigger, what it is held for.';
COMMENT ON COLUMN automation.waiting.entity IS 'kind:id of what started the run.';
COMMENT ON COLUMN automation.waiting.frozen IS 'The run goes on when its automation is active again.';
COMMENT ON COLUMN automation.waiting.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.timers WITH (security_barrier) AS
SELECT t.due_at,
       t.due_at - COALESCE(timestamptz '2000-01-01 00:00:00+00'
                + pg_catalog.substring(pg_catalog.current_setting('automation_engine.clock', true),
                                     '^(-\d{1,17}|\d{1,18})$')::bigint * interval '1 microsecond',
                pg_catalog.clock_timestamp()) AS due_in,
       a.name AS automation,
       t.run_id,
       CASE t.reason WHEN 'd' THEN 'due' WHEN 'l' THEN 'look again' WHEN 'a' THEN 'arm' WHEN 'x' THEN 'run timeout'
            WHEN 'h' THEN 'hold_for' END AS reason,
       a.tenant
  FROM automation_internal.timer AS t
  JOIN automation_internal.automation AS a ON a.id = t.automation_id
 WHERE pg_catalog.pg_has_role(t.owner, 'USAGE')
 UNION ALL
SELECT s.next_tick,
       s.next_tick - COALESCE(timestamptz '2000-01-01 00:00:00+00'
                + pg_catalog.substring(pg_catalog.current_setting('automation_engine.clock', true),
                                     '^(-\d{1,17}|\d{1,18})$')::bigint * interval '1 microsecond',
                pg_catalog.clock_timestamp()),
       a.name,
       NULL,
       'tick of ' || s.trigger_id,
       a.tenant
  FROM automation_internal.schedule AS s
  JOIN automation_internal.automation AS a ON a.id = s.automation_id
 WHERE s.next_tick IS NOT NULL
   AND a.status = 'active'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY due_at;
COMMENT ON VIEW automation.timers IS 'What happens by itself, soonest first.';
COMMENT ON COLUMN automation.timers.due_at IS 'When.';
COMMENT ON COLUMN automation.timers.due_in IS 'How soon that is.';
COMMENT ON COLUMN automation.timers.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.timers.run_id IS 'The run it moves; none for a tick, which starts one.';
COMMENT ON COLUMN automation.timers.reason IS 'due (a delay, a retry or a timeout is over), look again (time may have made a condition true), arm, run timeout, hold_for (a trigger has been held long enough), tick of a trigger by the clock.';
COMMENT ON COLUMN automation.timers.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.ticks WITH (security_barrier) AS
SELECT t.tick,
       a.name AS automation,
       s.trigger_id AS trigger,
       t.status,
       t.reason,
       t.run_id,
       t.made_up,
       t.missed,
       t.at,
       a.tenant
  FROM automation_internal.tick AS t
  JOIN automation_internal.schedule AS s ON s.id = t.schedule_id
  JOIN automation_internal.automation AS a ON a.id = s.automation_id
 WHERE pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY t.tick DESC;
COMMENT ON VIEW automation.ticks IS 'What became of each tick of your triggers by the clock, newest first; the next ones are in timers.';
COMMENT ON COLUMN automation.ticks.tick IS 'The time of the schedule that it stands for.';
COMMENT ON COLUMN automation.ticks.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.ticks.trigger IS 'Of which of its triggers.';
COMMENT ON COLUMN automation.ticks.status IS 'started (see run_id), queued behind the run before, skipped or missed.';
COMMENT ON COLUMN automation.ticks.reason IS 'Why it started no run, or not yet.';
COMMENT ON COLUMN automation.ticks.run_id IS 'The run it started, see automation.runs.';
COMMENT ON COLUMN automation.ticks.made_up IS 'It was missed and is made up for.';
COMMENT ON COLUMN automation.ticks.missed IS 'How many ticks just before it were missed.';
COMMENT ON COLUMN automation.ticks.at IS 'When that was decided.';
COMMENT ON COLUMN automation.ticks.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.dead_letters WITH (security_barrier) AS
SELECT d.id,
       d.at,
       a.name AS automation,
       d.run_id,
       d.event_id,
       d.reason,
       d.error ->> 'message' AS error,
       (d.delivery ->> 'id')::bigint AS delivery_id,
       a.tenant
  FROM automation_internal.dead_letter AS d
  LEFT JOIN automation_internal.automation AS a ON a.id = d.automation_id
 WHERE pg_catalog.pg_has_role(COALESCE(d.owner, 10), 'USAGE')
 ORDER BY d.id DESC;
COMMENT ON VIEW automation.dead_letters IS 'Work the engine gave up on, newest first; redrive(id) tries it again.';
COMMENT ON COLUMN automation.dead_letters.id IS 'For redrive(id).';
COMMENT ON COLUMN automation.dead_letters.at IS 'When.';
COMMENT ON COLUMN automation.dead_letters.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.dead_letters.run_id IS 'The run.';
COMMENT ON COLUMN automation.dead_letters.event_id IS 'The event.';
COMMENT ON COLUMN automation.dead_letters.reason IS 'Why.';
COMMENT ON COLUMN automation.dead_letters.error IS 'Message of the last error.';
COMMENT ON COLUMN automation.dead_letters.delivery_id IS 'The message that could not be delivered, see deliveries.';
COMMENT ON COLUMN automation.dead_letters.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.stat_automations WITH (security_barrier) AS
SELECT a.name AS automation,
       COALESCE(s.matched, 0) AS matched,
       COALESCE(s.filtered, 0) AS filtered,
       COALESCE(s.filter_errors, 0) AS filter_errors,
       COALESCE(s.refused, 0) AS refused,
       COALESCE(s.held, 0) AS held,
       COALESCE(s.entered, 0) AS entered,
       COALESCE(s.completed, 0) AS completed,
       COALESCE(s.failed, 0) AS failed,
       COALESCE(s.cancelled, 0) AS cancelled,
       COALESCE(s.skipped, 0) AS skipped,
       COALESCE(s.entered - s.completed - s.failed - s.cancelled - s.skipped, 0) AS active,
       COALESCE(s.run_time_us, 0) * interval '1 microsecond' AS run_time,
       s.at AS last_run_at,
       a.tenant
  FROM automation_internal.automation AS a
  LEFT JOIN (SELECT t.automation_id,
                    pg_catalog.sum(t.matched)::bigint AS matched,
                    pg_catalog.sum(t.filtered)::bigint AS filtered,
                    pg_catalog.sum(t.filter_errors)::bigint AS filter_errors,
                    pg_catalog.sum(t.refused)::bigint AS refused,
                    pg_catalog.sum(t.held)::bigint AS held,
                    pg_catalog.sum(t.entered)::bigint AS entered,
                    pg_catalog.sum(t.completed)::bigint AS completed,
                    pg_catalog.sum(t.failed)::bigint AS failed,
                    pg_catalog.sum(t.cancelled)::bigint AS cancelled,
                    pg_catalog.sum(t.skipped)::bigint AS skipped,
                    pg_catalog.sum(t.run_time_us)::bigint AS run_time_us,
                    pg_catalog.max(t.at) FILTER (WHERE t.entered > 0) AS at
               FROM automation_internal.stat AS t
              GROUP BY t.automation_id) AS s ON s.automation_id = a.id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY a.name, a.tenant NULLS FIRST;
COMMENT ON VIEW automation.stat_automations IS 'Counters since each automation was defined.';
COMMENT ON COLUMN automation.stat_automations.automation IS 'Which automation.';
COMMENT ON COLUMN automation.stat_automations.matched IS 'Events that matched a trigger and its filter.';
COMMENT ON COLUMN automation.stat_automations.filtered IS 'Events on a trigger''s topic that its filter refused.';
COMMENT ON COLUMN automation.stat_automations.filter_errors IS 'Events whose filter could not be evaluated; they do not fire.';
COMMENT ON COLUMN automation.stat_automations.refused IS 'Events refused because the chain of causes was too deep.';
COMMENT ON COLUMN automation.stat_automations.held IS 'How often a trigger with hold_for began to be held.';
COMMENT ON COLUMN automation.stat_automations.entered IS 'Runs begun.';
COMMENT ON COLUMN automation.stat_automations.completed IS 'Runs completed.';
COMMENT ON COLUMN automation.stat_automations.failed IS 'Runs failed.';
COMMENT ON COLUMN automation.stat_automations.cancelled IS 'Runs cancelled.';
COMMENT ON COLUMN automation.stat_automations.skipped IS 'Runs whose condition said no, or whose automation was not active any more.';
COMMENT ON COLUMN automation.stat_automations.active IS 'entered - completed - failed - cancelled - skipped.';
COMMENT ON COLUMN automation.stat_automations.run_time IS 'Time spent in its runs.';
COMMENT ON COLUMN automation.stat_automations.last_run_at IS 'When a run last ended.';
COMMENT ON COLUMN automation.stat_automations.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.log WITH (security_barrier) AS
SELECT l.at, l.level, l.code, a.name AS automation, l.run_id, l.event_id, l.message, l.detail, l.times, a.tenant
  FROM automation_internal.log AS l
  LEFT JOIN automation_internal.automation AS a ON a.id = l.automation_id
 WHERE pg_catalog.pg_has_role(COALESCE(l.owner, 10), 'USAGE')
 ORDER BY l.id DESC;
COMMENT ON VIEW automation.log IS 'What the engine noticed, newest first.';
COMMENT ON COLUMN automation.log.at IS 'When.';
COMMENT ON COLUMN automation.log.level IS 'info, warning or error.';
COMMENT ON COLUMN automation.log.code IS 'A short stable name for this kind of message.';
COMMENT ON COLUMN automation.log.automation IS 'The automation concerned.';
COMMENT ON COLUMN automation.log.run_id IS 'The run concerned.';
COMMENT ON COLUMN automation.log.event_id IS 'The event concerned.';
COMMENT ON COLUMN automation.log.message IS 'What happened.';
COMMENT ON COLUMN automation.log.detail IS 'The facts.';
COMMENT ON COLUMN automation.log.times IS 'How often it happened: the same entry is counted for a minute before it is written again.';
COMMENT ON COLUMN automation.log.tenant IS 'Tenant that the automation was defined for.';

CREATE VIEW automation.audit_log WITH (security_barrier) AS
SELECT u.at, u.role, u.action, u.automation, u.details, u.details ->> 'tenant' AS tenant
  FROM automation_internal.audit AS u
 WHERE pg_catalog.pg_has_role(u.role_id, 'USAGE')
    OR pg_catalog.pg_has_role(u.owner, 'USAGE')
 ORDER BY u.id DESC;
COMMENT ON VIEW automation.audit_log IS 'What your roles changed, and what others changed about things of your roles, newest first.';
COMMENT ON COLUMN automation.audit_log.at IS 'When.';
COMMENT ON COLUMN automation.audit_log.role IS 'Who.';
COMMENT ON COLUMN automation.audit_log.action IS 'What, for example automation.activated.';
COMMENT ON COLUMN automation.audit_log.automation IS 'Which automation.';
COMMENT ON COLUMN automation.audit_log.details IS 'Particulars, for example from, to and no_op.';
COMMENT ON COLUMN automation.audit_log.tenant IS 'Tenant that the automation was defined for, or whose runs of it the change concerns.';
SET LOCAL search_path = automation, pg_temp;
