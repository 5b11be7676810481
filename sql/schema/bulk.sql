SET LOCAL search_path = pg_catalog, pg_temp;
-- Bulk jobs: the rows of a query, each with a run of its own. One executor at a time tends a job (it locks the row of
-- bulk_job); those that end its runs only insert, so that no row is hot. Ids of jobs are drawn from run_id_seq: a run and
-- a job can be waited for, and cancelled, by the same number.

CREATE TABLE automation_internal.bulk_job (
    id              bigint           NOT NULL CONSTRAINT bulk_job_pkey PRIMARY KEY,
    owner           oid              NOT NULL,
    automation_id   integer          NOT NULL,
    version_id      integer          NOT NULL,
    trigger_no      smallint         NOT NULL,
    state           text             NOT NULL,
    needs_approval  boolean          NOT NULL,
    leave_open      boolean          NOT NULL DEFAULT false,
    query           text             NOT NULL,
    params          json             NOT NULL DEFAULT '[]',
    search_path     text             NOT NULL,
    rate            double precision,
    -- what the rows are: as c(reated) or u(pdated) entities of a kind, as e(vents) on a topic, or payloads (NULL)
    rows_as         "char",
    kind            text,
    topic           text,
    -- the run whose step waits for it, whether that goes on while the automation is paused, and what the rows' runs see
    run_id          bigint,
    step_no         integer,
    finishes        boolean          NOT NULL DEFAULT false,
    event           json,
    surroundings    json,
    -- the run that ordered it, if one did
    cause_run       bigint,
    depth           smallint         NOT NULL DEFAULT 0,
    total           bigint           NOT NULL DEFAULT 0,
    error           json,
    created_by      name             NOT NULL,
    created_at      timestamptz      NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz,
    CONSTRAINT bulk_job_state_check CHECK (state IN ('querying', 'approval', 'executing', 'monitoring', 'cancelling',
                                                     'finished', 'failed', 'cancelled')),
    CONSTRAINT bulk_job_rows_as_check CHECK (rows_as IN ('c', 'u', 'e'))
) WITH (fillfactor = 50);
COMMENT ON TABLE automation_internal.bulk_job IS 'Backfills and bulk steps: which rows, and in which state. Changes a few times in the life of a job; how far it is stands in bulk_look.';
-- serves pause, resume and drop
CREATE INDEX bulk_job_automation_id_idx ON automation_internal.bulk_job (automation_id) WHERE finished_at IS NULL;
-- serves retention
CREATE INDEX bulk_job_finished_at_idx ON automation_internal.bulk_job (finished_at) WHERE finished_at IS NOT NULL;

-- A look at a job adds a row and deletes that of the look before, so that every snapshot has one row for each job. A row
-- that is updated instead would leave its dead versions in the way of the next look for as long as any session holds an
-- old snapshot; the latest row is found from the end of the index, without passing those of earlier looks.
CREATE TABLE automation_internal.bulk_look (
    job_id      bigint           NOT NULL,
    look        bigint           NOT NULL,
    issued      bigint           NOT NULL,
    returned    bigint           NOT NULL,
    completed   bigint           NOT NULL,
    failed      bigint           NOT NULL,
    skipped     bigint           NOT NULL,
    cancelled   bigint           NOT NULL,
    waiting     bigint           NOT NULL,
    next_at     timestamptz,
    wake_at     timestamptz,
    -- how many rows had ended when the speed was last measured
    counted     bigint           NOT NULL,
    counted_at  timestamptz,
    speed       double precision,
    -- tallies of transactions that this snapshot sees are in the counters
    seen        pg_snapshot      NOT NULL,
    CONSTRAINT bulk_look_pkey PRIMARY KEY (job_id, look)
);
COMMENT ON TABLE automation_internal.bulk_look IS 'How far each job was at the last look; what ended since is in bulk_tally.';

-- Column order is known to src/store/bulk.rs.
CREATE TABLE automation_internal.bulk_tally (
    job_id     bigint NOT NULL,
    -- the transaction that added the tally
    xid        xid8   NOT NULL,
    completed  bigint NOT NULL,
    failed     bigint NOT NULL,
    skipped    bigint NOT NULL,
    cancelled  bigint NOT NULL,
    returned   bigint NOT NULL,
    waiting    bigint NOT NULL,
    error      json
);
COMMENT ON TABLE automation_internal.bulk_tally IS 'What each batch of runs adds to the counters of a job, until whoever tends the job takes it in.';
-- a look reads the tallies of transactions that the look before did not see
CREATE INDEX bulk_tally_job_id_xid_idx ON automation_internal.bulk_tally (job_id, xid);

