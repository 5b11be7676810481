//! In a database of another encoding than UTF8 the same letters come out as in a UTF8 database, wherever a user can put
//! them.

use std::sync::OnceLock;
use std::time::Duration;

use e2e::receiver::{Receiver, Reply};
use e2e::{Cluster, Database};
use postgres::fallible_iterator::FallibleIterator;

fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::plain().start();
        cluster.give_key();
        cluster
    })
}

/// A database of an encoding, with the extension in it.
fn encoded(name: &str, encoding: &str) -> Database<'static> {
    let db = shared().encoded_database(name, encoding);
    db.execute("CREATE EXTENSION automation_engine");
    assert_eq!(db.text("SHOW server_encoding"), encoding);
    db
}

/// Notes about a database: the same in every encoding.
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, db: &Database<'_>, sql: &str) {
        for row in db.rows(sql) {
            let values: Vec<String> = row.into_iter().map(|value| value.unwrap_or_else(|| "-".to_owned())).collect();
            self.0.push(values.join(" | "));
        }
    }

    fn add_error(&mut self, db: &Database<'_>, sql: &str) {
        self.0.push(db.error(sql).to_string());
    }
}

/// Uses `word` for everything that has a name or a value, and notes all that can be read afterwards.
fn work(db: &Database<'_>, word: &str) -> Vec<String> {
    let fill = |sql: &str| sql.replace("WORD", word);
    let run = |sql: &str| db.execute(&fill(sql));
    let mut notes = Notes(Vec::new());
    let answer = fill("thank you, WORD");
    let receiver = Receiver::start(move |_, _| Reply::Says(200, answer.clone()));

    run(r#"CREATE SCHEMA "s WORD";
           CREATE TABLE "s WORD"."t WORD" ("id WORD" text PRIMARY KEY, "c WORD" text, "owner WORD" text, doc json, docb jsonb);
           COMMENT ON TABLE "s WORD"."t WORD" IS 'comment WORD';
           CREATE TABLE other ("k WORD" text, n text, state text, PRIMARY KEY ("k WORD", n));
           CREATE TABLE note (line text);
           CREATE TABLE "s WORD".hidden (line text);
           CREATE TYPE "e WORD" AS ENUM ('v WORD');
           CREATE FUNCTION "f WORD"(j jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('got WORD', j) $$"#);
    // Roles are shared by the databases of a server, whose encodings differ, so theirs have names in ASCII.
    run(r#"SELECT automation.watch_table('"s WORD"."t WORD"', kind => 'kind_WORD', tenant_column => 'owner WORD')"#);
    run("SELECT automation.watch_table('other')");
    notes.add(
        db,
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgname, tgrelid::regclass::text",
    );

    // Defined by functions, by a document, by a text; each value of an option that can have letters has some.
    run(r#"SELECT automation.define('auto WORD', description => 'description WORD',
               trigger => automation.on_created('kind_WORD', filter => 'new."c WORD" == "value WORD"', id => 'trigger WORD'),
               key => 'new."id WORD"',
               steps => ARRAY[
                   automation.set('{"var WORD": "set {{ new.\"c WORD\" }} WORD"}', id => 'set WORD'),
                   automation.sql('INSERT INTO note SELECT ''literal WORD '' || {{ vars."var WORD" }} || {{ new.doc.a }} || {{ new.docb.a }}
                                   RETURNING line AS "result WORD"', id => 'sql WORD'),
                   automation.call('"f WORD"', '{"arg WORD": steps."sql WORD".row."result WORD"}', id => 'call WORD'),
                   automation.publish('topic.WORD', '{"payload WORD": steps."call WORD".result}'),
                   automation.notify('channel', '"notice WORD " + upper(new."id WORD")'),
                   automation.store_state('stored_WORD', 'entity WORD', '{"field WORD": "state WORD"}'),
                   automation.wait_until('state."kind_WORD"["second WORD"]."c WORD" == "ready WORD"', timeout => '1 hour'),
                   automation.wait_until('state.other["[\"k WORD\",\"1\"]"].state == "WORD"', timeout => '1 hour'),
                   automation.wait_for_event('answer.WORD', filter => 'payload."a WORD" == "b WORD"', timeout => '1 hour', id => 'event WORD'),
                   automation.wait_signal('signal WORD', timeout => '1 hour', key => 'key WORD', id => 'signalled WORD'),
                   automation.sql('INSERT INTO note SELECT ''end '' || {{ steps."signalled WORD".payload."p WORD" }} || {{ vars."var WORD" }}')])"#);
    run(
        r#"SELECT automation.define('listener WORD', trigger => automation.on_event('topic.WORD', filter => '{"/payload WORD/got WORD/arg WORD": {"neq": null}}'),
               steps => ARRAY[automation.sql('INSERT INTO note SELECT ''heard '' || {{ payload }}::text || {{ event.topic }}')])"#,
    );
    db.execute(&fill(
        r#"SELECT automation.define(document => '{"name": "document WORD", "triggers": [{"on": "updated", "kind": "kind_WORD", "columns": ["c WORD"]}],
               "steps": [{"do": "sql", "sql": "INSERT INTO note VALUES (''changed '' || {{ old.\"c WORD\" }} || '' to '' || {{ new.\"c WORD\" }})"}]}')"#,
    ));
    run(r#"SELECT automation.define('failing WORD', trigger => automation.on_call(),
               steps => ARRAY[automation.sql('SELECT {{ "x WORD" }}::text::"e WORD"', id => 'cast WORD')])"#);
    run(r#"SELECT automation.define('raising WORD', trigger => automation.on_call(),
               steps => ARRAY[automation.sql('DO $a$ BEGIN RAISE EXCEPTION ''message WORD'' USING DETAIL = ''detail WORD'', HINT = ''hint WORD''; END $a$')])"#);
    run(
        r#"SELECT automation.derive_event('kind_WORD', 'derived.WORD', 'new."c WORD" becomes "ready WORD"', name => 'rule WORD')"#,
    );
    // Found by the search path that the session has when the automation is defined.
    run(r#"SET search_path = "s WORD", public;
           SELECT automation.define('path WORD', trigger => automation.on_call(), steps => ARRAY[automation.sql('INSERT INTO hidden VALUES (''WORD'')')])"#);
    run("SET search_path = public");
    run(
        r#"SELECT automation.define('noted WORD', trigger => automation.on_updated('kind_WORD', filter => '1 / (length(new."c WORD") - length("ready WORD")) > 1'),
               steps => ARRAY[automation.sql('SELECT 1')])"#,
    );
    run(r#"SELECT automation.define('slow WORD', trigger => automation.on_call(),
               steps => ARRAY[automation.sql('SELECT pg_sleep(3600)', id => 'step WORD', timeout => '2 hours')])"#);
    run("SELECT automation.subscribe('topic.WORD', 'channel')");
    run(r#"SELECT automation.set_secret('secret WORD', 'the value of WORD, long enough to sign with')"#);
    db.execute(&format!(
        "SELECT automation.allow_egress('postgres', '127.0.0.1', port => {}, cidr => '127.0.0.0/8')",
        receiver.port
    ));
    db.execute(&fill(&format!(
        "SELECT automation.set_endpoint('endpoint WORD', '{}', secret => 'secret WORD')",
        receiver.url()
    )));
    run(r#"SELECT automation.define('hook WORD', trigger => automation.on_event('hook.WORD'),
               steps => ARRAY[automation.webhook('endpoint WORD', body => '{"body WORD": "{{ payload.\"x WORD\" }} WORD"}')])"#);

    let mut listener = db.client().expect("a session");
    listener.batch_execute("LISTEN channel").expect("it listens");

    run(r#"SET automation_engine.actor = 'user:WORD';
           INSERT INTO "s WORD"."t WORD" VALUES ('first WORD', 'value WORD', 'tenant WORD', '{"a": "json WORD"}', '{"a": "jsonb WORD"}')"#);
    db.wait_until("the first run waits", "SELECT EXISTS (SELECT FROM automation.waiting)");
    notes.add(db, "SELECT automation, step, waiting_for, refs, kind, key, entity, tenant FROM automation.waiting");
    run(r#"INSERT INTO "s WORD"."t WORD" VALUES ('second WORD', 'not yet', NULL, NULL, NULL)"#);
    run(r#"UPDATE "s WORD"."t WORD" SET "c WORD" = 'ready WORD' WHERE "id WORD" = 'second WORD'"#);
    db.wait_until("the second wait", "SELECT EXISTS (SELECT FROM automation.waiting WHERE refs::text LIKE '%other%')");
    run(r#"INSERT INTO other VALUES ('k WORD', '1', 'WORD')"#);
    db.wait_until("the third wait", "SELECT EXISTS (SELECT FROM automation.waiting WHERE kind = 'wait_for_event')");
    run(
        r#"SELECT automation.emit('answer.WORD', '{"a WORD": "b WORD"}', dedup_key => 'dedup WORD', tenant => 'tenant WORD')"#,
    );
    db.wait_until("the last wait", "SELECT EXISTS (SELECT FROM automation.waiting WHERE kind = 'wait_signal')");
    run(r#"SELECT automation.signal('signal WORD', '{"p WORD": "signalled WORD "}', key => 'key WORD')"#);
    db.wait_until(
        "the first run has ended",
        &fill(r"SELECT status IN ('completed', 'failed') FROM automation.runs WHERE automation = 'auto WORD'"),
    );
    run(
        "SELECT automation.start_run('failing WORD'); SELECT automation.start_run('raising WORD', '{\"x WORD\": \"y WORD\"}')",
    );
    db.wait_until("both have failed", "SELECT count(*) = 2 FROM automation.runs WHERE status = 'failed'");
    run(r#"SELECT automation.emit('hook.WORD', '{"x WORD": "posted"}')"#);
    db.wait_until("it is delivered", "SELECT EXISTS (SELECT FROM automation.deliveries WHERE state = 'delivered')");
    run(
        r#"SELECT automation.set_state('health', 'WORD', '{"WORD": "WORD"}'); SELECT automation.patch_state('health', 'WORD', '{"p WORD": 1}')"#,
    );
    run(r#"SELECT automation.pause('document WORD'); SELECT automation.resume('document WORD')"#);
    db.wait_until("all runs ended", "SELECT count(*) = 0 FROM automation.runs WHERE ended_at IS NULL");

    run(
        r"SELECT automation.retry_run((SELECT id FROM automation.runs WHERE automation = 'failing WORD'), 'cast WORD'); SELECT automation.start_run('path WORD')",
    );
    db.wait_until("it has failed again", "SELECT count(*) = 3 FROM automation.runs WHERE status = 'failed'");
    db.wait_until("the path was used", &fill(r#"SELECT EXISTS (SELECT FROM "s WORD".hidden)"#));
    run("SELECT automation.start_run('slow WORD')");
    db.wait_until("it sleeps", &fill("SELECT step = 'step WORD' FROM automation.runs WHERE automation = 'slow WORD'"));
    notes.add(
        db,
        "SELECT regexp_replace(query, 'run [0-9]+', '') FROM pg_stat_activity
          WHERE backend_type = 'automation_engine executor' AND datname = current_database() AND query LIKE '%slow%'",
    );
    run("SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'slow WORD'");
    db.wait_until(
        "it was cancelled",
        &fill("SELECT status = 'cancelled' FROM automation.runs WHERE automation = 'slow WORD'"),
    );

    // The body that was sent is UTF-8.
    let received = receiver.received();
    assert_eq!(received.len(), 1);
    notes.0.push(received[0].body.clone());
    assert!(received[0].is_signed_with(fill("the value of WORD, long enough to sign with").as_bytes()));
    let mut told = Vec::new();
    while let Ok(Some(notification)) = listener.notifications().timeout_iter(Duration::from_secs(1)).next() {
        told.push(notification.payload().to_owned());
    }
    told.retain(|payload| payload.contains("notice"));
    notes.0.push(format!("{told:?}"));

    for view in [
        "SELECT line FROM note ORDER BY line COLLATE \"C\"",
        "SELECT name, description, triggers, tenant, automation.document(name) FROM automation.automations ORDER BY name",
        "SELECT automation, status, entity, key, tenant, trigger, error, sqlstate, message, detail, hint, context FROM automation.runs ORDER BY automation, entity",
        "SELECT s.step, s.kind, s.status, CASE WHEN s.kind NOT IN ('publish', 'store_state', 'webhook', 'wait_until', 'wait_for_event', 'wait_signal') THEN s.result END, s.error
           FROM automation.run_steps AS s JOIN automation.runs AS r ON r.id = s.run_id ORDER BY r.automation, r.entity, s.seq",
        "SELECT topic, kind, entity_id, op, changed, prev, next - 'run_id', payload - 'run_id' - 'run', regexp_replace(actor, 'run [0-9]+', ''), tenant, dedup_key FROM automation.events
          WHERE op IN ('created', 'updated', 'deleted', 'emitted') AND topic NOT LIKE 'automation.%' ORDER BY kind, topic, entity_id, id",
        "SELECT automation, step, tenant, endpoint, last_status, response_body FROM automation.deliveries",
        "SELECT name FROM automation.secrets",
        "SELECT name, secret FROM automation.endpoints",
        "SELECT kind, name, topic, condition FROM automation.derived_events",
        "SELECT pattern, channel FROM automation.subscriptions",
        "SELECT action, automation, details FROM automation.audit_log WHERE details::text NOT LIKE '%127.0.0.1%'",
        "SELECT DISTINCT level, code, automation, message, detail FROM automation.log",
        "SELECT automation.state('health', 'WORD'), automation.state('kind_WORD', 'first WORD'), automation.state('stored_WORD', 'entity WORD'),
                automation.state('other', '[\"k WORD\",\"1\"]')",
        "SELECT automation.evaluate('upper(\"WORD\") + text(length(\"WORD\")) + x.\"WORD\"', '{\"x\": {\"WORD\": \"WORD\"}}')",
        "SELECT automation.match_topic('a.WORD.*', 'a.WORD.b'), automation.match_filter('{\"/WORD\": {\"eq\": \"WORD\"}}', '{\"WORD\": \"WORD\"}')",
        "SELECT severity, path, line, col, sqlstate, message, hint FROM automation.validate('{\"name\": \"WORD\", \"triggers\": [{\"on\": \"created\", \"kind\": \"none WORD\"}], \"steps\": [{\"do\": \"sql\", \"sql\": \"SELECT ''WORD'', WORD_\"}]}')",
        "SELECT version, current, document FROM automation.versions('auto WORD')",
        "SELECT * FROM automation.pause('none WORD')",
        "SELECT * FROM automation.extract_refs('state.\"kind_WORD\"[\"first WORD\"].x == 1')",
        "SELECT obj_description('\"s WORD\".\"t WORD\"'::regclass)",
    ] {
        notes.add(db, &fill(view));
    }

    // Errors: ours, with detail and hint and with a place in a text; Postgres' own out of the engine's statements.
    for wrong in [
        "SELECT automation.document('none WORD')",
        "SELECT automation.emit('not allowed WORD')",
        "SELECT automation.set_state('kind_WORD', 'x', '{}')",
        "SELECT automation.evaluate('\"WORD\" + + nothing(\"WORD\")')",
        "SELECT automation.define('wrong WORD', trigger => automation.on_created('kind_WORD'), steps => ARRAY[automation.sql('SELECT ''WORD'' FROM \"none WORD\"')])",
        "SELECT automation.define('wrong WORD', trigger => automation.on_created('kind_WORD', filter => 'new.\"none WORD\" == 1'), steps => ARRAY[automation.sql('SELECT 1')])",
        "SELECT automation.watch_table('other', id_columns => '{none WORD}')",
        "SELECT automation.watch_table('\"none WORD\"')",
        "SELECT automation.define(document => '{\"name\": \"WORD\", WORD}')",
        "SELECT automation.grant_topic('role WORD', 'topic', 'listen')",
        "SELECT automation.drop_automation('auto WORD', runs => 'runs WORD')",
        "SELECT automation.set_secret('other WORD', 'x', host => 'no host WORD')",
        "SELECT automation.backfill('auto WORD', 'SELECT 1 AS \"WORD\", 2 AS \"WORD\"')",
        "SELECT automation.backfill('auto WORD', 'SELECT ''WORD'' FROM \"none WORD\"')",
        "DO $a$ BEGIN PERFORM automation.document('none WORD'); EXCEPTION WHEN others THEN RAISE EXCEPTION 'caught: %', SQLERRM; END $a$",
    ] {
        notes.add_error(db, &fill(wrong));
    }
    // Raised by a trigger of a user inside a statement of the engine's: it comes through the engine's own code.
    run(
        r#"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $a$ BEGIN RAISE EXCEPTION 'refused WORD' USING DETAIL = 'detail WORD', HINT = 'hint WORD'; END $a$;
           CREATE TRIGGER refuse BEFORE INSERT ON automation_internal.subscription FOR EACH ROW EXECUTE FUNCTION refuse()"#,
    );
    notes.add_error(db, &fill("SELECT automation.subscribe('again.WORD', 'channel')"));
    run("DROP TRIGGER refuse ON automation_internal.subscription");
    // The notice of a statement that goes on, and a bulk job.
    run("SELECT automation.backfill('failing WORD', 'SELECT ''row WORD'' AS \"column WORD\"')");
    db.wait_until("the row has failed", "SELECT EXISTS (SELECT FROM automation.bulk_items WHERE status = 'failed')");
    notes.add(db, "SELECT data, error FROM automation.bulk_items");
    run(r#"DELETE FROM "s WORD"."t WORD"; TRUNCATE other; DROP TABLE "s WORD"."t WORD"; DROP SCHEMA "s WORD" CASCADE"#);
    db.wait_until("nothing is left to do", "SELECT count(*) = 0 FROM automation_internal.dispatch");
    notes.add(db, "SELECT item, status FROM automation.status() WHERE item IN ('errors', 'router', 'rescued_wakeups')");
    notes.0
}

#[track_caller]
fn same_as_in_utf8(name: &str, encoding: &str, word: &str) {
    let expected = {
        let db = encoded(&format!("{name}_utf8"), "UTF8");
        work(&db, word)
    };
    assert!(expected.iter().any(|line| line.contains(word)), "{expected:?}");
    let db = encoded(name, encoding);
    let found = work(&db, word);
    println!("{}", found.join("\n"));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "in {encoding}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn letters_survive_in_latin1() {
    same_as_in_utf8("latin1", "LATIN1", "größe");
}

#[test]
fn letters_survive_in_latin9() {
    same_as_in_utf8("latin9", "LATIN9", "œuvre€");
}

#[test]
fn letters_survive_in_win1252() {
    same_as_in_utf8("win1252", "WIN1252", "größe€");
}

#[test]
fn letters_survive_in_euc_jp() {
    same_as_in_utf8("euc_jp", "EUC_JP", "注文番号");
}

/// Letters that LATIN1 lacks come from expressions, from `json` columns and from receivers.
#[test]
fn a_letter_that_the_encoding_lacks_is_named_and_stops_no_worker() {
    let db = encoded("lacking", "LATIN1");
    let receiver = Receiver::start(|_, _| Reply::Says(200, "5 € und größe 注".to_owned()));
    db.execute(&format!(
        "SELECT automation.allow_egress('postgres', '127.0.0.1', port => {}, cidr => '127.0.0.0/8')",
        receiver.port
    ));
    db.execute("CREATE TABLE doc (id text PRIMARY KEY, j json); SELECT automation.watch_table('doc'); CREATE TABLE note (line text)");
    // One automation for each border; the escape of a JSON string makes the letter, or a letter whose capital LATIN1
    // lacks.
    let euro = r#""\u20ac""#;
    for (name, step) in [
        ("sql", format!("automation.sql('INSERT INTO note VALUES ({{{{ {euro} }}}})')")),
        ("call", format!("automation.call('take', '{{\"a\": {euro}}}')")),
        ("publish", format!("automation.publish('t', '{{\"a\": {euro}}}')")),
        ("topic", format!("automation.publish('t.{{{{ {euro} }}}}', '{{}}')")),
        ("notify", format!("automation.notify('c', '{euro}')")),
        ("store", format!("automation.store_state('k', 'e', '{{\"a\": {euro}}}')")),
        (
            "webhook",
            format!("automation.webhook('{}', body => '{{\"a\": \"{{{{ upper(''ÿ'') }}}}\"}}')", receiver.url()),
        ),
        ("run", format!("automation.run('sql', '{{\"a\": {euro}}}')")),
        ("upper", "automation.sql('INSERT INTO note VALUES ({{ upper(\"ÿ\") }})')".to_owned()),
    ] {
        if name == "call" {
            db.execute("CREATE FUNCTION take(j jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT j'");
        }
        db.execute(&format!(
            "SELECT automation.define('{name}', trigger => automation.on_call(), steps => ARRAY[{step}])"
        ));
        db.execute(&format!("SELECT automation.start_run('{name}')"));
        db.wait_until(
            &format!("the run of {name} has failed"),
            &format!("SELECT status = 'failed' FROM automation.runs WHERE automation = '{name}'"),
        );
        let error =
            db.rows(&format!("SELECT sqlstate, message, detail FROM automation.runs WHERE automation = '{name}'"));
        let (bytes, number) =
            if ["webhook", "upper"].contains(&name) { ("0xc5 0xb8", "U+0178") } else { ("0xe2 0x82 0xac", "U+20AC") };
        let expected = [
            "22P05".to_owned(),
            format!(
                "character with byte sequence {bytes} in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\""
            ),
            format!("The letter is {number}."),
        ];
        assert_eq!(error, [expected.map(Some).to_vec()], "{name}");
    }
    assert_eq!(db.error(r#"SELECT automation.evaluate('"\u20ac"')"#).sqlstate, "22P05");

    // A variable keeps the letter while the run waits; views show its number.
    db.execute(
        r#"SELECT automation.define('keeps', trigger => automation.on_call(), steps => ARRAY[
               automation.set('{"v": "{{ upper(''ÿ'') }}"}', id => 'set'),
               automation.wait_signal('go', timeout => '1 hour'),
               automation.sql('INSERT INTO note SELECT {{ length(vars.v) }} || '' letter''')])"#,
    );
    db.execute("SELECT automation.start_run('keeps')");
    db.wait_until("it waits", "SELECT EXISTS (SELECT FROM automation.waiting)");
    db.execute("SELECT automation.signal('go')");
    db.wait_until("it kept one letter", "SELECT EXISTS (SELECT FROM note WHERE line = '1 letter')");
    db.wait_until("its steps can be read", "SELECT count(*) = 3 FROM automation.run_steps WHERE run_id = (SELECT id FROM automation.runs WHERE automation = 'keeps')");

    // An escape in a json column, which the column may hold and jsonb may not.
    db.execute(
        r#"SELECT automation.define('hears', trigger => automation.on_created('doc'),
               steps => ARRAY[automation.sql('INSERT INTO note VALUES (''heard '' || {{ new.j.a }})')])"#,
    );
    db.execute(r#"INSERT INTO doc VALUES ('é', '{"a": "\u20ac \u00fc"}')"#);
    db.wait_until("the event was heard", "SELECT EXISTS (SELECT FROM note WHERE line = 'heard <U+20AC> ü')");
    assert_eq!(
        db.text("SELECT next FROM automation.events WHERE kind = 'doc' AND op = 'created'"),
        r#"{"j": {"a": "<U+20AC> ü"}, "id": "é"}"#
    );

    // The answer of a receiver is recorded, with numbers for the letters that the database cannot hold.
    db.execute(&format!(
        "SELECT automation.define('hook', trigger => automation.on_call(), steps => ARRAY[automation.webhook('{}')])",
        receiver.url()
    ));
    db.execute("SELECT automation.start_run('hook')");
    db.wait_until("it is delivered", "SELECT EXISTS (SELECT FROM automation.deliveries WHERE state = 'delivered')");
    assert_eq!(db.text("SELECT response_body FROM automation.deliveries"), "5 <U+20AC> und größe <U+6CE8>");
    assert_eq!(receiver.received().len(), 1);
    db.expect_nothing_rescued();
}

/// The bytes of these two letters in LATIN1 are one letter in UTF-8.
#[test]
fn a_row_of_a_backfill_is_not_taken_for_utf8() {
    let db = encoded("backfilled", "LATIN1");
    db.execute("CREATE TABLE note (line text)");
    db.execute(
        "SELECT automation.define('each', trigger => automation.on_call(),
             steps => ARRAY[automation.sql('INSERT INTO note VALUES ({{ payload.x }})')])",
    );
    db.execute("SELECT automation.backfill('each', $$SELECT 'Ã¼' AS x$$)");
    db.wait_until("the row is done", "SELECT EXISTS (SELECT FROM note)");
    assert_eq!(db.text("SELECT line FROM note"), "Ã¼");
}

/// WIN1252 has bytes that are no letters, which a text may hold all the same.
#[test]
fn bytes_that_are_no_letters_come_back_as_they_were() {
    let db = encoded("bytes", "WIN1252");
    db.execute("CREATE TABLE doc (id text PRIMARY KEY, x text); SELECT automation.watch_table('doc'); CREATE TABLE note (line text)");
    db.execute(
        "SELECT automation.define('copies', trigger => automation.on_created('doc'),
             steps => ARRAY[automation.sql('INSERT INTO note VALUES ({{ new.x }} || {{ event.id }})')])",
    );
    // A conversion to the client's encoding would fail, so that the text is made and shown as bytes.
    db.execute(r"INSERT INTO doc SELECT t || 'é', t FROM (SELECT convert_from('\x814181', 'WIN1252') AS t) AS s");
    db.wait_until("it was copied", "SELECT EXISTS (SELECT FROM note)");
    assert_eq!(db.text("SELECT encode(convert_to(line, 'WIN1252'), 'hex') FROM note"), "814181814181e9");
}

/// That MULE_INTERNAL is refused is shown by a regression test: a client that speaks UTF8 cannot even connect to such a
/// database.
#[test]
fn an_encoding_that_cannot_be_converted_is_refused() {
    let db = shared().encoded_database("ascii", "SQL_ASCII");
    let error = db.error("CREATE EXTENSION automation_engine");
    assert_eq!(error.sqlstate, "0A000");
    assert_eq!(error.message, "automation_engine cannot be used in a database with encoding SQL_ASCII");
    assert!(error.detail.contains("does not know which letters"), "{error}");
}
