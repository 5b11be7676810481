//! Are the pages for contributors true? Reads the repository: links lead somewhere, files that are named exist, and pages keep
//! the form that their tables of contents promise.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Paths from the root of the Markdown files in a folder.
fn pages(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of the repository").flatten();
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("{folder}/{name}").trim_start_matches("./").to_owned())
        .collect();
    found.sort();
    found
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn every_link_to_a_file_leads_to_one() {
    let mut broken = Vec::new();
    for page in pages(".").into_iter().chain(pages("docs")).chain(pages("docs/decisions")) {
        let text = read(&page);
        let here = Path::new(&page).parent().expect("a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !target.contains("://") && !root().join(&here).join(file).exists() {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn every_file_that_the_pages_for_contributors_name_exists() {
    let mut missing = Vec::new();
    let pages = ["docs/architecture.md".to_owned(), "docs/internals.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for page in pages.into_iter().chain(pages_of_decisions()) {
        let text = read(&page);
        let paths = quoted(&text).filter(|name| {
            ["src/", "crates/", "sql/", "tests/", "pgrx-tests/", "scripts/"].iter().any(|top| name.starts_with(top))
        });
        for path in paths.filter(|path| path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c))) {
            // A module is named without its ending.
            if !root().join(path).exists() && !root().join(format!("{path}.rs")).exists() {
                missing.push(format!("{page}: {path}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn the_glossary_has_at_most_thirty_words_and_each_once() {
    let page = read("docs/architecture.md");
    let (_, glossary) = page.split_once("\n## Glossary\n").expect("a glossary");
    let rows = glossary.lines().filter(|line| line.starts_with("| ")).skip(1);
    let words: Vec<&str> = rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect();
    let distinct: BTreeSet<&&str> = words.iter().collect();
    assert_eq!(distinct.len(), words.len(), "{words:?}");
    assert!((20..=30).contains(&words.len()), "{} words", words.len());
}

fn pages_of_decisions() -> Vec<String> {
    pages("docs/decisions").into_iter().filter(|page| !page.ends_with("README.md")).collect()
}

#[test]
fn a_decision_has_a_number_a_date_a_status_and_its_files_and_stands_in_the_table_of_contents() {
    let contents = read("docs/decisions/README.md");
    let mut rows = Vec::new();
    for (i, page) in pages_of_decisions().iter().enumerate() {
        let text = read(page);
        let name = page.trim_start_matches("docs/decisions/");
        let number = format!("{:04}", i + 1);
        let title = text.lines().next().and_then(|line| line.strip_prefix(&format!("# {number}. ")));
        let title = title.unwrap_or_else(|| panic!("{page} begins with its number, which follows the one before"));
        let field = |field: &str| {
            let line = text.lines().take(6).find_map(|line| line.strip_prefix(&format!("- {field}: ")));
            line.unwrap_or_else(|| panic!("{page} has no {field}")).to_owned()
        };
        let date = field("Date");
        assert!(date.len() == 10 && date.bytes().all(|c| c.is_ascii_digit() || c == b'-'), "{page}: {date}");
        assert!(!field("Status").is_empty() && field("Files").starts_with('`'), "{page}");
        rows.push(format!("| [{number}]({name}) | {date} | {title} |"));
    }
    rows.reverse();
    let listed: Vec<&str> = contents.lines().filter(|line| line.starts_with("| [")).collect();
    assert_eq!(listed, rows, "newest first");
    assert!(rows.len() > 50);
}
