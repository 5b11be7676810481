-- Runs last: functions that call ours, grants, comments.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE FUNCTION automation_internal.define_document(document jsonb, owner text, wanted text)
RETURNS TABLE (name text, version integer, status text, notices text[])
LANGUAGE c AS 'MODULE_PATHNAME', 'define_document_wrapper';
COMMENT ON FUNCTION automation_internal.define_document(jsonb, text, text) IS 'What automation.define() calls.';

CREATE FUNCTION automation_internal.define_text(document text, owner text, wanted text)
RETURNS TABLE (name text, version integer, status text, notices text[])
LANGUAGE c AS 'MODULE_PATHNAME', 'define_text_wrapper';
COMMENT ON FUNCTION automation_internal.define_text(text, text, text) IS 'What automation.define() calls for a document in text form.';

CREATE FUNCTION automation.extract_refs(condition text)
RETURNS TABLE (ref text, kind text, entity_id text) IMMUTABLE STRICT
LANGUAGE c AS 'MODULE_PATHNAME', 'extract_refs_wrapper';

CREATE FUNCTION automation_internal.announce_extension() RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'announce_extension_wrapper';
COMMENT ON FUNCTION automation_internal.announce_extension() IS 'Starts the workers once the extension is there.';

CREATE FUNCTION automation_internal.worker_list()
RETURNS TABLE (worker text, pid integer, state text, owner text, runs bigint, failed_runs bigint, batches bigint,
               events bigint, dispatches bigint, errors bigint, started_at timestamptz)
LANGUAGE c AS 'MODULE_PATHNAME', 'worker_list_wrapper';
COMMENT ON FUNCTION automation_internal.worker_list() IS 'What automation.stat_workers shows.';

CREATE TYPE automation.definition AS (name text, version integer, status text, notices text[]);
COMMENT ON TYPE automation.definition IS 'What define() answers.';

CREATE FUNCTION automation_internal.text_or_object(given text)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE WHEN pg_catalog.ltrim(given) LIKE '{%' THEN given::jsonb ELSE pg_catalog.to_jsonb(given) END;
END;
COMMENT ON FUNCTION automation_internal.text_or_object(text) IS 'A text as documents hold it: in words, or an object.';

CREATE FUNCTION automation.define(name text DEFAULT NULL, trigger automation.trigger DEFAULT NULL,
                                  steps automation.step[] DEFAULT NULL, triggers automation.trigger[] DEFAULT NULL,
                                  description text DEFAULT NULL, condition text DEFAULT NULL, key text DEFAULT NULL,
                                  ordering text DEFAULT NULL, tenant text DEFAULT NULL, run_as text DEFAULT NULL,
                                  status text DEFAULT NULL, document text DEFAULT NULL,
                                  on_failure automation.step[] DEFAULT NULL, on_pause text DEFAULT NULL,
                                  max_steps integer DEFAULT NULL, timeout interval DEFAULT NULL,
                                  mode text DEFAULT NULL, max_runs integer DEFAULT NULL,
                                  max_executions text DEFAULT NULL, entity_lock boolean DEFAULT NULL,
                                  dedup jsonb DEFAULT NULL, priority integer DEFAULT NULL,
                                  retention text DEFAULT NULL, concurrency integer DEFAULT NULL,
                                  breaker integer DEFAULT NULL)
RETURNS SETOF automation.definition LANGUAGE sql
BEGIN ATOMIC
    -- one text in curly braces is a document
    SELECT d.name, d.version, d.status, d.notices
      FROM automation_internal.define_text(COALESCE($12, $1), $10, $11) AS d
     WHERE $12 IS NOT NULL
        OR ($2 IS NULL AND $3 IS NULL AND $4 IS NULL AND pg_catalog.ltrim($1) LIKE '{%')
 UNION ALL
    SELECT d.name, d.version, d.status, d.notices
      FROM automation_internal.define_document(
               pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
                   'name', $1, 'description', $5, 'condition', $6, 'key', $7, 'ordering', $8, 'tenant', $9,
                   'on_failure', pg_catalog.to_jsonb($13), 'on_pause', $14, 'max_steps', $15,
                   'timeout', automation_internal.duration($16), 'mode', $17, 'max_runs', $18,
                   'max_executions', automation_internal.text_or_object($19), 'entity_lock', $20, 'dedup', $21,
                   'priority', $22, 'retention', automation_internal.text_or_object($23), 'concurrency', $24,
                   'breaker', CASE WHEN $25 = 0 THEN jsonb 'false' ELSE pg_catalog.to_jsonb($25) END))
               || pg_catalog.jsonb_build_object(
                   'triggers', COALESCE(pg_catalog.to_jsonb($4), '[]')
                               || CASE WHEN $2 IS NULL THEN '[]' ELSE pg_catalog.jsonb_build_array($2::jsonb) END,
                   'steps', COALESCE(pg_catalog.to_jsonb($3), '[]')),
               $10, $11) AS d
     WHERE NOT ($12 IS NOT NULL
        OR ($2 IS NULL AND $3 IS NULL AND $4 IS NULL AND pg_catalog.ltrim($1) LIKE '{%'));
