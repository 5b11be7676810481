-- What must be true after any fault, whatever was killed and when. Every query returns the rows that break it, so
-- every query must return none; run them once the queue is empty:  psql -f tests/invariants.sql
--
-- A test provides what it expects and what happened:
--   expected_effect (automation, account, version, change)            one row per committed change and automation
--   effect (seq, automation, account, version, change, run, by_role)  written by the steps, seq in order of writing
-- The names I1 to I10 are those of the project's test plan. I7 comes with deliveries.

-- I1 every expected effect is there
SELECT automation, account, version, change FROM expected_effect
EXCEPT ALL
SELECT automation, account, version, change FROM effect;

-- I1 no effect is there twice, or without its committed change
SELECT automation, account, version, change FROM effect
EXCEPT ALL
SELECT automation, account, version, change FROM expected_effect;

-- I2 no event older than 5 s is unrouted
SELECT e.id, e.xid, e.occurred_at, c.from_snapshot, c.to_snapshot, c.position
  FROM automation_internal.event AS e
 CROSS JOIN automation_internal.router_cursor AS c
 WHERE e.occurred_at < clock_timestamp() - interval '5 seconds'
   AND NOT pg_visible_in_snapshot(e.xid, c.from_snapshot)
   AND NOT COALESCE(pg_visible_in_snapshot(e.xid, c.to_snapshot) AND e.id <= c.position, false);

-- I2 the cursor is one row, whole, and not ahead of the log
SELECT c.*, s.last_value
  FROM (VALUES (true)) AS one (row)
  LEFT JOIN automation_internal.router_cursor AS c ON true
 CROSS JOIN automation_internal.event_id_seq AS s
 WHERE c.singleton IS NULL
    OR c.from_floor > s.last_value + 127
    OR pg_snapshot_xmax(c.from_snapshot) > pg_snapshot_xmax(pg_current_snapshot())
    OR num_nulls(c.to_snapshot, c.to_floor, c.to_ceiling) NOT IN (0, 3)
    OR pg_snapshot_xmax(c.to_snapshot) NOT BETWEEN pg_snapshot_xmax(c.from_snapshot)
                                               AND pg_snapshot_xmax(pg_current_snapshot())
    OR c.to_floor NOT BETWEEN c.from_floor AND c.to_ceiling
    OR c.to_ceiling > s.last_value + 127
    OR c.position > c.to_ceiling
    OR (c.to_snapshot IS NULL AND c.position <> 0);

-- I3 every queued dispatch has its event, its automation and its version
SELECT d.owner, d.id, d.event_id, d.automation_id, d.version_id
  FROM automation_internal.dispatch AS d
 WHERE d.event_id IS NOT NULL AND NOT EXISTS (SELECT FROM automation_internal.event AS e WHERE e.id = d.event_id)
    OR NOT EXISTS (SELECT FROM automation_internal.automation AS a WHERE a.id = d.automation_id AND a.owner = d.owner)
    OR NOT EXISTS (SELECT FROM automation_internal.automation_version AS v
                    WHERE v.id = d.version_id AND v.automation_id = d.automation_id);

-- I3 no run is both queued and ended
SELECT d.id, d.run_id, h.status, h.ended_at
  FROM automation_internal.dispatch AS d
  JOIN automation_internal.run_history AS h ON h.id = d.run_id
 WHERE d.event_id IS NOT NULL;

-- I3 no run both waits and has ended, or waits to be started
SELECT r.id, h.status, d.id
  FROM automation_internal.run AS r
  LEFT JOIN automation_internal.run_history AS h ON h.id = r.id
  LEFT JOIN automation_internal.dispatch AS d ON d.run_id = r.id AND d.event_id IS NOT NULL
 WHERE h.id IS NOT NULL OR d.id IS NOT NULL;

-- I3 every run that waits has a reason to move
SELECT r.id, r.status, r.waits
  FROM automation_internal.run AS r
 WHERE r.status = 'waiting'
   AND NOT EXISTS (SELECT FROM automation_internal.dispatch AS d WHERE d.run_id = r.id)
   AND (json_array_length(r.waits) = 0
        OR EXISTS (SELECT FROM json_array_elements(r.waits) AS w
                    WHERE NOT EXISTS (SELECT FROM automation_internal.timer AS t
                                       WHERE t.run_id = r.id AND t.wait_no = (w ->> 'no')::int)
                      AND NOT EXISTS (SELECT FROM automation_internal.wake_index AS i
                                       WHERE i.run_id = r.id AND i.wait_no = (w ->> 'no')::int)));

-- I3 every queued run has a run before it, or is called: by a dispatch, by the timer of its second look, by an order in the log
SELECT q.id, q.automation_id, q.mode_key, q.started_at
  FROM automation_internal.run AS q
 CROSS JOIN automation_internal.router_cursor AS c
 WHERE q.status = 'queued'
   AND NOT EXISTS (SELECT FROM automation_internal.run AS b
                    WHERE b.automation_id = q.automation_id AND b.mode_key = q.mode_key AND b.id <> q.id
                      AND (b.status <> 'queued' OR (b.started_at, b.id) < (q.started_at, q.id)))
   AND NOT EXISTS (SELECT FROM automation_internal.dispatch AS d WHERE d.run_id = q.id)
   AND NOT EXISTS (SELECT FROM automation_internal.timer AS t WHERE t.run_id = q.id AND t.reason = 'a')
   AND NOT EXISTS (SELECT FROM automation_internal.event AS e
                    WHERE e.op = 'm' AND e.next ->> 'do' = 'turn' AND e.next ->> 'key' = q.mode_key
                      AND (e.next ->> 'automation_id')::int = q.automation_id
                      AND NOT pg_visible_in_snapshot(e.xid, c.from_snapshot)
                      AND NOT COALESCE(pg_visible_in_snapshot(e.xid, c.to_snapshot) AND e.id <= c.position, false));

