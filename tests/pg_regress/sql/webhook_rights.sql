-- Secrets, endpoints and egress rules (R004-13): whose they are, what is refused, what is never shown.
\set SHOW_CONTEXT never
CREATE ROLE regress_w_ann LOGIN;
CREATE ROLE regress_w_bob LOGIN;
CREATE ROLE regress_w_group;
CREATE ROLE regress_w_admin LOGIN;
CREATE ROLE regress_w_viewer LOGIN;
SELECT automation.grant_usage('regress_w_ann', 'author'), automation.grant_usage('regress_w_bob', 'author'),
       automation.grant_usage('regress_w_admin', 'admin'), automation.grant_usage('regress_w_viewer', 'viewer');

-- without a key nothing can be sealed; whoever is no superuser is not told where it should be
SET ROLE regress_w_ann;
SELECT automation.set_secret('api-token', 'canary-of-ann');
SHOW automation_engine.secret_key_file;
RESET ROLE;
SELECT automation.set_secret('api-token', 'canary-of-ann');
-- a key that others can read, or that is none, is refused
COPY (SELECT 'short') TO PROGRAM 'umask 077; rm -f regress_secrets.key; cat > regress_secrets.key';
SELECT automation.set_secret('api-token', 'canary-of-ann');
COPY (SELECT encode(sha256('regress'), 'base64')) TO PROGRAM 'cat > regress_secrets.key; chmod 644 regress_secrets.key';
SELECT automation.set_secret('api-token', 'canary-of-ann');
COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; chmod 400 regress_secrets.key';

-- what can be wrong
SET ROLE regress_w_ann;
SELECT automation.set_secret(NULL, 'x');
SELECT automation.set_secret('x', NULL);
SELECT automation.set_secret('', 'x');
SELECT automation.set_secret(' x', 'x');
SELECT automation.set_secret(repeat('x', 65), 'x');
SELECT automation.set_secret('x', '');
SELECT automation.set_secret('x', repeat('x', 4097));
SELECT automation.set_secret('x', E'canary\n');
SELECT automation.set_secret('x', 'whsec_canary');
SELECT automation.set_secret('x', 'whsec_' || encode('too short', 'base64'));
SELECT automation.set_secret('x', 'canary', host => 'https://api.example.com/');
SELECT automation.set_secret('x', 'canary', host => '*');
SELECT automation.set_secret('x', 'canary', host => '*.com');
SELECT automation.set_secret('x', 'canary', owner => 'regress_w_bob');
SELECT automation.set_secret('x', 'canary', owner => 'nobody_of_that_name');
SELECT count(*) FROM automation.secrets;
-- kept
SELECT automation.set_secret('api-token', 'canary-of-ann', host => '*.Example.com'), automation.set_secret('signing', 'whsec_' || encode(sha256('k'), 'base64'));
SELECT name, host, rotated_until, owner FROM automation.secrets;
-- replaced: the one before still signs for a day
SELECT automation.set_secret('signing', 'whsec_' || encode(sha256('new'), 'base64'));
SELECT name, rotated_until - created_at AS rotated_for FROM automation.secrets;
RESET ROLE;
-- sealed, each time differently, and nowhere in clear (R000-38, R004-13)
SELECT count(*), count(DISTINCT sealed), min(length(sealed)) > 40 AS long FROM automation_internal.secret;
SELECT count(*) FROM automation_internal.secret AS s WHERE position('canary'::bytea IN s.sealed) > 0 OR s::text LIKE '%canary%';
SELECT count(*) FROM automation_internal.audit AS a WHERE a::text LIKE '%canary%' OR a::text LIKE '%whsec%';
SELECT action, details FROM automation.audit_log WHERE action LIKE 'secret%' ORDER BY at;
SELECT has_table_privilege('regress_w_ann', 'automation_internal.secret', 'SELECT') AS reads;

