-- The six events of examples/lenserfight.sql (R004-2 to R004-5, R004-7, R004-12, R004-14): each fires on its transition, once.
\getenv srcdir PG_ABS_SRCDIR
\set example :srcdir '/examples/lenserfight.sql'
\set ECHO none
\i :example
\set ECHO all
SELECT kind, topic, condition FROM automation.derived_events
 WHERE kind IN ('battles', 'moderation_decisions', 'workflow_runs', 'team_runs');
INSERT INTO battles.battles (id) VALUES (1), (2);
INSERT INTO audit.moderation_decisions VALUES (1, 1, 'flagged'), (2, 1, 'fine');
INSERT INTO lenses.workflow_runs (id) VALUES (101), (102), (103);
INSERT INTO agents.team_runs (id) VALUES (1), (2);
SELECT automation.drain() > 0 AS drained;
SELECT message FROM public.notifications ORDER BY id;
-- each by its transition (R004-2, R004-3, R004-5), through the platform's own filter (R004-7); a notification is a row of the
-- platform's own table (R004-14)
UPDATE battles.battles SET status = 'closed', winner_contender_id = 'ada', finalized_at = now() WHERE id = 1;
UPDATE battles.battles SET status = 'closed', finalized_at = now() WHERE id = 2;
UPDATE lenses.workflow_runs SET status = 'succeeded' WHERE id = 101;
UPDATE lenses.workflow_runs SET status = 'failed' WHERE id = 102;
UPDATE lenses.workflow_runs SET status = 'timed_out' WHERE id = 103;
UPDATE agents.team_runs SET approval_status = 'approved' WHERE id = 1;
UPDATE agents.team_runs SET approval_status = 'timed_out' WHERE id = 2;
SELECT automation.drain() > 0 AS drained;
SELECT message FROM public.notifications ORDER BY id;
-- dispatch_workflow is a row of the platform's own table, with where it comes from (R004-4, R004-12)
SELECT status, metadata FROM lenses.workflow_runs WHERE id < 100;
-- what is recorded of each table (R004-6)
SELECT kind, string_agg(DISTINCT f, ', ' ORDER BY f) FROM automation.events, jsonb_object_keys(next) AS f
 WHERE kind IN ('battles', 'moderation_decisions', 'workflow_runs', 'team_runs') GROUP BY kind ORDER BY kind;
-- an update that is none is nothing, also if the dispatcher is run again by hand (R004-11)
UPDATE battles.battles SET finalized_at = finalized_at + interval '1 second';
UPDATE audit.moderation_decisions SET decision_type = 'flagged';
UPDATE lenses.workflow_runs SET metadata = '{"more": 1}';
SELECT automation.drain() > 0 AS drained, automation.drain();
SELECT count(*) FROM public.notifications;
SELECT count(*) FROM lenses.workflow_runs;
SELECT automation, status, count(*) FROM automation.runs WHERE automation IN ('publish-result', 'tell-operators') GROUP BY automation, status ORDER BY automation, status;
SELECT automation.drop_automation('publish-result'), automation.drop_automation('tell-operators');
SELECT automation.unwatch_table('battles.battles'), automation.unwatch_table('audit.moderation_decisions'),
       automation.unwatch_table('lenses.workflow_runs'), automation.unwatch_table('agents.team_runs');
SET client_min_messages = warning;
DROP SCHEMA battles, audit, lenses, agents CASCADE;
DROP TABLE public.notifications;