CREATE VIEW automation.progress WITH (security_barrier) AS
SELECT p.job,
       p.automation,
       p.state,
       p.total,
       p.done,
       p.failed,
       p.skipped,
       p.cancelled,
       p.active,
       pg_catalog.round(p.speed::numeric, 1) AS rate,
       CASE WHEN p.speed > 0.001 AND p.state IN ('executing', 'monitoring')
            THEN pg_catalog.make_interval(secs => pg_catalog.ceil(
                     (p.total - p.done - p.failed - p.skipped - p.cancelled) / p.speed)) END AS eta,
       p.started_at,
       p.finished_at,
       p.rate_limit,
       p.run_id,
       p.version,
       p.created_by,
       p.created_at,
       p.query,
       p.error
  FROM (SELECT j.id AS job,
               a.name AS automation,
               CASE WHEN j.state = 'executing' AND a.status <> 'active' AND NOT (j.run_id IS NOT NULL AND (a.finish_runs OR j.finishes))
                    THEN 'paused' ELSE j.state END AS state,
               CASE WHEN j.state <> 'querying' THEN j.total END AS total,
               k.completed + COALESCE(t.completed, 0) AS done,
               k.failed + COALESCE(t.failed, 0) AS failed,
               k.skipped + COALESCE(t.skipped, 0) AS skipped,
               k.cancelled + COALESCE(t.cancelled, 0) AS cancelled,
               CASE WHEN j.finished_at IS NULL
                    THEN k.issued - k.completed - k.failed - k.skipped - k.cancelled - k.returned
                         - COALESCE(t.completed + t.failed + t.skipped + t.cancelled + t.returned, 0)
                    ELSE 0 END AS active,
               CASE WHEN j.finished_at IS NOT NULL
                    THEN (k.completed + k.failed + k.skipped)
                         / NULLIF(EXTRACT(epoch FROM j.finished_at - j.started_at)::double precision, 0)
                    ELSE COALESCE(k.speed, j.rate) END AS speed,
               j.started_at,
               j.finished_at,
               j.rate AS rate_limit,
               j.run_id,
               v.version,
               j.created_by,
               j.created_at,
               j.query,
               CASE WHEN j.error IS NOT NULL
                    THEN COALESCE(j.error ->> 'sqlstate', '') || ': ' || (j.error ->> 'message') END AS error
          FROM automation_internal.bulk_job AS j
          JOIN automation_internal.automation AS a ON a.id = j.automation_id
          JOIN automation_internal.automation_version AS v ON v.id = j.version_id
          JOIN LATERAL (SELECT l.*
                          FROM automation_internal.bulk_look AS l
                         WHERE l.job_id = j.id
                         ORDER BY l.look DESC
                         LIMIT 1) AS k ON true
          LEFT JOIN LATERAL (SELECT pg_catalog.sum(y.completed)::bigint AS completed,
                                    pg_catalog.sum(y.failed)::bigint AS failed,
                                    pg_catalog.sum(y.skipped)::bigint AS skipped,
                                    pg_catalog.sum(y.cancelled)::bigint AS cancelled,
                                    pg_catalog.sum(y.returned)::bigint AS returned
                               FROM automation_internal.bulk_tally AS y
                              WHERE y.job_id = j.id
                                -- tallies of older transactions are in the counters
                                AND y.xid >= pg_catalog.pg_snapshot_xmin(k.seen)) AS t ON true
         WHERE pg_catalog.pg_has_role(j.owner, 'USAGE')) AS p
 ORDER BY p.job DESC;
