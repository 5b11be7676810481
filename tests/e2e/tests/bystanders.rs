//! Applications that do not use the engine do not notice it: with the library preloaded every error says the same as
//! without, field by field, in databases with and without the extension.

use e2e::{Cluster, Database};
use postgres::error::{DbError, ErrorPosition};

/// Tables, functions and procedures that fail in their own ways.
const SCHEMA: &str = "
    CREATE TABLE parent (id int PRIMARY KEY, name text NOT NULL UNIQUE, price numeric(6, 2) CHECK (price > 0));
    CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED, note varchar(5));
    CREATE TABLE parted (id int, region text) PARTITION BY LIST (region);
    CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu');
    CREATE DOMAIN positive AS int CONSTRAINT must_be_positive CHECK (VALUE > 0);
    CREATE TYPE mood AS ENUM ('good', 'bad');
    CREATE VIEW counted AS SELECT count(*) AS n FROM parent;
    CREATE MATERIALIZED VIEW divided AS SELECT 1 / (id - id + 1) AS one FROM parent;
    INSERT INTO parent VALUES (1, 'one', 10), (2, 'two', 20);
    CREATE FUNCTION fails_with(state text) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'raised' USING ERRCODE = state, DETAIL = 'the detail', HINT = 'the hint', COLUMN = 'a column',
            CONSTRAINT = 'a constraint', DATATYPE = 'a type', TABLE = 'a table', SCHEMA = 'a schema';
    END $$;
    CREATE PROCEDURE calls(state text) LANGUAGE plpgsql AS $$ BEGIN PERFORM fails_with(state); END $$;
    CREATE PROCEDURE calls_deep(state text) LANGUAGE plpgsql AS $$ BEGIN CALL calls(state); END $$;
    CREATE PROCEDURE divides() LANGUAGE sql AS 'INSERT INTO parent SELECT 3, name, price / 0 FROM parent WHERE id = 1';
    CREATE PROCEDURE commits_then_fails() LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO parent VALUES (99, 'committed', 1); COMMIT; DELETE FROM parent WHERE id = 99; PERFORM 1 / 0;
    END $$;
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'refused by trigger' USING ERRCODE = 'TR001', TABLE = TG_TABLE_NAME; END $$;
    CREATE TABLE guarded (id int);
    CREATE TRIGGER refuse BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION refuse();
    CREATE FUNCTION no_tables() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'no tables here' USING ERRCODE = 'EV001'; END $$;
    CREATE ROLE bystander";

/// Statements that fail, of every kind: each is sent as one message.
const FAILING: &[&str] = &[
    // plain statements
    "SELECT 1 / 0",
    "SELECT nothing FROM parent",
    "SELECT * FROM no_such_table",
    "SELECT no_such_function(1)",
    "SELEC 1",
    "SELECT 'abc'::int",
    "SELECT '2024-02-31'::date",
    "SELECT 0::positive",
    "SELECT 'ugly'::mood",
    "SELECT '{\"a\":'::jsonb",
    "SELECT (SELECT id FROM parent)",
    "INSERT INTO parent VALUES (1, 'uno', 1)",
    "INSERT INTO parent VALUES (3, 'one', 1)",
    "INSERT INTO parent VALUES (3, NULL, 1)",
    "INSERT INTO parent VALUES (3, 'three', -1)",
    "INSERT INTO parent VALUES (3, 'three', 12345678)",
    "INSERT INTO child VALUES (1, 77)",
    "BEGIN; INSERT INTO child VALUES (1, 77); COMMIT",
    "INSERT INTO child VALUES (1, 1, 'too long')",
    "INSERT INTO parted VALUES (1, 'mars')",
    "UPDATE parent SET name = 'two' WHERE id = 1",
    "DELETE FROM parent WHERE 1 / (id - 1) > 0",
    "INSERT INTO guarded VALUES (1)",
    "INSERT INTO counted VALUES (1)",
    // CALL
    "CALL calls('SH001')",
    "CALL calls_deep('SH002')",
    "CALL calls('23505')",
    "CALL divides()",
    "CALL commits_then_fails()",
    "CALL no_such_procedure(1)",
    "BEGIN; CALL commits_then_fails()",
    // DO
    "DO $$ BEGIN PERFORM fails_with('SH003'); END $$",
    "DO $$ BEGIN INSERT INTO parent VALUES (1, 'uno', 1); END $$",
    "DO $$ BEGIN PERFORM 1 / (SELECT 0); END $$",
    "DO $$ BEGIN RAISE EXCEPTION SQLSTATE 'ZZ123'; END $$",
    "DO $$ BEGIN EXECUTE 'SELECT nothing FROM parent'; END $$",
    "DO $$ BEGIN EXECUTE 'CALL calls_deep(''SH004'')'; END $$",
    "DO $$ BEGIN CALL calls('SH005'); EXCEPTION WHEN unique_violation THEN NULL; END $$",
    "DO $$ BEGIN syntax error here; END $$",
    "DO LANGUAGE no_such_language 'x'",
    // COPY
    "COPY parent FROM PROGRAM 'echo abc'",
    "COPY parent FROM PROGRAM 'printf \"1\\tuno\\t5\\n\"'",
    "COPY parent FROM PROGRAM 'printf \"7\\tseven\\t-5\\n\"'",
    "COPY parent (id, name) FROM PROGRAM 'printf \"8\\n\"'",
    "COPY no_such_table FROM PROGRAM 'true'",
    "COPY (SELECT 1 / (id - 1) FROM parent) TO PROGRAM 'cat > /dev/null'",
    "COPY guarded FROM PROGRAM 'echo 1'",
    "COPY parent TO '/no/such/directory/file'",
    // PREPARE, EXECUTE, cursors
    "PREPARE p1(int) AS SELECT 1 / $1; EXECUTE p1(0)",
    "EXECUTE no_such_statement",
    "PREPARE p2 AS INSERT INTO parent VALUES (1, 'uno', 1); EXECUTE p2",
    "EXPLAIN ANALYZE SELECT 1 / (id - 1) FROM parent",
    "BEGIN; DECLARE c CURSOR FOR SELECT 1 / (id - 1) FROM parent; FETCH ALL FROM c",
    "FETCH 1 FROM no_such_cursor",
    // DDL
    "CREATE TABLE parent (id int)",
    "CREATE TABLE typo (id no_such_type)",
    "CREATE TABLE copied AS SELECT 1 / (id - 1) FROM parent",
    "ALTER TABLE parent ADD CONSTRAINT cheap CHECK (price < 15)",
    "ALTER TABLE parent DROP COLUMN no_such_column",
    "ALTER TABLE parent ALTER COLUMN name TYPE int USING name::int",
    "DROP TABLE parent",
    "DROP TABLE no_such_table",
    "DROP TYPE mood, no_such_type",
    "CREATE UNIQUE INDEX ON parent ((id / id))",
    "CREATE INDEX ON parent (no_such_column)",
    "CREATE FUNCTION broken() RETURNS int LANGUAGE sql AS 'SELEC 1'",
    "CREATE VIEW broken AS SELECT nothing FROM parent",
    "BEGIN; UPDATE parent SET id = 0 WHERE id = 1; REFRESH MATERIALIZED VIEW no_such_view",
    "CREATE EVENT TRIGGER no_tables ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION no_tables();
     CREATE TABLE refused (id int)",
    "GRANT SELECT ON parent TO no_such_role",
    "ALTER ROLE no_such_role LOGIN",
    "DROP DATABASE no_such_database",
    "ALTER DATABASE no_such_database RENAME TO other",
    "CREATE DATABASE broken TEMPLATE no_such_database",
    "DROP EXTENSION no_such_extension",
    // settings and transactions
    "SET no_such_setting = 1",
    "SET work_mem = 'plenty'",
    "SET ROLE no_such_role",
    "SET ROLE bystander; CREATE TABLE no_right.t (id int)",
    "SET ROLE bystander; DROP TABLE parent",
    "SAVEPOINT s",
    "ROLLBACK TO no_such_savepoint",
    "VACUUM no_such_table",
    "BEGIN; VACUUM parent",
    "LOCK TABLE parent",
    "LISTEN",
];