-- I4 every wait with a deadline has its timer, and every one that depends on something its place in the wake-index
SELECT r.id, w
  FROM automation_internal.run AS r
 CROSS JOIN json_array_elements(r.waits) AS w
 WHERE NOT EXISTS (SELECT FROM automation_internal.dispatch AS d WHERE d.run_id = r.id)
   AND (w ->> 'due' IS NOT NULL
        AND NOT EXISTS (SELECT FROM automation_internal.timer AS t
                         WHERE t.run_id = r.id AND t.wait_no = (w ->> 'no')::int AND t.reason = 'd')
     OR (w ->> 'kind' IN ('wait_for_event', 'wait_signal') OR json_array_length(w -> 'refs') > 0)
        AND NOT EXISTS (SELECT FROM automation_internal.wake_index AS i
                         WHERE i.run_id = r.id AND i.wait_no = (w ->> 'no')::int));

-- I4 no timer and no row of the wake-index is left of a wait that is over
SELECT x.what, x.run_id, x.wait_no
  FROM (SELECT 'wake_index' AS what, i.run_id, i.wait_no FROM automation_internal.wake_index AS i
         UNION ALL
        SELECT 'timer', t.run_id, t.wait_no FROM automation_internal.timer AS t) AS x
 WHERE NOT EXISTS (SELECT FROM automation_internal.run AS r
                    WHERE r.id = x.run_id
                      AND (x.wait_no = 0
                           OR EXISTS (SELECT FROM json_array_elements(r.waits) AS w WHERE (w ->> 'no')::int = x.wait_no)))
   AND NOT EXISTS (SELECT FROM automation_internal.dwell AS d WHERE d.run_id = x.run_id AND x.what = 'timer' AND x.wait_no = 0);

-- I3 what is held has its timer, or its time has come, and it has not become a run
SELECT d.run_id, d.trigger_id, d.key, d.deadline
  FROM automation_internal.dwell AS d
 WHERE NOT EXISTS (SELECT FROM automation_internal.timer AS t
                    WHERE t.run_id = d.run_id AND t.reason = 'h' AND t.due_at = d.deadline)
   AND NOT EXISTS (SELECT FROM automation_internal.dispatch AS q WHERE q.run_id = d.run_id AND q.reason = 'o')
    OR EXISTS (SELECT FROM automation_internal.run_history AS h WHERE h.id = d.run_id)
    OR EXISTS (SELECT FROM automation_internal.run AS r WHERE r.id = d.run_id);

-- I5 no run ended twice
SELECT h.id, count(*), array_agg(h.event_id) AS events, array_agg(h.status) AS statuses
  FROM automation_internal.run_history AS h
 GROUP BY h.id
HAVING count(*) > 1;

-- I5 no event made a trigger of an automation run twice
SELECT h.event_id, h.automation_id, h.trigger_no, array_agg(h.id) AS runs, array_agg(h.status) AS statuses
  FROM automation_internal.run_history AS h
 GROUP BY h.event_id, h.automation_id, h.trigger_no
HAVING count(*) > 1;

-- I5 a completed run has its effect, another one has none
SELECT h.id, a.name, h.status, h.ended_reason, e.seq
  FROM automation_internal.run_history AS h
  JOIN automation_internal.automation AS a ON a.id = h.automation_id
  FULL JOIN effect AS e ON e.run = h.id
 WHERE a.name IN (SELECT x.automation FROM expected_effect AS x)
   AND (h.status = 'completed') IS DISTINCT FROM (e.seq IS NOT NULL)
    OR h.id IS NULL;

-- I5 what a run changed is there only if the run completed; the engine's own events, of kind automation, tell of every run
SELECT e.id, e.kind, e.entity_id, e.cause_run, h.status
  FROM automation_internal.event AS e
  LEFT JOIN automation_internal.run_history AS h ON h.id = e.cause_run
 WHERE e.cause_run IS NOT NULL
   AND e.kind IS DISTINCT FROM 'automation'
   AND h.status IS DISTINCT FROM 'completed';

-- I6 the effects on one account rise with its versions
SELECT f.automation, f.account, f.seq, f.version, f.before
  FROM (SELECT e.automation, e.account, e.seq, e.version,
               lag(e.version) OVER (PARTITION BY e.automation, e.account ORDER BY e.seq) AS before
          FROM effect AS e) AS f
 WHERE f.version <= f.before;

-- I8 every effect was written by the automation's owner
SELECT e.automation, e.seq, e.by_role, a.owner_name
  FROM effect AS e
  LEFT JOIN automation_internal.automation AS a ON a.name = e.automation AND a.status <> 'dropped'
 WHERE e.by_role IS DISTINCT FROM a.owner_name;

-- I10 nothing had to be rescued by the sweep
SELECT l.id, l.run_id, l.message FROM automation_internal.log AS l WHERE l.code = 'rescued_wakeup';
