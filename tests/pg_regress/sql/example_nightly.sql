-- examples/nightly.sql: jobs that are staggered do not run at the same time (R001-28), a purge that only observes says what it
-- would do and does nothing (R001-59).
\getenv srcdir PG_ABS_SRCDIR
\set example :srcdir '/examples/nightly.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
BEGIN;
SELECT automation.set_clock('2030-02-01 02:00+00');
\set ECHO none
\i :example
\set ECHO all
INSERT INTO nightly.session VALUES (1, '2030-01-31 12:00+00'), (2, '2029-12-24 12:00+00'), (3, '2029-06-01 12:00+00'), (4, '2029-06-02 12:00+00');
CREATE FUNCTION pg_temp.ran_at(moment timestamptz) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM automation.set_clock(moment);
    PERFORM automation.drain();
    RETURN (SELECT coalesce(string_agg(automation || ' ' || status, ', ' ORDER BY automation), 'nothing')
              FROM automation.runs WHERE automation LIKE 'nightly-%' AND started_at >= moment);
END $$;
-- jobs that are staggered do not run at the same time (R001-28)
SELECT pg_temp.ran_at('2030-02-01 02:59:59+00');
SELECT pg_temp.ran_at('2030-02-01 03:00:00+00');
SELECT pg_temp.ran_at('2030-02-01 03:04:59+00');
SELECT pg_temp.ran_at('2030-02-01 03:05:00+00');
-- the purge only observes: it says what it would do, and does nothing (R001-59)
SELECT * FROM nightly.active_sessions;
SELECT topic, payload FROM automation.events WHERE topic = 'session.would_expire';
SELECT count(*) FROM nightly.session;
ROLLBACK;
-- not once in a year do they meet
SELECT count(*) AS nights, count(p) AS together
  FROM automation.next_fire('0 3 * * *', after => '2030-01-01', n => 365) AS c
  LEFT JOIN automation.next_fire('5 3 * * *', after => '2030-01-01', n => 365) AS p ON p = c;
