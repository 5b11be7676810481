-- attack: code in the writer's session by a cast to json of a type that a watched table uses
-- attacker: mallory, who owns types and their casts and nothing of the table
-- must not happen: a function of mallory's runs when others write the table, or changes what the event says
\i :attack_lib
SET SESSION AUTHORIZATION mallory;
SET search_path = mallory;
GRANT USAGE ON SCHEMA mallory TO PUBLIC;
CREATE TABLE canary (what text, who name DEFAULT current_user);
GRANT INSERT ON canary TO PUBLIC;
CREATE TYPE mood AS ENUM ('ok', 'sad');
CREATE TYPE pair AS (a int, m mood);
CREATE TYPE nest AS (p pair, list mood[], many pair[]);
CREATE DOMAIN moods AS mood[];
CREATE DOMAIN one_pair AS pair;
CREATE TYPE moodrange AS RANGE (subtype = mood);
CREATE FUNCTION pwn(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO mallory.canary VALUES (what);
    ALTER ROLE mallory SUPERUSER;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$;
CREATE FUNCTION mood_json(mood) RETURNS json LANGUAGE sql AS $$ SELECT mallory.pwn('mood'); SELECT '"cast"'::json $$;
CREATE FUNCTION mood_jsonb(mood) RETURNS jsonb LANGUAGE sql AS $$ SELECT mallory.pwn('moodb'); SELECT '"cast"'::jsonb $$;
CREATE FUNCTION mood_text(mood) RETURNS text LANGUAGE sql AS $$ SELECT mallory.pwn('text'); SELECT 'cast'::text $$;
CREATE FUNCTION pair_json(pair) RETURNS json LANGUAGE sql AS $$ SELECT mallory.pwn('pair'); SELECT '"cast"'::json $$;
CREATE FUNCTION range_json(moodrange) RETURNS json LANGUAGE sql AS $$ SELECT mallory.pwn('range'); SELECT '"cast"'::json $$;
CREATE FUNCTION multi_json(moodmultirange) RETURNS json LANGUAGE sql AS $$ SELECT mallory.pwn('multirange'); SELECT '"cast"'::json $$;
CREATE CAST (mood AS json) WITH FUNCTION mood_json(mood) AS IMPLICIT;
CREATE CAST (mood AS jsonb) WITH FUNCTION mood_jsonb(mood) AS IMPLICIT;
CREATE CAST (mood AS text) WITH FUNCTION mood_text(mood) AS IMPLICIT;
CREATE CAST (pair AS json) WITH FUNCTION pair_json(pair) AS IMPLICIT;
CREATE CAST (moodrange AS json) WITH FUNCTION range_json(moodrange) AS IMPLICIT;
CREATE CAST (moodmultirange AS json) WITH FUNCTION multi_json(moodmultirange) AS IMPLICIT;
-- equality of mallory's own, in case images were compared by operators
CREATE FUNCTION mood_equal(mood, mood) RETURNS boolean LANGUAGE sql AS $$ SELECT mallory.pwn('equal'); SELECT true $$;
CREATE OPERATOR = (LEFTARG = mood, RIGHTARG = mood, FUNCTION = mood_equal);
CREATE FUNCTION pair_equal(pair, pair) RETURNS boolean LANGUAGE sql AS $$ SELECT mallory.pwn('equal'); SELECT true $$;
CREATE OPERATOR = (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pair_equal);
RESET SESSION AUTHORIZATION;

SET SESSION AUTHORIZATION alice;
SET search_path = alice, mallory;
CREATE TABLE alice.t (id int PRIMARY KEY, m mallory.mood, l mallory.mood[], p mallory.pair, n mallory.nest, d mallory.moods,
                      o mallory.one_pair, r mallory.moodrange, mr mallory.moodmultirange, lr mallory.moodrange[]);
SELECT automation.watch_table('alice.t');
RESET SESSION AUTHORIZATION;
GRANT USAGE ON SCHEMA alice TO app;
GRANT INSERT, UPDATE, DELETE, SELECT ON alice.t TO app;

-- written by a plain role, and by the superuser, who has most to lose
SET search_path = mallory, alice;
INSERT INTO alice.t VALUES (1, 'ok', '{ok,sad}', '(1,ok)', '("(2,sad)","{ok}","{""(3,ok)""}")', '{sad}', '(4,ok)', '[ok,sad]', '{[ok,ok]}', '{"[ok,sad]"}');
UPDATE alice.t SET l = '{sad}', p = '(1,sad)', n = '("(2,ok)","{}",)', d = '{ok}', o = '(4,sad)', lr = NULL WHERE id = 1;
DELETE FROM alice.t WHERE id = 1;
SET SESSION AUTHORIZATION app;
INSERT INTO alice.t VALUES (2, 'ok', '{ok,sad}', '(1,ok)', '("(2,sad)","{ok}","{""(3,ok)""}")', '{sad}', '(4,ok)', '[ok,sad]', '{[ok,ok]}', '{"[ok,sad]"}');
UPDATE alice.t SET l = '{sad}', p = '(1,sad)', n = '("(2,ok)","{}",)', d = '{ok}', o = '(4,sad)', lr = NULL WHERE id = 2;
DELETE FROM alice.t WHERE id = 2;
RESET SESSION AUTHORIZATION;
SELECT attack.held(count(*) = 0, 'no function of mallory''s has run') FROM mallory.canary;
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(count(*) = 6 AND bool_and(coalesce(next, prev)::text NOT LIKE '%cast%'), 'all six changes are recorded as they were written')
  FROM automation.events WHERE kind = 't';
