//! Expressions: printing, budgets, what they read, and when time changes them.

use crate::generate::{Allowed, KINDS, document, expression, roots};
use automation_core::condition::Condition;
use automation_core::expr::{Budget, Expr, ExprError, ExprErrorKind, Scope};
use automation_core::template::{JsonTemplate, SqlTemplate, Template};
use automation_core::value::{Timestamp, Value};
use proptest::prelude::*;
use std::collections::BTreeMap;

const EVERYTHING: Allowed = Allowed { state: true, clock: true };
const NOW: Timestamp = Timestamp(1_767_607_200_000_000);

/// A scope whose entities and clock can be changed.
#[derive(Clone)]
struct World {
    roots: Value,
    entities: BTreeMap<(String, String), Value>,
    now: Timestamp,
}

impl World {
    fn new(roots: &serde_json::Value) -> World {
        World { roots: Value::from_serde(roots), entities: BTreeMap::new(), now: NOW }
    }
}

impl Scope for World {
    fn root(&self, name: &str) -> Result<Option<&Value>, automation_core::value::Unreadable> {
        Ok(self.roots.get(name))
    }

    fn state(&self, kind: &str, id: &str) -> Result<Value, ExprError> {
        Ok(self.entities.get(&(kind.to_owned(), id.to_owned())).cloned().unwrap_or_default())
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

/// The value or the kind of error, comparable.
fn outcome(expr: &Expr, world: &World) -> Result<String, ExprErrorKind> {
    expr.eval(world, &mut Budget::default()).map(|v| v.to_json()).map_err(|e| e.kind)
}

proptest! {
    #![proptest_config(crate::cases(600))]

    #[test]
    fn printing_and_parsing_gives_the_same_expression(text in expression(EVERYTHING)) {
        let Ok(expr) = Expr::parse(&text) else { return Ok(()) };
        let printed = expr.canonical();
        let again = Expr::parse(&printed);
        prop_assert_eq!(again.as_ref().map_err(|e| format!("{e} in {printed}")), Ok(&expr));
    }

    #[test]
    fn generated_expressions_parse(text in expression(EVERYTHING)) {
        if let Err(e) = Expr::parse(&text) {
            let allowed = [ExprErrorKind::TooComplex, ExprErrorKind::OutOfRange];
            prop_assert!(allowed.contains(&e.kind), "{}: {} {}", text, e, e.caret(&text));
        }
    }

    #[test]
    fn evaluation_stays_in_its_budget(text in expression(EVERYTHING), roots in roots(), steps in 0_usize..200) {
        let Ok(expr) = Expr::parse(&text) else { return Ok(()) };
        let mut budget = Budget::of(steps, 64, 2000);
        let result = expr.eval(&World::new(&roots), &mut budget);
        prop_assert!(budget.steps <= steps && budget.output_bytes <= 2000 && budget.depth == 64);
        if let Err(e) = result {
            prop_assert!(e.span.end <= text.len() && e.span.start <= e.span.end);
            prop_assert!(!e.message.is_empty() && !e.message.ends_with('.'));
        }
    }

    #[test]
    fn a_condition_is_never_anything_but_true_false_or_an_error(text in expression(EVERYTHING), roots in roots()) {
        let Ok(condition) = Condition::parse_text(&text) else { return Ok(()) };
        let world = World::new(&roots);
        let holds = condition.holds(&world, &mut Budget::default());
        let refusal = condition.explain(&world, &mut Budget::default());
        if let (Ok(holds), Ok(refusal)) = (holds, refusal) {
            prop_assert_eq!(holds, refusal.is_none());
        }
    }

    #[test]
    fn an_entity_outside_the_references_never_changes_the_value(
        text in expression(EVERYTHING),
        roots in roots(),
        states in prop::collection::vec(document(), 9),
        changed in 0_usize..9,
        to in document(),
    ) {
        let Ok(expr) = Expr::parse(&text) else { return Ok(()) };
        let mut world = World::new(&roots);
        for (i, state) in states.iter().enumerate() {
            world.entities.insert((KINDS[i / 3].to_owned(), (i % 3).to_string()), Value::from_serde(state));
        }
        let (kind, id) = (KINDS[changed / 3].to_owned(), (changed % 3).to_string());
        let reads = |references: &automation_core::expr::References| {
            references.is_indeterminate()
                || references.entities.iter().any(|r| r.kind == kind && r.id.as_ref().is_none_or(|known| *known == id))
        };
        let mut other = world.clone();
        other.entities.insert((kind.clone(), id.clone()), Value::from_serde(&to));
        let (before, after) = (outcome(&expr, &world), outcome(&expr, &other));
        if before != after {
            prop_assert!(reads(&expr.references()), "{} reads {}:{}", text, kind, id);
            let resolved = expr.resolved_references(&world, &mut Budget::default());
            prop_assert!(reads(&resolved), "{} reads {}:{} after resolution", text, kind, id);
        }
    }

    #[test]
    fn time_changes_nothing_before_the_instant_that_is_given(
        text in expression(Allowed { state: false, clock: true }),
        roots in roots(),
        probe in 0.0_f64..1.0,
        ahead in 1_i64..100_000,
    ) {
        let Ok(expr) = Expr::parse(&text) else { return Ok(()) };
        let world = World::new(&roots);
        let Ok(found) = expr.time_dependence(&world, &mut Budget::default()) else { return Ok(()) };
        if found.untracked {
            return Ok(());
        }
        let later = match found.next {
            Some(next) => NOW.0 + ((next.0 - 1 - NOW.0) as f64 * probe) as i64,
            None => NOW.0 + ahead * 1_000_000_000,
        };
        let mut then = world.clone();
        then.now = Timestamp(later);
        // a value that merely carries the time may differ; whether it holds may not
        let now_holds = expr.holds(&world, &mut Budget::default()).map_err(|e| e.kind);
        let then_holds = expr.holds(&then, &mut Budget::default()).map_err(|e| e.kind);
        prop_assert_eq!(now_holds, then_holds, "{} at {}", text, then.now);
    }

    #[test]
    fn what_only_the_event_decides_ignores_everything_else(
        text in expression(EVERYTHING),
        roots in roots(),
        vars in document(),
    ) {
        let Ok(expr) = Expr::parse(&text) else { return Ok(()) };
        if !expr.is_pure_event() {
            return Ok(());
        }
        let mut changed = roots.clone();
        changed["vars"] = vars;
        let (world, mut other) = (World::new(&roots), World::new(&changed));
        other.now = Timestamp(0);
        other.entities.insert(("orders".to_owned(), "1".to_owned()), Value::int(1));
        prop_assert_eq!(outcome(&expr, &world), outcome(&expr, &other));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
        for error in [
            Expr::parse(&text).err(),
            Condition::parse_text(&text).err(),
            Template::parse(&text).err(),
            SqlTemplate::parse(&text).err(),
            JsonTemplate::parse(&text).err(),
        ].into_iter().flatten() {
            prop_assert!(error.span.start <= text.len(), "{:?} in {}", error, text);
            error.caret(&text);
        }
    }

    #[test]
    fn words_of_the_language_in_any_order_are_parsed_or_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "new", ".", "a", "(", ")", "[", "]", "{", "}", ",", ":", "?", "|", "||", "and", "or", "not", "!", "in", "is",
            "null", "true", "between", "like", "becomes", "changed", "=", "<", ">=", "+", "-", "*", "/", "1", "2.5",
            "minutes", "'x'", "\"y\"", "state", "health", "lower", "now", "--", "/*", "*/", "{{", "}}", "'", "\"", "\\",
        ]), 0..24),
    ) {
        let text = words.join(" ");
        if let Ok(expr) = Expr::parse(&text) {
            prop_assert_eq!(Expr::parse(&expr.canonical()).ok(), Some(expr));
        }
        _ = SqlTemplate::parse(&text);
        _ = Template::parse(&text);
        _ = JsonTemplate::parse(&text);
    }

    #[test]
    fn sql_without_braces_is_left_as_it_is(text in "[a-z '\"$\\-/*\\\\eE\n]{0,40}") {
        match SqlTemplate::parse(&text) {
            Ok(template) => prop_assert_eq!(template.sql(), text),
            Err(error) => prop_assert_eq!(error.message, "unterminated /* comment"),
        }
    }

    #[test]
    fn positions_in_sql_lead_to_the_same_characters(parts in prop::collection::vec("[a-zé ]{0,5}", 1..5)) {
        let text = parts.join("{{ new.a }}");
        let template = SqlTemplate::parse(&text).unwrap();
        prop_assert_eq!(template.params().len(), parts.len() - 1);
        let (sql, user): (Vec<char>, Vec<char>) = (template.sql().chars().collect(), text.chars().collect());
        for (i, c) in sql.iter().enumerate() {
            let mapped = template.map_position(i + 1);
            let there = user[mapped - 1];
            prop_assert!(there == *c || there == '{' || *c == ' ', "{} at {} maps to {}", template.sql(), i, mapped);
        }
    }
}