-- endpoints
SET ROLE regress_w_ann;
SELECT automation.set_endpoint(NULL, 'https://a.example/');
SELECT automation.set_endpoint('e', NULL);
SELECT automation.set_endpoint('', 'https://a.example/');
SELECT automation.set_endpoint('https://x', 'https://a.example/');
SELECT automation.set_endpoint('e', 'a.example');
SELECT automation.set_endpoint('e', 'https://a.example/{{ new.id }}');
SELECT automation.set_endpoint('e', 'gopher://a.example/');
SELECT automation.set_endpoint('e', 'https://a.example/', secret => 'nothing');
SELECT automation.set_endpoint('e', 'https://a.example/', secret => 'api-token');
SELECT automation.set_endpoint('e', 'https://a.example/', headers => '{"X": "{{ new.id }}"}');
SELECT automation.set_endpoint('e', 'https://a.example/', headers => '{"Host": "b"}');
SELECT automation.set_endpoint('e', 'https://a.example/', headers => '"x"');
SELECT automation.set_endpoint('e', 'https://a.example/', headers => '{"X": {"secret": "nothing"}}');
SELECT automation.set_endpoint('e', 'https://a.example/', timeout => '1 ms');
SELECT automation.set_endpoint('e', 'https://a.example/', timeout => '1 month');
SELECT automation.set_endpoint('e', 'https://a.example/', max_attempts => 0);
SELECT automation.set_endpoint('e', 'https://a.example/', max_attempts => 101);
SELECT automation.set_endpoint('crm', 'https://crm.example.com/in', secret => 'signing', headers => '{"Authorization": {"secret": "api-token"}}');
SELECT name, url, secret, timeout, max_attempts, headers, owner FROM automation.endpoints;

-- where messages may go: only those who answer for it say so
SELECT automation.allow_egress('regress_w_ann', 'crm.example.com');
SET ROLE regress_w_admin;
SELECT automation.allow_egress(NULL, 'crm.example.com');
SELECT automation.allow_egress('regress_w_ann', NULL);
SELECT automation.allow_egress('nobody_of_that_name', 'crm.example.com');
SELECT automation.allow_egress('regress_w_ann', '*');
SELECT automation.allow_egress('regress_w_ann', '*.com');
SELECT automation.allow_egress('regress_w_ann', 'https://crm.example.com');
SELECT automation.allow_egress('regress_w_ann', 'crm.example.com:443');
SELECT automation.allow_egress('regress_w_ann', 'crm.example.com', 0);
SELECT automation.allow_egress('regress_w_ann', 'crm.example.com', 65536);
SELECT automation.allow_egress('regress_w_ann', 'crm.example.com', 443, '10.0.0.1/8');
SELECT automation.allow_egress('regress_w_ann', 'CRM.example.com'), automation.allow_egress('regress_w_ann', 'crm.example.com'),
       automation.allow_egress('regress_w_ann', 'crm.example.com', 8443), automation.allow_egress('regress_w_group', '*.inside.example', 443, '10.0.0.0/8'),
       automation.allow_egress('regress_w_group', '*.inside.example', 443, '0.0.0.0/0'), automation.allow_egress('regress_w_group', '*.inside.example', 443);
RESET ROLE;
SELECT role, host, port, cidr FROM automation.egress_rules;
SET ROLE regress_w_ann;
SELECT role, host, port, cidr FROM automation.egress_rules;
-- a definition that would not be delivered says so
SELECT notices FROM automation.define('r-ok', trigger => automation.on_event('r.x'), steps => ARRAY[automation.webhook('crm', id => 'a')]);
SELECT unnest(notices) FROM automation.define('r-not', trigger => automation.on_event('r.y'), steps => ARRAY[
    automation.webhook('https://crm.example.com:8443/', id => 'port allowed'), automation.webhook('https://crm.example.com:9443/', id => 'port'),
    automation.webhook('https://crm.example.com.evil.example/', id => 'host'), automation.webhook('http://crm.example.com/', id => 'plain'),
    automation.webhook('https://a.inside.example/', id => 'not hers'), automation.webhook('https://crm.example.com/', secret => 'api-token', id => 'fine'),
    automation.webhook('https://other.example/', headers => '{"Authorization": {"secret": "api-token"}}', id => 'bound elsewhere')]);
