//! Is the code where it belongs? Reads the repository.
#[path = "house_rules/kinds.rs"]
mod kinds;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// (path from the root, text) of every Rust file below a folder.
fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, text));
            }
        }
    }
    assert!(!found.is_empty(), "no Rust files in {folder}");
    found
}

/// The code without comments and without its tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//"))
}

fn offenders(folder: &str, banned: &[&str], allowed: impl Fn(&str) -> bool) -> Vec<String> {
    rust_files(folder)
        .iter()
        .filter(|(path, _)| !allowed(path))
        .flat_map(|(path, text)| {
            code(text)
                .filter(|line| banned.iter().any(|word| line.contains(word)))
                .map(|line| format!("{path}: {}", line.trim()))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn sql_of_the_engine_stands_in_store_and_event_log() {
    let statement =
        ["\n    SELECT ", "\n    INSERT INTO", "\n    UPDATE automation", "\n    DELETE FROM", "\n    WITH "];
    let misplaced: Vec<String> = rust_files("src")
        .into_iter()
        .filter(|(path, _)| !path.starts_with("src/store/") && !path.starts_with("src/event_log/"))
        .filter(|(path, text)| path != "src/janitor.rs" && statement.iter().any(|word| text.contains(word)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(misplaced, Vec::<String>::new());
}

#[test]
fn sqlstates_of_ours_are_named_in_error_rs_only() {
    let allowed = |path: &str| path == "src/error.rs" || path == "src/api/admin.rs";
    assert_eq!(offenders("src", &["ERRCODE_"], allowed), Vec::<String>::new());
}

#[test]
fn a_file_with_unsafe_code_says_so_at_its_top() {
    let silent: Vec<String> = rust_files("src")
        .into_iter()
        .filter(|(_, text)| code(text).any(|line| line.contains("unsafe {")) && !text.contains("allow(unsafe_code)"))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn every_unsafe_block_gives_its_reason() {
    let mut silent = Vec::new();
    for (path, text) in rust_files("src").into_iter().chain(rust_files("crates/pg/src")) {
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let opens = line.contains("unsafe {") && !line.trim_start().starts_with("//");
            let near = lines[i.saturating_sub(8)..(i + 4).min(lines.len())].join("\n");
            if opens && !near.contains("SAFETY:") {
                silent.push(format!("{path}:{}", i + 1));
            }
        }
    }
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn the_core_reads_no_clock_and_does_no_input_or_output() {
    let banned = ["pgrx", "SystemTime", "Instant::now", "Utc::now", "std::fs", "std::net", "println!"];
    assert_eq!(offenders("crates/core/src", &banned, |_| false), Vec::<String>::new());
}

#[test]
fn nothing_panics_on_purpose() {
    let banned = [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!("];
    assert_eq!(offenders("src", &banned, |_| false), Vec::<String>::new());
    assert_eq!(offenders("crates/pg/src", &banned, |_| false), Vec::<String>::new());
    assert_eq!(offenders("crates/core/src", &banned, |_| false), Vec::<String>::new());
    assert_eq!(offenders("crates/egress/src", &banned, |_| false), Vec::<String>::new());
}

#[test]
fn four_statements_write_the_status_of_an_automation_r003_14() {
    // What a person does, what the engine does for safety, DROP, and the end of an owner; every one of them notes its change.
    let writes = |text: &str| text.matches("UPDATE automation_internal.automation AS a\n       SET status =").count();
    let writers: Vec<(String, usize)> = rust_files("src")
        .into_iter()
        .map(|(path, text)| (path, writes(&text)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let mut writers: Vec<(&str, usize)> = writers.iter().map(|(path, count)| (path.as_str(), *count)).collect();
    writers.sort();
    assert_eq!(writers, [("src/store/automations.rs", 3), ("src/store/owners.rs", 1)]);
    let elsewhere: Vec<String> = rust_files("src")
        .into_iter()
        .filter(|(path, text)| {
            !path.starts_with("src/store/") && text.contains("UPDATE automation_internal.automation ")
        })
        .map(|(path, _)| path)
        .collect();
    assert_eq!(elsewhere, Vec::<String>::new());
}

#[test]
fn no_kind_of_step_or_trigger_is_swallowed_by_an_arm_for_the_rest() {
    let found: Vec<String> = ["src", "crates/core/src"]
        .into_iter()
        .flat_map(rust_files)
        .flat_map(|(path, text)| kinds::swallowed(&text).into_iter().map(move |place| format!("{path}:{place}")))
        .collect();
    assert_eq!(found, Vec::<String>::new(), "name every kind, or ask a fact of its form");
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = ["src", "crates/core/src", "crates/pg/src", "crates/egress", "pgrx-tests", "tests/e2e"]
        .iter()
        .flat_map(|folder| rust_files(folder))
        .filter(|(_, text)| text.lines().count() > 600)
        .map(|(path, text)| format!("{path}: {} lines", text.lines().count()))
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn no_expected_output_is_a_file_that_psql_did_not_find() {
    let folder = root().join("tests/pg_regress/expected");
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        // psql itself says "FILE: No such file or directory"; an error of the server has a field's name before it.
        let lines = text.lines().filter(|line| line.ends_with(": No such file or directory"));
        missing.extend(lines.map(|line| format!("{}: {line}", path.display())));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// The modules of the extension from the lowest to the highest; docs/architecture.md says what each is for. A module refers
/// only to modules before it. The crates below them (core, pg, egress, sealed) cannot refer upward: it would not compile.
const LAYERS: [&str; 17] = [
    "error",
    "gucs",
    "provenance",
    "signal",
    "event_log",
    "store",
    "secrets",
    "definitions",
    "capture",
    "runs",
    "router",
    "executor",
    "define",
    "courier",
    "janitor",
    "workers",
    "api",
];

/// The first names behind `crate::` in a text, those of `use crate::{a, b::c}` included.
fn modules_named(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(rest);
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    begins = false;
                    found.push(&group[at..]);
                }
                _ => {}
            }
        }
    }
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    found.into_iter().map(name).collect()
}

#[test]
fn modules_named_finds_every_form_of_a_reference() {
    let text = "use crate::{a, b::{c, d},\n e as f};\nuse crate::g::h;\nlet x = crate::i::j();";
    assert_eq!(modules_named(text), ["a", "b", "e", "g", "i"]);
}

#[test]
fn no_module_refers_to_one_above_it() {
    let level = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let (mut upward, mut unknown) = (Vec::new(), Vec::new());
    for (path, text) in rust_files("src") {
        let own = path["src/".len()..].split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
        if own == "lib" {
            continue;
        }
        let Some(own_level) = level(&own) else {
            unknown.push(path);
            continue;
        };
        let code = code(&text).collect::<Vec<_>>().join("\n");
        for name in modules_named(&code) {
            if level(&name).is_some_and(|other| other > own_level) {
                upward.push(format!("{path} refers to {name}"));
            }
        }
    }
    assert_eq!((upward, unknown), (Vec::new(), Vec::new()));
}

#[test]
fn every_module_of_the_extension_has_its_place_in_the_architecture() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md");
    let missing: Vec<&str> = LAYERS.into_iter().filter(|layer| !page.contains(&format!("`src/{layer}"))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn orders_are_written_and_read_by_their_type_only() {
    // crates/core/src/order.rs has every verb and field; a text put together elsewhere could not be told from a mistake.
    let banned = ["order[\"", "\"do\": \"", "[\"do\"]"];
    let allowed = |path: &str| path == "src/define/mod.rs"; // steps of a document have `do` as well
    assert_eq!(offenders("src", &banned, allowed), Vec::<String>::new());
}
