-- What the attacks assert with. Every role may call these functions; they run with the rights of their caller.
CREATE SCHEMA attack;
GRANT USAGE ON SCHEMA attack TO PUBLIC;

-- Prints "held: ..." if the claim is true; ends the script if it is false or NULL.
CREATE FUNCTION attack.held(claim boolean, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF claim IS NOT TRUE THEN
        RAISE EXCEPTION 'did not hold: %', what;
    END IF;
    RAISE NOTICE 'held: %', what;
END $$;

-- Runs a statement as the current user. Holds if it fails with an SQLSTATE that is LIKE the given pattern.
CREATE FUNCTION attack.refused(statement text, state text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    failed_with text;
    message text;
BEGIN
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        failed_with := SQLSTATE;
        message := SQLERRM;
    END;
    IF failed_with IS NULL THEN
        RAISE EXCEPTION 'did not hold: accepted: %', pg_catalog.left(statement, 300);
    ELSIF failed_with NOT LIKE state THEN
        RAISE EXCEPTION 'did not hold: % (%) instead of %: %', message, failed_with, state, pg_catalog.left(statement, 300);
    END IF;
    RAISE NOTICE 'held: refused with %: %', failed_with, pg_catalog.left(statement, 100);
END $$;

-- Waits until a query gives true. Each look takes a new snapshot and so sees rows that other sessions have committed since.
CREATE FUNCTION attack.wait_for(query text, seconds integer DEFAULT 30) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    deadline timestamptz := pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => seconds);
    so boolean;
BEGIN
    LOOP
        EXECUTE query INTO so;
        EXIT WHEN so;
        IF pg_catalog.clock_timestamp() > deadline THEN
            RAISE EXCEPTION 'did not come true within % s: %', seconds, query;
        END IF;
        PERFORM pg_catalog.pg_sleep(0.02);
        -- pg_stat_activity is otherwise read once per transaction
        PERFORM pg_catalog.pg_stat_clear_snapshot();
    END LOOP;
END $$;
