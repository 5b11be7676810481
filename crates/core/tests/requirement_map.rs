//! docs/requirements.md names tests for each requirement: does each of them name the requirement where it asserts something?
//!
//! The page says the rule in words; `sites` is the rule. It cannot judge whether an assertion is a good one.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "requirement_map/sites.rs"]
mod sites;

use sites::{Number, Numbers, numbers, numbers_at_assertions};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/requirements.md")).expect("the page")
}

/// All numbers of the five source documents.
fn all() -> Numbers {
    let counts = [(0, 48), (1, 61), (2, 25), (3, 41), (4, 16)];
    let all: Numbers = counts.iter().flat_map(|(seed, count)| (1..=*count).map(move |n| (*seed, n))).collect();
    assert_eq!(all.len(), 191);
    all
}

/// The text of a section of the page.
fn section<'p>(page: &'p str, title: &str) -> &'p str {
    let heading = format!("\n## {title}\n");
    let text = page.split_once(&heading).unwrap_or_else(|| panic!("no section {title}")).1;
    text.split_once("\n## ").map_or(text, |(text, _)| text)
}

/// (numbers, paths of tests) of each line of a section's table.
fn rows(section: &str) -> Vec<(Numbers, Vec<String>)> {
    let rows = section.lines().filter(|line| line.starts_with("| R"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let paths = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (numbers(cells[1]), paths)
    })
    .collect()
}

/// The numbers of the list of what is not built: (all of it, a part of it).
fn not_built(page: &str) -> (Numbers, Numbers) {
    let (mut whole, mut part) = (Numbers::new(), Numbers::new());
    for item in section(page, "Not built").lines().filter(|line| line.starts_with("- R")) {
        let (head, sentence) = item.split_once(": ").unwrap_or_else(|| panic!("no sentence: {item}"));
        assert!(sentence.ends_with('.'), "no sentence: {item}");
        for named in head.split(", ") {
            if named.ends_with(" (in part)") { part.extend(numbers(named)) } else { whole.extend(numbers(named)) }
        }
    }
    (whole, part)
}

#[test]
fn every_requirement_is_named_at_an_assertion_of_each_test_of_its_row() {
    let page = page();
    let mut known: BTreeMap<String, Numbers> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (wanted, paths) in [rows(section(&page, "Proven")), rows(section(&page, "Different"))].concat() {
        assert!(!paths.is_empty(), "no test for {wanted:?}");
        for path in paths {
            if !known.contains_key(&path) {
                match fs::read_to_string(root().join(&path)) {
                    Ok(text) => {
                        known.insert(path.clone(), numbers_at_assertions(&path, &text));
                    }
                    Err(error) => {
                        wrong.push(format!("{path}: {error}"));
                        continue;
                    }
                }
            }
            let named = &known[&path];
            wrong.extend(wanted.difference(named).map(|(seed, n)| format!("R{seed:03}-{n} not in {path}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_requirement_is_proven_different_or_not_built_and_no_two_of_these() {
    let page = page();
    let of = |title: &str| -> Numbers { rows(section(&page, title)).into_iter().flat_map(|(n, _)| n).collect() };
    let (proven, different) = (of("Proven"), of("Different"));
    let (whole, part) = not_built(&page);
    let tested: Numbers = &proven | &different;
    let none = Vec::<&Number>::new();
    assert_eq!(proven.intersection(&different).collect::<Vec<_>>(), none, "proven and different");
    assert_eq!(tested.intersection(&whole).collect::<Vec<_>>(), none, "tested and not built");
    assert_eq!(part.difference(&tested).collect::<Vec<_>>(), none, "built in part, and no test of that part");
    let named: BTreeSet<Number> = &tested | &whole;
    assert_eq!(all().difference(&named).collect::<Vec<_>>(), none, "on the page in no section");
    assert_eq!(named.difference(&all()).collect::<Vec<_>>(), none, "there is no such requirement");
}
