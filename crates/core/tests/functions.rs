//! Every example in the function table is true.

use automation_core::expr::{Budget, Expr, FixedScope, all_functions};
use automation_core::value::{Timestamp, Value};

#[test]
fn every_example_in_the_function_table_yields_what_it_says() {
    let now = Timestamp::parse("2026-01-05T10:00:00Z").unwrap();
    let scope = FixedScope::new(Value::from_json("{}").unwrap(), now);
    let mut wrong = Vec::new();
    for (_, function) in all_functions() {
        let (expr, expected) = function.example;
        let found = match Expr::parse(expr).and_then(|e| e.eval(&scope, &mut Budget::default())) {
            Ok(value) => value.to_json(),
            Err(e) => format!("error: {e}"),
        };
        if found != expected {
            wrong.push(format!("{expr} is {found}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