/// Statements that go on only if an exception handler recognises the error below it.
const HANDLED: &[&str] = &[
    "DO $$ BEGIN CALL calls('SH001'); EXCEPTION WHEN SQLSTATE 'SH001' THEN NULL; END $$",
    "DO $$ BEGIN CALL calls_deep('23505'); EXCEPTION WHEN unique_violation THEN NULL; END $$",
    "DO $$ BEGIN EXECUTE 'CREATE TABLE parent (id int)'; EXCEPTION WHEN duplicate_table THEN NULL; END $$",
    "DO $$ DECLARE c text; BEGIN EXECUTE 'ALTER TABLE parent ADD CONSTRAINT cheap CHECK (price < 15)';
       EXCEPTION WHEN check_violation THEN GET STACKED DIAGNOSTICS c = CONSTRAINT_NAME; ASSERT c = 'cheap'; END $$",
];

/// All that an error says, also about the place in the server's source that raised it.
fn fields(error: &DbError) -> Vec<(&'static str, String)> {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let position = match error.position() {
        None => String::new(),
        Some(ErrorPosition::Original(at)) => at.to_string(),
        Some(ErrorPosition::Internal { position, query }) => format!("{position} in {query}"),
    };
    vec![
        ("severity", error.severity().to_owned()),
        ("sqlstate", error.code().code().to_owned()),
        ("message", error.message().to_owned()),
        ("detail", text(error.detail())),
        ("hint", text(error.hint())),
        ("position", position),
        ("context", text(error.where_())),
        ("schema", text(error.schema())),
        ("table", text(error.table())),
        ("column", text(error.column())),
        ("datatype", text(error.datatype())),
        ("constraint", text(error.constraint())),
        ("file", text(error.file())),
        ("line", error.line().map(|line| line.to_string()).unwrap_or_default()),
        ("routine", text(error.routine())),
    ]
}

/// The error of each failing statement in this database.
fn errors_in(db: &Database<'_>) -> Vec<Vec<(&'static str, String)>> {
    db.execute(SCHEMA);
    let mut client = db.client().expect("a connection");
    let errors = FAILING.iter().map(|statement| {
        let error = client.batch_execute(statement).expect_err(statement);
        let fields = fields(error.as_db_error().unwrap_or_else(|| panic!("{statement}: {error}")));
        client.batch_execute("ROLLBACK; RESET ROLE; DROP EVENT TRIGGER IF EXISTS no_tables").expect(statement);
        fields
    });
    let errors = errors.collect();
    for statement in HANDLED {
        client.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    db.execute("DROP ROLE bystander");
    errors
}

#[test]
fn preloading_changes_no_error_of_other_applications() {
    let without = Cluster::build().without_library().start();
    let expected = errors_in(&without.empty_database("plain"));
    assert!(FAILING.len() >= 60, "the corpus has {} statements", FAILING.len());

    let with = Cluster::start();
    for (what, db) in [("without", with.empty_database("plain")), ("with", with.database("engine"))] {
        let found = errors_in(&db);
        for ((statement, found), expected) in FAILING.iter().zip(found).zip(&expected) {
            assert_eq!(&found, expected, "in a database {what} the extension: {statement}");
        }
    }
}
