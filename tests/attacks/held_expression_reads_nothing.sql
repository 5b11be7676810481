-- attack: read files, tables, settings or secrets with the expression language
-- attacker: mallory, an author
-- must not happen: an expression reads anything but the event and what it is given
\i :attack_lib
\c attack mallory
SELECT attack.refused(format('SELECT automation.evaluate(%L)', e), '42%')
  FROM unnest(ARRAY['pg_read_file(''PG_VERSION'')', 'current_user', 'version()', 'secret(''x'')', '(select 1)', 'pg_authid', 'env.HOME', 'current_setting(''port'')', 'lo_import(''/etc/passwd'')']) AS e;
SELECT attack.held(automation.evaluate('payload.a', '{"payload": {"a": "{{ 1 }}"}}') = '"{{ 1 }}"'::jsonb, 'a value is no template');
