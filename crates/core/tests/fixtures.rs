//! Runs the fixture files: each case is an input after `> ` and the output below it, as psql would show it.
//!
//! `UPDATE_FIXTURES=1 cargo test -p automation_core --test fixtures` rewrites the outputs; read the difference before
//! you keep it.

#[path = "fixtures/deliveries.rs"]
mod deliveries;
#[path = "fixtures/gates.rs"]
mod gates;
#[path = "fixtures/modes.rs"]
mod modes;

use modes::Setting;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// One case of a file.
struct Case {
    input: String,
    expected: String,
    setting: Setting,
}

/// A file as its lines that are not cases, with the cases in between.
enum Part {
    Line(String),
    Case(Box<Case>),
}

fn read(path: &Path) -> Vec<Part> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut setting = Setting::default();
    let mut parts = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(first) = line.strip_prefix("> ") {
            let mut input = first.to_owned();
            while let Some(more) = lines.next_if(|l| l.starts_with("> ")) {
                input.push('\n');
                input.push_str(&more[2..]);
            }
            let mut expected = String::new();
            while let Some(more) = lines.next_if(|l| !l.is_empty() && !l.starts_with("> ")) {
                expected.push_str(more);
                expected.push('\n');
            }
            parts.push(Part::Case(Box::new(Case { input, expected, setting: setting.clone() })));
        } else {
            setting.apply(line);
            parts.push(Part::Line(line.to_owned()));
        }
    }
    parts
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<PathBuf> = walk(&folder);
    files.sort();
    files
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false if path.extension().is_some_and(|e| e == "txt") => vec![path],
            false => Vec::new(),
        })
        .collect()
}

#[test]
fn every_fixture_yields_what_it_says() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let (mut cases, mut wrong) = (0, String::new());
    for path in files() {
        let mut rewritten = String::new();
        for part in read(&path) {
            match part {
                Part::Line(line) => writeln!(rewritten, "{line}").unwrap(),
                Part::Case(case) => {
                    cases += 1;
                    let found = case.setting.run(&case.input);
                    for line in case.input.lines() {
                        writeln!(rewritten, "> {line}").unwrap();
                    }
                    rewritten.push_str(&found);
                    if found != case.expected {
                        let name = path.file_name().unwrap().to_string_lossy().into_owned();
                        writeln!(wrong, "{name}: {}\nexpected:\n{}found:\n{found}", case.input, case.expected).unwrap();
                    }
                }
            }
        }
        if update {
            std::fs::write(&path, rewritten).unwrap();
        }
    }
    assert!(update || wrong.is_empty(), "{wrong}");
    assert!(cases >= 400, "only {cases} cases were found");
}
