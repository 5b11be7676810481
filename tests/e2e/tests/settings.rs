//! The table of settings in the README agrees with the settings of the server.

use std::fs;
use std::path::Path;

use e2e::Cluster;

/// Rows `| \`name\` | \`default\` | ...` of the README.
fn documented() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(path).expect("the README");
    let rows = readme.lines().filter(|line| line.starts_with("| `automation_engine."));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned());
        (cells.next().expect("a name"), cells.next().expect("a default"))
    })
    .collect()
}

#[test]
fn the_readme_lists_every_setting_with_its_default() {
    // Without the tests' own values, so that the defaults are shown.
    let cluster = Cluster::build().without_library().start();
    let db = cluster.empty_database("settings");
    db.execute("CREATE EXTENSION automation_engine");
    // The library, and with it the settings, is loaded by the first call.
    db.execute("LOAD 'automation_engine'");
    let actual: Vec<(String, String)> = db
        .rows(
            "SELECT name, current_setting(name) FROM pg_settings
              WHERE name LIKE 'automation\\_engine.%' AND name <> 'automation_engine.failpoint' ORDER BY name",
        )
        .into_iter()
        .map(|row| (row[0].clone().unwrap_or_default(), row[1].clone().unwrap_or_default()))
        .collect();
    let mut documented = documented();
    documented.sort();
    assert_eq!(documented, actual);
}

#[test]
fn an_actor_of_the_engine_in_the_configuration_keeps_nobody_out() {
    let cluster = Cluster::build().setting("automation_engine.actor", "system:automation:forged").start();
    let db = cluster.database("forged");
    assert_eq!(db.text("SELECT current_setting('automation_engine.actor') = ''"), "t");
    // Written by hand into the catalog, since ALTER ROLE refuses it as well.
    assert_eq!(db.error("ALTER ROLE postgres SET automation_engine.actor = 'system:x'").sqlstate, "42501");
    db.execute(
        "ALTER ROLE postgres SET automation_engine.actor = 'user:x';
         UPDATE pg_db_role_setting SET setconfig = '{automation_engine.actor=system:x}'
          WHERE setrole = 'postgres'::regrole",
    );
    let session = db.another_session();
    assert_eq!(session.text("SELECT current_setting('automation_engine.actor') = ''"), "t");
}
