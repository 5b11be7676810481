//! docs/requirements.md names a test for each requirement: does that test exist, and does it name the requirement?
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// (seed, number).
type Numbers = BTreeSet<(u32, u32)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every number such as `R001-14` in a text; also `r001_14` in the names of tests, and all of `R002-13 to R002-16`.
fn numbers(text: &str) -> Numbers {
    let mut found = BTreeSet::new();
    let mut before: Option<(u32, u32, usize)> = None;
    let bytes = text.as_bytes();
    for at in 0..bytes.len() {
        let Some((number, end)) = number_at(text, at) else { continue };
        if let Some((seed, first, ended)) = before
            && seed == number.0
            && text.get(ended..at) == Some(" to ")
        {
            found.extend((first..number.1).map(|n| (seed, n)));
        }
        found.insert(number);
        before = Some((number.0, number.1, end));
    }
    found
}

fn number_at(text: &str, at: usize) -> Option<((u32, u32), usize)> {
    let rest = text.get(at..)?.strip_prefix(['R', 'r'])?;
    let seed = rest.get(..3).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let rest = rest.get(3..)?.strip_prefix(['-', '_'])?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest.get(..digits).filter(|digits| !digits.is_empty())?;
    Some(((seed.parse().ok()?, number.parse().ok()?), at + 5 + digits))
}

/// (numbers, paths of tests) of each line of the table.
fn entries() -> Vec<(Numbers, Vec<String>)> {
    let page = fs::read_to_string(root().join("docs/requirements.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| R"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let paths = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (numbers(cells[1]), paths)
    })
    .collect()
}

#[test]
fn every_requirement_is_named_in_the_test_that_proves_it() {
    let mut wrong = Vec::new();
    for (wanted, paths) in entries() {
        assert!(!paths.is_empty(), "no test for {wanted:?}");
        for path in paths {
            match fs::read_to_string(root().join(&path)) {
                Ok(text) => {
                    let named = numbers(&text);
                    wrong.extend(wanted.iter().filter(|n| !named.contains(n)).map(|n| format!("{n:?} not in {path}")));
                }
                Err(error) => wrong.push(format!("{path}: {error}")),
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_requirement_of_the_page_s_range_is_either_proven_or_listed_as_open() {
    let page = fs::read_to_string(root().join("docs/requirements.md")).expect("the page");
    let proven: Numbers = entries().into_iter().flat_map(|(numbers, _)| numbers).collect();
    let open = page.split("## Not built").nth(1).map(numbers).unwrap_or_default();
    let range = |seed: u32, from: u32, to: u32| (from..=to).map(move |n| (seed, n));
    let all = range(0, 8, 8)
        .chain(range(0, 39, 48))
        .chain(range(1, 6, 61))
        .chain(range(2, 1, 25))
        .chain(range(3, 9, 28))
        .chain(range(3, 36, 38))
        .chain(range(4, 1, 16));
    let missing: Vec<(u32, u32)> = all.filter(|n| !proven.contains(n) && !open.contains(n)).collect();
    assert_eq!(missing, Vec::new());
    let both: Vec<&(u32, u32)> = proven.intersection(&open).collect();
    assert_eq!(both, Vec::<&(u32, u32)>::new());
}