COMMENT ON VIEW automation.progress IS 'Your backfills and bulk steps, newest first: how far they are, how fast, until when.';
COMMENT ON COLUMN automation.progress.job IS 'Number of the job, for approve_bulk(), cancel_bulk() and bulk_items.';
COMMENT ON COLUMN automation.progress.automation IS 'The automation that runs for each row.';
COMMENT ON COLUMN automation.progress.state IS 'querying, approval (waits for approve_bulk), executing, paused (its automation is), monitoring (all are begun), cancelling, finished, failed (the query did) or cancelled.';
COMMENT ON COLUMN automation.progress.total IS 'How many rows the query gave; NULL before it has run.';
COMMENT ON COLUMN automation.progress.done IS 'How many rows are done.';
COMMENT ON COLUMN automation.progress.failed IS 'How many failed.';
COMMENT ON COLUMN automation.progress.skipped IS 'How many were not for the automation: its filter or condition did not hold.';
COMMENT ON COLUMN automation.progress.cancelled IS 'How many were cancelled, or not begun because the job was.';
COMMENT ON COLUMN automation.progress.active IS 'How many are under way: queued, running or waiting.';
COMMENT ON COLUMN automation.progress.rate IS 'Rows per second: lately, or of the whole job once it has ended.';
COMMENT ON COLUMN automation.progress.eta IS 'How long it will take at that rate.';
COMMENT ON COLUMN automation.progress.started_at IS 'When the rows were there and the first could begin.';
COMMENT ON COLUMN automation.progress.finished_at IS 'When it ended.';
COMMENT ON COLUMN automation.progress.rate_limit IS 'Most rows begun in a second; NULL for as many as can be.';
COMMENT ON COLUMN automation.progress.run_id IS 'The run whose bulk step waits for it; NULL for a backfill.';
COMMENT ON COLUMN automation.progress.version IS 'The version of the automation that every row gets.';
COMMENT ON COLUMN automation.progress.created_by IS 'Who ordered it.';
COMMENT ON COLUMN automation.progress.created_at IS 'When it was ordered.';
COMMENT ON COLUMN automation.progress.query IS 'Where its rows come from.';
COMMENT ON COLUMN automation.progress.error IS 'Why the query failed, or the first error of a row.';

-- Column order is known to src/store/bulk.rs.
CREATE TABLE automation_internal.bulk_item (
    job_id  bigint NOT NULL,
    no      bigint NOT NULL,
    run_id  bigint NOT NULL,
    data    json,
    CONSTRAINT bulk_item_pkey PRIMARY KEY (job_id, no)
);
COMMENT ON TABLE automation_internal.bulk_item IS 'The rows of a job''s query as they were when it ran, and the run that each will have.';

CREATE TABLE automation_internal.bulk_outcome (
    job_id  bigint NOT NULL,
    no      bigint NOT NULL,
    run_id  bigint NOT NULL,
    status  text   NOT NULL,
    error   json,
    -- the second wall against a row that counts twice
    CONSTRAINT bulk_outcome_pkey PRIMARY KEY (job_id, no),
    CONSTRAINT bulk_outcome_status_check CHECK (status IN ('completed', 'failed', 'skipped', 'cancelled',
                                                           'returned', 'again'))
);
COMMENT ON TABLE automation_internal.bulk_outcome IS 'What became of the rows of a job. returned: its run was not begun because the automation was paused; again: it has another one since.';
-- serves whoever begins such rows again
CREATE INDEX bulk_outcome_returned_idx ON automation_internal.bulk_outcome (job_id, no) WHERE status = 'returned';

CREATE VIEW automation.bulk_items WITH (security_barrier) AS
SELECT i.job_id AS job,
       i.no,
       CASE WHEN o.status NOT IN ('returned', 'again') THEN o.status
            WHEN j.state = 'cancelled' THEN 'cancelled'
            WHEN o.status = 'returned' OR i.no > k.issued THEN 'pending'
            ELSE 'active' END AS status,
       CASE WHEN o.no IS NOT NULL OR i.no <= k.issued THEN NULLIF(COALESCE(o.run_id, i.run_id), 0) END AS run_id,
       i.data::jsonb AS data,
       CASE WHEN o.error IS NOT NULL
            THEN COALESCE(o.error ->> 'sqlstate', '') || ': ' || (o.error ->> 'message') END AS error
  FROM automation_internal.bulk_item AS i
  JOIN automation_internal.bulk_job AS j ON j.id = i.job_id
  JOIN automation_internal.bulk_look AS k ON k.job_id = i.job_id
  LEFT JOIN automation_internal.bulk_outcome AS o ON o.job_id = i.job_id AND o.no = i.no
 WHERE pg_catalog.pg_has_role(j.owner, 'USAGE')
 ORDER BY i.job_id DESC, i.no;
COMMENT ON VIEW automation.bulk_items IS 'The rows of your backfills and bulk steps, and what became of each.';
COMMENT ON COLUMN automation.bulk_items.job IS 'The job, see progress.';
COMMENT ON COLUMN automation.bulk_items.no IS 'Its place among the rows of the query, from 1.';
COMMENT ON COLUMN automation.bulk_items.status IS 'pending, active, completed, failed, skipped or cancelled.';
COMMENT ON COLUMN automation.bulk_items.run_id IS 'Its run, see runs; NULL while it is not begun, and if it was passed over.';
COMMENT ON COLUMN automation.bulk_items.data IS 'The row as it was when the query ran; NULL if it was too large.';
COMMENT ON COLUMN automation.bulk_items.error IS 'SQLSTATE and message of what failed it.';
SET LOCAL search_path = automation, pg_temp;
