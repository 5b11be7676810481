//! Keeps docs/expressions.md true: its function tables are written from the code, its examples are run.
//!
//! `UPDATE_FIXTURES=1 cargo test -p automation_core --test reference_page` rewrites the tables.

use automation_core::expr::{Budget, Expr, FixedScope, Purity, all_functions};
use automation_core::value::{Timestamp, Value};
use std::fmt::Write;
use std::path::PathBuf;

const START: &str = "<!-- functions: written by tests/reference_page.rs from the function table -->\n";
const END: &str = "<!-- end of functions -->";

fn page() -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/expressions.md");
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// The tables, one for each topic.
fn tables() -> String {
    let mut out = String::new();
    let mut current = "";
    for (topic, function) in all_functions() {
        if topic != current {
            write!(out, "\n### {topic}\n\n| function | returns | does | example |\n|---|---|---|---|\n").unwrap();
            current = topic;
        }
        let cell = |text: &str| text.replace('|', "\\|");
        let clock = if function.purity == Purity::Clock { " Reads the clock." } else { "" };
        let (example, result) = function.example;
        writeln!(
            out,
            "| `{}` | {} | {}{clock} | `{}` is `{}` |",
            cell(&function.signature()),
            function.returns,
            cell(function.doc),
            cell(example),
            cell(result)
        )
        .unwrap();
    }
    out.push('\n');
    out
}

#[test]
fn the_function_tables_are_those_of_the_code() {
    let (path, text) = page();
    let start = text.find(START).expect("the page has a place for the tables") + START.len();
    let end = text.find(END).expect("the page has an end of the tables");
    let written = format!("{}{}{}", &text[..start], tables(), &text[end..]);
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(path, &written).unwrap();
        return;
    }
    assert!(written == text, "docs/expressions.md is out of date; run with UPDATE_FIXTURES=1");
}

/// The contents of the fenced blocks with a given mark.
fn blocks<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let open = format!("```{mark}\n");
    text.split(&open).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_examples_on_the_page_are_true() {
    let (_, text) = page();
    let roots = Value::from_json(blocks(&text, "scope")[0]).unwrap();
    let scope = FixedScope::new(roots, Timestamp::parse("2026-01-05T10:00:00Z").unwrap());
    let mut count = 0;
    for line in blocks(&text, "expr").iter().flat_map(|block| block.lines()) {
        let (expr, expected) = line.split_once(" => ").expect("an example has a result");
        let value = Expr::parse(expr).and_then(|e| e.eval(&scope, &mut Budget::default())).unwrap();
        assert_eq!(value.to_json(), expected, "{expr}");
        count += 1;
    }
    assert!(count > 20);
}
