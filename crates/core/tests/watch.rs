//! An evaluation looks at the watch that the process has given it. The watch is the process's, hence a file of its own.

use automation_core::expr::{Budget, Expr, ExprErrorKind, FixedScope, Watch, watch_evaluations};
use automation_core::value::{Timestamp, Value};
use std::cell::Cell;

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    static TICK: Cell<u64> = const { Cell::new(0) };
    static SERVED: Cell<u32> = const { Cell::new(0) };
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

fn watch() {
    watch_evaluations(Watch {
        spent: || {
            CLOCK.set(CLOCK.get() + TICK.get());
            CLOCK.get()
        },
        most: || 1_000,
        serve: || {
            SERVED.set(SERVED.get() + 1);
            assert!(!INTERRUPTED.get(), "interrupted");
        },
    });
}

/// Evaluates what takes some forty thousand steps.
fn evaluate(budget: &mut Budget) -> Result<Value, automation_core::expr::ExprError> {
    watch();
    let scope = FixedScope::new(Value::Null, Timestamp(0));
    Expr::parse("length(sort(reverse(range(1, 6000)))) > 0").expect("an expression").eval(&scope, budget)
}

#[test]
fn a_short_evaluation_never_looks_at_the_watch() {
    watch();
    let mut budget = Budget::default();
    let scope = FixedScope::new(Value::Null, Timestamp(0));
    Expr::parse("1 + 1 = 2").expect("an expression").eval(&scope, &mut budget).expect("a value");
    assert_eq!((SERVED.get(), budget.time_spent()), (0, None));
}

#[test]
fn a_long_evaluation_lets_the_process_attend_to_other_things_and_says_how_long_it_took() {
    TICK.set(1);
    let mut budget = Budget::default();
    assert_eq!(evaluate(&mut budget).expect("within its time"), Value::Bool(true));
    assert!(SERVED.get() >= 3, "served {} times", SERVED.get());
    assert!(budget.time_spent().is_some_and(|spent| spent > 0));
}

#[test]
fn an_evaluation_whose_time_is_up_ends_as_one_without_steps_does() {
    TICK.set(600);
    let error = evaluate(&mut Budget::default()).expect_err("its time is up");
    assert_eq!(error.kind, ExprErrorKind::BudgetExceeded);
    assert_eq!(error.message, "expression used up its budget of time");
}

#[test]
fn an_interrupt_ends_an_evaluation_and_leaves_nothing_behind() {
    INTERRUPTED.set(true);
    assert!(std::panic::catch_unwind(|| evaluate(&mut Budget::default())).is_err());
    INTERRUPTED.set(false);
    assert_eq!(evaluate(&mut Budget::default()).expect("a value"), Value::Bool(true));
}