END;
COMMENT ON FUNCTION automation.define(text, automation.trigger, automation.step[], automation.trigger[], text, text, text, text, text, text, text, text, automation.step[], text, integer, interval, text, integer, text, boolean, jsonb, integer, text, integer, integer) IS 'Defines an automation, or a new version of one; does nothing if nothing changed.';

CREATE FUNCTION automation.define(document jsonb)
RETURNS SETOF automation.definition LANGUAGE sql
BEGIN ATOMIC
    SELECT d.name, d.version, d.status, d.notices FROM automation_internal.define_document($1, NULL, NULL) AS d;
END;
COMMENT ON FUNCTION automation.define(jsonb) IS 'Defines an automation from its document.';

CREATE VIEW automation.stat_workers WITH (security_barrier) AS
SELECT w.worker, w.pid, w.state, w.owner, w.runs, w.failed_runs, w.batches, w.events, w.dispatches, w.errors,
       w.started_at
  FROM automation_internal.worker_list() AS w;
COMMENT ON VIEW automation.stat_workers IS 'The processes that work for this database.';
COMMENT ON COLUMN automation.stat_workers.worker IS 'conductor, executor or courier.';
COMMENT ON COLUMN automation.stat_workers.pid IS 'Its process id, see pg_stat_activity.';
COMMENT ON COLUMN automation.stat_workers.state IS 'running, idle, busy, starting or not running.';
COMMENT ON COLUMN automation.stat_workers.owner IS 'The role an executor works as; NULL if you may neither act for that role nor see the statistics of all roles.';
COMMENT ON COLUMN automation.stat_workers.runs IS 'Runs since it started.';
COMMENT ON COLUMN automation.stat_workers.failed_runs IS 'How many of them failed.';
COMMENT ON COLUMN automation.stat_workers.batches IS 'Transactions with work in them.';
COMMENT ON COLUMN automation.stat_workers.events IS 'Events routed.';
COMMENT ON COLUMN automation.stat_workers.dispatches IS 'Dispatches written.';
COMMENT ON COLUMN automation.stat_workers.errors IS 'Turns that failed; of a courier, attempts that did not deliver.';
COMMENT ON COLUMN automation.stat_workers.started_at IS 'When it started.';

CREATE FUNCTION automation.timeline(run bigint)
RETURNS SETOF text LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT l.line
      FROM (SELECT 0 AS place,
                   'run ' || r.id || ' of "' || r.automation || '" version ' || r.version || ': ' || r.status
                   || COALESCE(' (' || r.ended_reason || ')', '')
                   || COALESCE(' in ' || pg_catalog.round((EXTRACT(epoch FROM r.took) * 1000)::numeric, 1) || ' ms', '')
                   AS line
              FROM automation.runs AS r
             WHERE r.id = $1
         UNION ALL
            SELECT 1,
                   'event ' || e.id || ' ' || e.topic || COALESCE(' ' || e.kind || ':' || e.entity_id, '')
                   || COALESCE(' by ' || e.actor, ' by ' || e.role)
              FROM automation.runs AS r
              JOIN automation.events AS e ON e.id = r.event_id
             WHERE r.id = $1
         UNION ALL
            SELECT 1 + s.seq,
                   'step ' || s.step || ' (' || s.kind || '): ' || s.status
                   || COALESCE(' in ' || pg_catalog.round((EXTRACT(epoch FROM s.took) * 1000)::numeric, 1) || ' ms', '')
                   || COALESCE(' ' || NULLIF(s.result::text, '{}'), '') || COALESCE(' ' || s.error, '')
              FROM automation.run_steps AS s
             WHERE s.run_id = $1) AS l
     ORDER BY l.place;
END;
COMMENT ON FUNCTION automation.timeline(bigint) IS 'What a run did, line by line.';

-- Nothing for PUBLIC, not even to look.
REVOKE ALL ON SCHEMA automation FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA automation, automation_internal FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA automation, automation_internal FROM PUBLIC;
-- But for one: Postgres copies the capture trigger to every new partition of a watched table, and asks then whether the
-- owner of the table may execute its function. Without USAGE on the schema no role can name the function itself.
GRANT EXECUTE ON FUNCTION automation_internal.capture_change() TO PUBLIC;

