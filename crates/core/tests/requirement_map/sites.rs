//! Where in a test file a requirement's number counts: at an assertion, never in the comment at the head of the file.
use std::collections::BTreeSet;

/// (seed, number).
pub type Number = (u32, u32);
pub type Numbers = BTreeSet<Number>;

/// Every number such as `R001-14` in a text; also `r001_14` in the names of tests, and all of `R002-13 to R002-16`.
pub fn numbers(text: &str) -> Numbers {
    let mut found = Numbers::new();
    let mut before: Option<(Number, usize)> = None;
    for at in 0..text.len() {
        let Some((number, end)) = number_at(text, at) else { continue };
        if let Some(((seed, first), ended)) = before
            && seed == number.0
            && text.get(ended..at) == Some(" to ")
        {
            found.extend((first..number.1).map(|n| (seed, n)));
        }
        found.insert(number);
        before = Some((number, end));
    }
    found
}

fn number_at(text: &str, at: usize) -> Option<(Number, usize)> {
    let rest = text.get(at..)?.strip_prefix(['R', 'r'])?;
    let seed = rest.get(..3).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let rest = rest.get(3..)?.strip_prefix(['-', '_'])?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest.get(..digits).filter(|digits| !digits.is_empty())?;
    Some(((seed.parse().ok()?, number.parse().ok()?), at + 5 + digits))
}

/// The numbers that stand at assertions of a test file, by the kind of file.
pub fn numbers_at_assertions(path: &str, text: &str) -> Numbers {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("rs") => in_rust(text),
        // What follows the comment is a statement that psql runs, whose answer is in the expected output.
        Some("sql") => in_comments(text, "--", |line| !line.starts_with('\\')),
        // What follows is a step, an order of steps, or the check at the end of a session.
        Some("spec") => in_comments(&text[text.find("\nsession ").map_or(0, |at| at + 1)..], "#", |line| {
            ["step ", "permutation ", "teardown"].iter().any(|word| line.starts_with(word))
        }),
        // What follows is a case, or the definition that the cases below it are about.
        Some("txt") => in_comments(text, "#", |_| true),
        _ => panic!("{path}: no rule says where numbers count in such a file"),
    }
}

/// The numbers in comments that are not the file's first block and whose next line that is no comment is as wanted.
fn in_comments(text: &str, mark: &str, wanted: impl Fn(&str) -> bool) -> Numbers {
    let mut lines = text.lines().map(str::trim).peekable();
    while lines.next_if(|line| line.starts_with(mark) || line.is_empty()).is_some() {}
    let mut found = Numbers::new();
    let mut block = String::new();
    let mut distance = 0;
    for line in lines {
        if line.starts_with(mark) {
            if distance > 0 {
                block.clear();
            }
            distance = 0;
            block.push_str(line);
            block.push('\n');
        } else if line.is_empty() {
            distance += 1;
        } else {
            if distance <= 1 && wanted(line) {
                found.extend(block.lines().flat_map(numbers));
            }
            block.clear();
        }
    }
    found
}

/// The numbers in the names of `#[test]` functions and in the text of their bodies.
fn in_rust(text: &str) -> Numbers {
    let mut found = Numbers::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line != "#[test]" && !line.starts_with("#[pg_test") {
            continue;
        }
        let Some(head) = lines.by_ref().find(|line| line.contains("fn ")) else { break };
        found.extend(numbers(head));
        let indent = head.len() - head.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        found.extend(lines.by_ref().take_while(|line| *line != end).flat_map(numbers));
    }
    found
}

#[test]
fn ranges_are_all_their_numbers() {
    assert_eq!(numbers("R002-13 to R002-16, r001_3"), Numbers::from([(1, 3), (2, 13), (2, 14), (2, 15), (2, 16)]));
    assert_eq!(numbers("R002-13 and R002-16; R001-2 to R002-4").len(), 4);
}

#[test]
fn a_number_in_the_head_of_a_file_does_not_count() {
    assert_eq!(numbers_at_assertions("a.sql", "-- R001-1\n\n-- R001-2\nSELECT 1;\n"), Numbers::new());
    assert_eq!(numbers_at_assertions("a.spec", "# R001-1\nsetup { }\n"), Numbers::new());
    assert_eq!(numbers_at_assertions("a.txt", "# R001-1\n\n> 1\n"), Numbers::new());
    assert_eq!(
        numbers_at_assertions("a.rs", "//! R001-1\n/// R001-2\n#[test]\nfn a() {\n}\n// R001-3\n"),
        Numbers::new()
    );
}

#[test]
fn a_number_counts_at_a_statement() {
    let sql =
        "-- head\nSET a = 1;\n-- R001-1: this\n-- and R001-2\nSELECT 1;\n-- R001-3\n\n\n-- R001-4\n\\set x\n-- R001-5";
    assert_eq!(numbers_at_assertions("a.sql", sql), Numbers::from([(1, 1), (1, 2)]));
    let spec = "# head\n# R001-4\nteardown { }\n# R001-1\nsession a\n# R001-2\nstep a1 { }\n# R001-3\nteardown { }\n";
    assert_eq!(numbers_at_assertions("a.spec", spec), Numbers::from([(1, 2), (1, 3)]));
    let cases = "# head\n\nmode: x\n\n# R001-1\n\n> 1\n";
    assert_eq!(numbers_at_assertions("a.txt", cases), Numbers::from([(1, 1)]));
    let rust = "    #[test]\n    fn a_r001_1() {\n        // R001-2\n        assert!(true);\n    }\n    // R001-3\n";
    assert_eq!(numbers_at_assertions("a.rs", rust), Numbers::from([(1, 1), (1, 2)]));
}
