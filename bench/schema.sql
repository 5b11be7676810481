-- What every measurement works on, in a database of its own.
CREATE EXTENSION automation_engine;
CREATE SCHEMA bench;
SET search_path = bench;

-- The table that is written to. Six columns of common types, one index.
CREATE TABLE orders (
    id      integer     PRIMARY KEY,
    status  text        NOT NULL,
    total   numeric     NOT NULL,
    note    text        NOT NULL,
    updated timestamptz NOT NULL,
    n       integer     NOT NULL
);

-- What a run leaves behind.
CREATE TABLE effect (order_id integer NOT NULL, at timestamptz NOT NULL);

-- Loads 'rows' orders without a trace in the event log.
CREATE PROCEDURE load(rel regclass, rows integer) LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL automation_engine.capture = off;
    EXECUTE format('INSERT INTO %s SELECT i, %L, (i %% 1000) + 0.25, %L || i, now(), 0 FROM generate_series(1, $1) AS i',
                   rel, 'new', 'a note of ordinary length for order ')
      USING rows;
END $$;

-- Processor time (microseconds) that a process of this server has used so far.
CREATE FUNCTION cpu_us(pid integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT split_part(pg_read_file('/proc/' || pid || '/schedstat'), ' ', 1)::bigint / 1000;
$$;

-- Private memory (kB) of a process of this server.
CREATE FUNCTION private_kb(pid integer) RETURNS bigint LANGUAGE sql AS $$
    SELECT (regexp_match(pg_read_file('/proc/' || pid || '/status'), 'RssAnon:\s+(\d+)'))[1]::bigint;
$$;

-- The same for all processes of this server that have ended.
CREATE FUNCTION ended_cpu_us() RETURNS bigint LANGUAGE sql AS $$
    SELECT 10000 * (split_part(stat, ' ', 14)::bigint + split_part(stat, ' ', 15)::bigint)
      FROM split_part(pg_read_file('postmaster.pid'), E'\n', 1) AS postmaster,
           regexp_replace(pg_read_file('/proc/' || postmaster || '/stat'), '^.*\) ', '') AS stat;
$$;

-- Returns when there are 'wanted' effects; each look has its own snapshot. Fails after a minute without progress.
CREATE PROCEDURE wait_for_effects(wanted bigint) LANGUAGE plpgsql AS $$
DECLARE
    seen bigint := -1;
    found bigint;
    since timestamptz := clock_timestamp();
BEGIN
    LOOP
        SELECT count(*) INTO found FROM bench.effect;
        EXIT WHEN found >= wanted;
        IF found > seen THEN
            seen := found;
            since := clock_timestamp();
        ELSIF clock_timestamp() > since + interval '1 minute' THEN
            RAISE EXCEPTION 'no progress: % of % effects', found, wanted;
        END IF;
        COMMIT;
        PERFORM pg_sleep(0.25);
    END LOOP;
    IF found > wanted THEN
        RAISE EXCEPTION '% effects of % events', found, wanted;
    END IF;
END $$;

-- The floor ---------------------------------------------------------------------------------------------------------
-- The least a queue in plain SQL has to do for the same effects: claim a batch, per row one subtransaction with the
-- effect and a row of history, delete the batch, commit.

CREATE TABLE floor_queue (id bigint PRIMARY KEY, order_id integer NOT NULL);
CREATE TABLE floor_history (
    id         bigint      PRIMARY KEY,
    status     text        NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    error      text
);

CREATE PROCEDURE floor_fill(rows integer) LANGUAGE sql AS $$
    INSERT INTO bench.floor_queue SELECT i, i FROM generate_series(1, rows) AS i;
$$;

-- Returns the processor time it took.
CREATE PROCEDURE floor_work(batch_size integer, INOUT cpu bigint DEFAULT 0) LANGUAGE plpgsql AS $$
DECLARE
    -- everything below was claimed: the scan need not pass over the dead rows again
    mark bigint := 0;
    ids bigint[];
    orders integer[];
    started timestamptz;
    cpu_before bigint := bench.cpu_us(pg_backend_pid());
BEGIN
    LOOP
        SELECT array_agg(c.id), array_agg(c.order_id) INTO ids, orders
          FROM (SELECT q.id, q.order_id FROM bench.floor_queue AS q
                 WHERE q.id > mark ORDER BY q.id LIMIT batch_size FOR UPDATE SKIP LOCKED) AS c;
        EXIT WHEN ids IS NULL;
        mark := ids[cardinality(ids)];
        FOR i IN 1 .. cardinality(ids) LOOP
            started := clock_timestamp();
            BEGIN
                INSERT INTO bench.effect (order_id, at) VALUES (orders[i], clock_timestamp());
                INSERT INTO bench.floor_history (id, status, started_at, ended_at)
                VALUES (ids[i], 'completed', started, clock_timestamp());
            EXCEPTION WHEN OTHERS THEN
                INSERT INTO bench.floor_history VALUES (ids[i], 'failed', started, clock_timestamp(), SQLERRM);
            END;
        END LOOP;
        DELETE FROM bench.floor_queue WHERE id = ANY (ids);
        COMMIT;
    END LOOP;
    cpu := bench.cpu_us(pg_backend_pid()) - cpu_before;
END $$;

-- Latency -----------------------------------------------------------------------------------------------------------

CREATE TABLE ticket (id integer PRIMARY KEY, made timestamptz NOT NULL);
CREATE SEQUENCE ticket_id;
CREATE TABLE ticket_effect (ticket_id integer PRIMARY KEY, at timestamptz NOT NULL);
-- when another session first saw an effect committed
CREATE UNLOGGED TABLE seen (ticket_id integer PRIMARY KEY, at timestamptz NOT NULL);

DO $$ BEGIN
    CREATE ROLE bench LOGIN;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
GRANT USAGE ON SCHEMA bench TO bench;
GRANT ALL ON ALL TABLES IN SCHEMA bench TO bench;
