-- Runs last: rights on all objects, comments on the functions that pgrx generates, and the call that starts the workers.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE FUNCTION automation_internal.announce_extension() RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'announce_extension_wrapper';
COMMENT ON FUNCTION automation_internal.announce_extension() IS 'Starts the workers once the extension is there.';

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
COMMENT ON FUNCTION automation.match_topic IS 'Does a topic match a pattern?';
COMMENT ON FUNCTION automation.match_filter IS 'Does a payload match a JSON-Pointer filter?';
COMMENT ON FUNCTION automation.next_fire IS 'The next times at which a cron schedule fires.';

SELECT automation_internal.announce_extension();
