-- Two nightly jobs, five minutes apart so that they do not want the same minute of the database, and a purge that may not
-- delete: it says how much it would.
--
--   psql -f examples/nightly.sql

CREATE SCHEMA nightly;

CREATE TABLE nightly.session (
    id       int PRIMARY KEY,
    seen_at  timestamptz NOT NULL
);
CREATE TABLE nightly.active_sessions (
    day       date PRIMARY KEY,
    sessions  bigint NOT NULL
);

SELECT automation.define('nightly-count',
  trigger => automation.on_cron('0 3 * * *'),
  steps   => ARRAY[
    automation.sql($$
      INSERT INTO nightly.active_sessions
      SELECT {{ now() }}::date, count(*) FROM nightly.session WHERE seen_at > {{ now() }}::timestamptz - interval '1 day' $$) ]);

-- Sessions are evidence and stay. Whoever listens to session.would_expire learns what a purge would do.
SELECT automation.define('nightly-purge',
  trigger => automation.on_cron('5 3 * * *'),
  steps   => ARRAY[
    automation.sql($$
      SELECT count(*) AS rows FROM nightly.session WHERE seen_at < {{ now() }}::timestamptz - interval '90 days' $$, id => 'old'),
    automation.publish('session.would_expire', $$ {"rows": steps.old.row.rows} $$) ]);
