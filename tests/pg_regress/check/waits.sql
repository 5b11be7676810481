\set ECHO none
-- What must be true of runs that wait, whenever no walk is under way. Returns what breaks it, so it must return nothing.
WITH wait AS (
    SELECT r.id AS run_id, (w.value ->> 'no')::integer AS wait_no, w.value ->> 'step' AS step, r.status
      FROM automation_internal.run AS r
     CROSS JOIN LATERAL json_array_elements(r.waits) AS w
), nudge AS (
    SELECT i.run_id, i.wait_no, 'wake' AS what FROM automation_internal.wake_index AS i
    UNION ALL
    SELECT t.run_id, t.wait_no, 'timer' FROM automation_internal.timer AS t
    UNION ALL
    SELECT d.run_id, d.wait_no, 'dispatch' FROM automation_internal.dispatch AS d WHERE d.wait_no IS NOT NULL
)
SELECT 'nothing can end this wait' AS broken, w.run_id, w.wait_no, w.step AS what
  FROM wait AS w
 WHERE w.status = 'waiting'
   AND NOT EXISTS (SELECT FROM nudge AS n WHERE n.run_id = w.run_id AND n.wait_no = w.wait_no)
UNION ALL
SELECT 'belongs to no wait', n.run_id, n.wait_no, n.what
  FROM nudge AS n
 WHERE n.what <> 'dispatch'
   AND NOT EXISTS (SELECT FROM wait AS w WHERE w.run_id = n.run_id AND w.wait_no = n.wait_no)
   AND NOT (n.wait_no = 0 AND n.what = 'timer' AND EXISTS (SELECT FROM automation_internal.run AS r WHERE r.id = n.run_id))
UNION ALL
SELECT 'waits for nothing', r.id, NULL, r.status
  FROM automation_internal.run AS r
 WHERE r.status = 'waiting' AND json_array_length(r.waits) = 0
UNION ALL
SELECT 'is queued behind no run and not called', q.id, NULL, q.mode_key
  FROM automation_internal.run AS q
 WHERE q.status = 'queued'
   AND NOT EXISTS (SELECT FROM automation_internal.run AS b
                    WHERE b.automation_id = q.automation_id AND b.mode_key = q.mode_key AND b.id <> q.id
                      AND (b.status <> 'queued' OR (b.started_at, b.id) < (q.started_at, q.id)))
   AND NOT EXISTS (SELECT FROM nudge AS n WHERE n.run_id = q.id)
UNION ALL
SELECT 'has two deadlines', t.run_id, t.wait_no, count(*)::text
  FROM automation_internal.timer AS t
 WHERE t.reason IN ('d', 'l', 'x')
 GROUP BY t.run_id, t.wait_no, t.reason
HAVING count(*) > 1
UNION ALL
SELECT 'is twice in the index', i.run_id, i.wait_no, i.source::text || ' ' || i.kind || ' ' || coalesce(i.entity_id, '(any)')
  FROM automation_internal.wake_index AS i
 GROUP BY i.run_id, i.wait_no, i.source, i.kind, i.entity_id
HAVING count(*) > 1
UNION ALL
SELECT 'lives and has ended', r.id, NULL, h.status
  FROM automation_internal.run AS r JOIN automation_internal.run_history AS h ON h.id = r.id
UNION ALL
SELECT 'ended more than once', h.id, NULL, count(*)::text
  FROM automation_internal.run_history AS h GROUP BY h.id HAVING count(*) > 1
UNION ALL
SELECT 'its parent does not wait for it', r.id, NULL, r.parent::text
  FROM automation_internal.run AS r
 WHERE r.parent IS NOT NULL
   AND NOT EXISTS (SELECT FROM automation_internal.wake_index AS i
                    WHERE i.run_id = r.parent AND i.source = 'r' AND i.entity_id = r.id::text)
UNION ALL
SELECT 'active is ' || s.active || ', not ' || s.live, NULL, NULL, s.name
  FROM (SELECT a.name,
               (SELECT coalesce(sum(t.entered - t.completed - t.failed - t.cancelled - t.skipped), 0)
                  FROM automation_internal.stat AS t WHERE t.automation_id = a.id) AS active,
               (SELECT count(*) FROM automation_internal.run AS r WHERE r.automation_id = a.id) AS live
          FROM automation_internal.automation AS a) AS s
 WHERE s.active <> s.live;
\set ECHO all
