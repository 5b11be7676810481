-- attack: hold the conductor up with arithmetic, texts and lists instead of a regular expression
-- attacker: mallory, an author
-- must not happen: an expression takes long within its budget; alice's automation waits
\i :attack_lib
\c attack mallory
SET statement_timeout = '20s';
SELECT attack.refused(format('SELECT automation.evaluate(%L, %L)', (SELECT string_agg('n = ''x''', ' or ') FROM generate_series(1, 150)),
    format('{"n": 1%s.%s}', repeat('0', 50000), repeat('0', 16000))), '54000');
SELECT attack.refused(format('SELECT automation.evaluate(%L, %L)', (SELECT string_agg('round(n, -20000) = 1', ' or ') FROM generate_series(1, 100)),
    format('{"n": %s}', repeat('9', 60000))), '54000');
SELECT attack.refused(format('SELECT automation.evaluate(%L)', '[' || (SELECT string_agg('1e100000', ', ') FROM generate_series(1, 2000)) || '] = 1'), '54001');
SELECT attack.refused(format('SELECT automation.evaluate(%L, %L)', (SELECT string_agg('a = b', ' and ') FROM generate_series(1, 150)),
    (SELECT format('{"a": [%1$s], "b": [%1$s]}', jsonb_agg(n)) FROM generate_series(1, 100000) AS n)), '54000');
SELECT attack.refused($$SELECT automation.evaluate('matches(t, ''(?:[ab]{0,500}a[ab]{500})[^a-b]'')', jsonb_build_object('t', repeat('ab', 500000)))$$, '54000');
