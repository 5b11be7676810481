\set ECHO none
-- What a run did, in a form that is the same every time: one line for the run, one for each step.
CREATE FUNCTION told(run bigint) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT regexp_replace(
               r.status || coalesce(' (' || r.ended_reason || ')', '') || coalesce(': ' || r.error, '')
               || coalesce(' DETAIL ' || r.detail, '') || coalesce(' HINT ' || r.hint, '')
               || coalesce(' waits for ' || r.waiting_for, ''),
               '\mrun \d+', 'run N', 'g')
      FROM automation.runs AS r WHERE r.id = run
     UNION ALL
    (SELECT regexp_replace(
                s.seq || ' ' || s.step || ' ' || s.status || CASE WHEN s.attempt > 1 THEN ' at try ' || s.attempt ELSE '' END
                || coalesce(' ' || CASE WHEN s.result ? 'event' THEN jsonb_set(s.result, '{event}', s.result #> '{event,topic}')
                                        ELSE s.result - 'event_id' - 'rows' - 'run_id' END::text, '')
                || coalesce(': ' || s.error, ''),
                '\mrun \d+', 'run N', 'g')
       FROM automation.run_steps AS s WHERE s.run_id = run ORDER BY s.seq LIMIT 20) $$;

-- What a statement answers, or its error with all that belongs to it.
CREATE FUNCTION tried(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    RETURN QUERY EXECUTE 'SELECT (x.*)::text FROM (' || statement || ') AS x';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT regexp_replace(sqlstate || ' ' || left(sqlerrm, 200) || CASE WHEN detail <> '' THEN ' DETAIL ' || detail ELSE '' END
                               || CASE WHEN hint <> '' THEN ' HINT ' || hint ELSE '' END, '\m([Rr]un |timeline\(|retry_run\()-?\d+', '\1N', 'g');
END $$;
\set ECHO all