SELECT severity, message FROM automation.validate('{"name": "r-val", "trigger": {"on": "call"}, "steps": [{"id": "s", "do": "webhook", "url": "https://elsewhere.example/"}]}');
RESET ROLE;
-- what a group may, its members may
GRANT regress_w_group TO regress_w_ann;
SET ROLE regress_w_ann;
SELECT role, host, port, cidr FROM automation.egress_rules;
SELECT notices FROM automation.define('r-group', trigger => automation.on_event('r.z'), steps => ARRAY[automation.webhook('https://a.inside.example/')]);

-- but a superuser, who is a member of every role, has none of what was allowed to others
RESET ROLE;
SELECT notices FROM automation.define('r-super', trigger => automation.on_event('r.s'), steps => ARRAY[automation.webhook('https://crm.example.com/', id => 's')]);

-- another role sees nothing of it and cannot use it (R000-38)
SET ROLE regress_w_bob;
SELECT (SELECT count(*) FROM automation.secrets) AS secrets, (SELECT count(*) FROM automation.endpoints) AS endpoints, (SELECT count(*) FROM automation.egress_rules) AS rules;
SELECT automation.drop_secret('api-token'), automation.drop_endpoint('crm');
SELECT automation.drop_secret('api-token', owner => 'regress_w_ann');
SELECT automation.set_endpoint('crm', 'https://bob.example/', owner => 'regress_w_ann');
SELECT message FROM automation.validate('{"name": "r-bob", "trigger": {"on": "call"}, "steps": [{"do": "webhook", "endpoint": "crm"}, {"do": "webhook", "url": "https://a.example", "secret": "api-token"}]}');
-- the same name, his own
SELECT automation.set_endpoint('crm', 'https://bob.example/');
SET ROLE regress_w_viewer;
SELECT automation.set_secret('x', 'y');
SELECT automation.redeliver(1);
RESET ROLE;
SELECT name, url, owner FROM automation.endpoints;
-- whoever can become the role can act for it, and what is defined for it finds what is its own
SELECT automation.set_secret('second', 'canary', owner => 'regress_w_bob');
SELECT name, owner FROM automation.secrets;
SELECT status FROM automation.define('r-as', run_as => 'regress_w_bob', trigger => automation.on_event('r.as'), steps => ARRAY[automation.webhook('crm', secret => 'second')]);
SELECT version FROM automation.define('r-as', trigger => automation.on_event('r.as'), steps => ARRAY[automation.webhook('crm', secret => 'second', method => 'PUT')]);
-- the message is his, whoever drives the queue
BEGIN;
SELECT automation.emit('r.as') > 0 AS emitted, automation.emit('r.x') > 0 AS emitted;
SELECT automation.drain();
SELECT owner::regrole, endpoint, url, secret, headers FROM automation_internal.outbox ORDER BY url;
SET ROLE regress_w_ann;
SELECT automation, host FROM automation.deliveries;
SET ROLE regress_w_bob;
SELECT automation, host FROM automation.deliveries;
ROLLBACK;
-- nobody writes these tables, not even the owner of what stands there
SET ROLE regress_w_ann;
INSERT INTO automation_internal.outbox DEFAULT VALUES;
SELECT * FROM automation_internal.secret;
DELETE FROM automation.secrets;
RESET ROLE;

-- roles that are gone take it with them
SELECT automation.deny_egress('regress_w_group', '*.inside.example', 443, '10.0.0.0/8'), automation.deny_egress('regress_w_group', '*.inside.example', 443, '10.0.0.0/8');
SELECT automation.drop_automation(name) FROM automation.automations WHERE name LIKE 'r-%';
SELECT automation.revoke_usage(r) FROM unnest(ARRAY['regress_w_ann', 'regress_w_bob', 'regress_w_admin', 'regress_w_viewer']) AS r;
DROP ROLE regress_w_ann, regress_w_bob, regress_w_group, regress_w_admin, regress_w_viewer;
SELECT automation.sweep() >= 0 AS swept;
SELECT (SELECT count(*) FROM automation_internal.secret) AS secrets, (SELECT count(*) FROM automation_internal.endpoint) AS endpoints,
       (SELECT count(*) FROM automation_internal.egress_rule) AS rules;
COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; rm -f regress_secrets.key';
