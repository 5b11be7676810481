//! The `sql` step: runs a statement as the owner.

use super::form::text;
use super::{Checked, Done, Effects, Form, Isolation, Performed, StepAction, TimeLimit, Touch, Tries, field};
use crate::definition::StepDef;
use crate::expr::{Budget, Scope};
use crate::program::Parts;
use crate::template::SqlTemplate;

/// A statement.
#[derive(Clone, Debug)]
pub struct Sql {
    /// Its text; the expressions in it are its parameters.
    pub statement: SqlTemplate,
}

impl StepAction for Sql {
    const FORM: Form = Form {
        name: "sql",
        required: &[text("sql")],
        optional: &[],
        retries: true,
        time_limit: TimeLimit::OfWork,
        may_wait: false,
        tells_wait: false,
    };

    fn compile(def: &StepDef, _tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Sql> {
        Some(Sql { statement: statement(def, "sql", parts)? })
    }

    fn expressions(&self) -> Vec<(String, Checked<'_>)> {
        vec![field("sql", Checked::Sql(&self.statement))]
    }

    fn touches(&self) -> Vec<Touch<'_>> {
        vec![Touch::Statement("sql", &self.statement)]
    }
}

impl Performed for Sql {
    const ISOLATION: Isolation = Isolation::OwnersSql;

    fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
        let values = effects.values(&self.statement, scope, &mut Budget::default())?;
        effects.execute(&self.statement, &values).map(Done::Result)
    }
}

/// A field that holds SQL.
pub(super) fn statement(def: &StepDef, field: &str, parts: &mut Parts<'_>) -> Option<SqlTemplate> {
    let sql = def.text(field);
    if sql.trim().is_empty() {
        parts.wrong(field, &format!("{field} of {} is empty", parts.place), "");
        return None;
    }
    parts.parsed(SqlTemplate::parse(sql), field, sql)
}
