//! Why a condition said no: the first clause that did, with the values it saw.

use super::Condition;
use crate::expr::{self, Budget, ExprError, Scope};

/// The first clause that said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The clause as written, or in words if it was structured.
    pub clause: String,
    /// The value it saw, such as `new.total is 50`; empty if there is nothing to add.
    pub found: String,
}

impl Condition {
    /// The first clause that says no; `None` if the condition holds.
    pub fn explain(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Option<Refusal>, ExprError> {
        if self.holds(scope, budget)? {
            return Ok(None);
        }
        self.refusal(scope, budget).map(Some)
    }

    fn refusal(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Refusal, ExprError> {
        let refusal = |clause: String, found: String| Ok(Refusal { clause, found });
        match self {
            Condition::Constant(value) => refusal(value.to_string(), String::new()),
            Condition::Expr(expr) => expr::refusal(expr, scope, budget),
            Condition::Pointer(filter) => {
                let payload = expr::root_of(scope, "payload")?;
                match filter.clauses().iter().find(|clause| !clause.matches(payload)) {
                    Some(clause) => refusal(
                        format!("{} {} {}", clause.pointer, clause.operator.name(), clause.operand.to_json()),
                        match clause.target(payload) {
                            Some(value) => format!("{} is {}", clause.pointer, value.to_json()),
                            None => format!("{} is missing", clause.pointer),
                        },
                    ),
                    None => refusal(String::new(), String::new()),
                }
            }
            Condition::And(all) => {
                for condition in all {
                    if let Some(found) = condition.explain(scope, budget)? {
                        return Ok(found);
                    }
                }
                refusal("and".to_owned(), String::new())
            }
            Condition::Or(any) => {
                if any.is_empty() {
                    return refusal("or []".to_owned(), String::new());
                }
                let mut found = Vec::new();
                for condition in any {
                    found.push(condition.refusal(scope, budget)?.clause);
                }
                refusal(found.join(" or "), "none of them holds".to_owned())
            }
            Condition::Not(none) => {
                let mut clause = String::from("not");
                for condition in none {
                    if condition.holds(scope, budget)? {
                        clause = format!("not ({})", condition.describe());
                        break;
                    }
                }
                refusal(clause, "it holds".to_owned())
            }
            Condition::State(state) => refusal(state.describe(), format!("it is {}", state.current(scope, budget)?)),
            Condition::Numeric(numeric) => {
                refusal(numeric.describe(), format!("it is {}", numeric.current(scope, budget)?))
            }
            Condition::Time(window) => refusal(window.describe(), format!("it is {}", window.current(scope.now()))),
            Condition::Trigger(ids) => {
                let id = scope.root("trigger")?.and_then(|t| t.get("id")).map_or("null".to_owned(), |id| id.to_json());
                refusal(format!("the trigger is {}", ids.join(" or ")), format!("it is {id}"))
            }
        }
    }

    /// The condition in a few words.
    pub fn describe(&self) -> String {
        let joined = |parts: &[Condition], word: &str| {
            parts.iter().map(|part| format!("({})", part.describe())).collect::<Vec<_>>().join(word)
        };
        match self {
            Condition::Constant(value) => value.to_string(),
            Condition::Expr(expr) => expr.text().trim().to_owned(),
            Condition::Pointer(filter) => {
                let clauses = filter.clauses().iter();
                let clauses = clauses.map(|c| format!("{} {} {}", c.pointer, c.operator.name(), c.operand.to_json()));
                clauses.collect::<Vec<_>>().join(" and ")
            }
            Condition::And(parts) => joined(parts, " and "),
            Condition::Or(parts) => joined(parts, " or "),
            Condition::Not(parts) => format!("none of {}", joined(parts, ", ")),
            Condition::State(state) => state.describe(),
            Condition::Numeric(numeric) => numeric.describe(),
            Condition::Time(window) => window.describe(),
            Condition::Trigger(ids) => format!("the trigger is {}", ids.join(" or ")),
        }
    }
}