COMMENT ON FUNCTION automation.watch_table IS 'Records every change of a table from now on; returns the kind its rows are known as.';
COMMENT ON FUNCTION automation.unwatch_table IS 'Stops recording changes of a table.';
COMMENT ON FUNCTION automation.derive_event IS 'Gives the changes of a kind for which a condition holds a further topic; returns the name of the rule.';
COMMENT ON FUNCTION automation.drop_derived_event IS 'Removes a rule of derive_event(); true if it was there.';
COMMENT ON FUNCTION automation.set_state IS 'Gives an entity without a table its state; returns the event''s id if that is a change.';
COMMENT ON FUNCTION automation.patch_state IS 'Merges fields into the state of an entity without a table; null removes a field.';
COMMENT ON FUNCTION automation.remove_state IS 'Removes an entity without a table.';
COMMENT ON FUNCTION automation.state IS 'Current state of an entity as expressions see it.';
COMMENT ON FUNCTION automation.subscribe IS 'Has events whose topic matches a pattern told by NOTIFY on a channel.';
COMMENT ON FUNCTION automation.unsubscribe IS 'Ends a subscription.';
COMMENT ON FUNCTION automation.grant_topic IS 'Lets a role start your automations by events it emits on topics under a prefix (emit), or hear those that you emit there (listen).';
COMMENT ON FUNCTION automation.revoke_topic IS 'Takes back a right that grant_topic() gave.';
COMMENT ON FUNCTION automation.emit IS 'Publishes an event on a topic of your own; returns its id.';
COMMENT ON FUNCTION automation.validate IS 'Lists everything that is wrong with a document, without saving it.';
COMMENT ON FUNCTION automation.document IS 'The document of an automation as it is stored.';
COMMENT ON FUNCTION automation.activate IS 'Starts a draft or paused automation.';
COMMENT ON FUNCTION automation.resume IS 'Starts a paused automation again; with tenant => ..., one that is paused for a tenant, for that tenant.';
COMMENT ON FUNCTION automation.pause IS 'Stops an automation from starting runs, or with tenant => ... one without a tenant for that tenant; its on_pause says what becomes of runs under way.';
COMMENT ON FUNCTION automation.revert_to_draft IS 'Makes a paused automation a draft again.';
COMMENT ON FUNCTION automation.drop_automation IS 'Removes an automation; its history stays. Runs under way are cancelled, or go on to their end with runs => ''finish''.';
COMMENT ON FUNCTION automation.start_run IS 'Starts a run by hand, for a tenant if one is named; it begins when this transaction has committed.';
COMMENT ON FUNCTION automation.start_with_event IS 'Starts a run as if an event had happened; the same event again within ten minutes is the same run.';
COMMENT ON FUNCTION automation.cancel_run(bigint) IS 'Cancels a run that has not ended, with the runs it waits for; a statement that it executes is interrupted.';
COMMENT ON FUNCTION automation.cancel_run(text) IS 'Cancels every run of yours that has not ended and for which a condition over run holds.';
COMMENT ON FUNCTION automation.backfill IS 'Runs an automation for each row of a query, as if the row had just been written; returns the job, see progress.';
COMMENT ON FUNCTION automation.approve_bulk IS 'Lets a bulk job that waits for approval go on.';
COMMENT ON FUNCTION automation.cancel_bulk IS 'Ends a bulk job: rows under way are cancelled, the others are not begun.';
COMMENT ON FUNCTION automation.signal IS 'Sends a signal to a run that waits for it by wait_signal(), or will.';
COMMENT ON FUNCTION automation.skip_step IS 'Makes a run go on without the step it waits at, or behind the step at which it failed.';
COMMENT ON FUNCTION automation.retry_run IS 'Takes up a failed run again, once: where it failed, or from a step, also one of a lane; returns the new run.';
COMMENT ON FUNCTION automation.redrive IS 'Tries again what the engine gave up on, see dead_letters.';
COMMENT ON FUNCTION automation.versions IS 'The versions of an automation, newest first.';
COMMENT ON FUNCTION automation.run_timers IS 'Turns timers that are due into work by hand, as the conductor does.';
COMMENT ON FUNCTION automation.set_clock IS 'Sets the clock by which drain() goes in this session, to try out what takes time; NULL unsets it.';
COMMENT ON FUNCTION automation.advance IS 'Moves this session''s clock forward.';
COMMENT ON FUNCTION automation.route IS 'Routes committed events by hand, as the conductor does.';
COMMENT ON FUNCTION automation.dispatch IS 'Runs queued work by hand, as executors do.';
COMMENT ON FUNCTION automation.drain IS 'Routes and runs until nothing is left, including what this transaction wrote; leaves to a conductor at work what others have committed.';
COMMENT ON FUNCTION automation.sweep IS 'Does the housekeeping: partitions, retention, counters.';
COMMENT ON FUNCTION automation.start_workers IS 'Starts the workers of this database.';
COMMENT ON FUNCTION automation.stop_workers IS 'Stops the workers of this database.';
COMMENT ON FUNCTION automation.status IS 'The engine''s condition: workers, watched tables (those you have no right on are only counted), queue.';
COMMENT ON FUNCTION automation.grant_usage IS 'Lets a role use the engine: as viewer, operator, author or admin.';
COMMENT ON FUNCTION automation.revoke_usage IS 'Takes all rights that grant_usage() gave to a role.';
COMMENT ON FUNCTION automation.evaluate IS 'Evaluates an expression over given values.';
COMMENT ON FUNCTION automation.extract_refs IS 'Which entities a condition reads; an entity_id of NULL is all of the kind.';
COMMENT ON FUNCTION automation.match_topic IS 'Does a topic match a pattern?';
COMMENT ON FUNCTION automation.match_filter IS 'Does a payload match a JSON-Pointer filter?';
COMMENT ON FUNCTION automation.next_fire IS 'The next times at which a cron schedule fires.';

SELECT automation_internal.announce_extension();
