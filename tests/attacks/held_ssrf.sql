-- attack: make the courier talk to the server's own network
-- attacker: mallory, an author, whom a rule allows the host but no private address
-- must not happen: a message is sent to an address that is not public, however the address is spelled
\i :attack_lib
CREATE TABLE public.spelling (no int GENERATED ALWAYS AS IDENTITY, url text, host text);
INSERT INTO spelling (url, host) VALUES
    ('http://127.0.0.1/', '127.0.0.1'), ('http://localhost/', 'localhost'), ('http://localhost./', 'localhost'),
    ('http://2130706433/', NULL), ('http://0x7f000001/', NULL), ('http://0177.0.0.1/', NULL), ('http://127.1/', NULL),
    ('http://0x7f.1/', NULL), ('http://0/', NULL), ('http://0.0.0.0/', '0.0.0.0'), ('http://127.0.0.1./', '127.0.0.1'),
    ('http://[::1]/', '::1'), ('http://[::]/', '::'), ('http://[::ffff:127.0.0.1]/', '::ffff:127.0.0.1'),
    ('http://[::ffff:7f00:1]/', '::ffff:7f00:1'), ('http://[64:ff9b::7f00:1]/', '64:ff9b::7f00:1'),
    ('http://[2002:7f00:1::]/', '2002:7f00:1::'), ('http://[fe80::1]/', 'fe80::1'), ('http://[fc00::1]/', 'fc00::1'),
    ('http://169.254.169.254/latest/meta-data/', '169.254.169.254'), ('http://[fd00:ec2::254]/', 'fd00:ec2::254'),
    ('http://10.0.0.1/', '10.0.0.1'), ('http://192.168.0.1/', '192.168.0.1'), ('http://100.64.0.1/', '100.64.0.1'),
    ('http://user@127.0.0.1/', NULL), ('http://example.com:pw@127.0.0.1/', NULL), ('http://example.com\@127.0.0.1/', NULL),
    (E'http://127.0.0.1\t/', NULL), (E'http://exam\nple.com/', NULL), ('http://127.0.0.1:5432/', '127.0.0.1'),
    ('http://127.0.0.1%2f@example.com/', NULL), ('http://①②⑦.⓪.⓪.①/', NULL), ('file:///etc/passwd', NULL),
    ('gopher://127.0.0.1/', NULL), ('http:///127.0.0.1/', NULL), ('//127.0.0.1/', NULL);
GRANT SELECT ON spelling TO mallory;
-- the widest rule that names no cidr
SELECT automation.allow_egress('mallory', host) FROM spelling WHERE host IS NOT NULL AND host NOT LIKE '%:%' GROUP BY host;
\c attack mallory
DO $$
DECLARE
    spelled record;
    refused int := 0;
BEGIN
    FOR spelled IN SELECT * FROM spelling LOOP
        BEGIN
            PERFORM automation.define('m-' || spelled.no, trigger => automation.on_call(), steps => ARRAY[automation.webhook(spelled.url)]);
            PERFORM automation.start_run('m-' || spelled.no);
        EXCEPTION WHEN OTHERS THEN
            IF SQLSTATE LIKE 'XX%' THEN
                RAISE;
            END IF;
            refused := refused + 1;
        END;
    END LOOP;
    RAISE NOTICE '% refused when defined', refused;
END $$;
-- every message that was ordered has been looked at
SELECT attack.wait_for($$ SELECT (SELECT count(*) FROM automation.runs WHERE status IN ('completed', 'failed')) = (SELECT count(*) FROM automation.automations)
                             AND NOT EXISTS (SELECT FROM automation.deliveries WHERE last_error IS NULL) $$, 60);
SELECT attack.held(count(*) >= 36, 'spellings were tried: ' || count(*)) FROM spelling;
SELECT attack.held(count(*) > 5, 'messages got as far as the courier: ' || count(*)) FROM automation.deliveries;
SELECT attack.held(state <> 'delivered' AND last_status IS NULL AND last_error LIKE '%blocked%', host || ': ' || last_error)
  FROM automation.deliveries;
\c attack postgres
DROP TABLE spelling;
