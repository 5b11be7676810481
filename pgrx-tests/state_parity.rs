//! The words that Rust writes are the words that the tables allow.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use crate::event_log::events::Op;
    use crate::pg_tests::text;
    use automation_core::lifecycle::Status;
    use automation_core::run_state::{ENDINGS, Ending, PAUSES, Pause, RunState};
    use automation_core::webhook::{DELIVERIES, METHODS};
    use pgrx::prelude::*;
    use std::collections::BTreeSet;

    fn constraint(name: &str) -> String {
        text(&format!("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = '{name}' LIMIT 1"))
            .unwrap_or_default()
    }

    /// The quoted words of a constraint or a view, each once.
    fn words(text: &str) -> BTreeSet<String> {
        text.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
    }

    fn words_of<T>(all: impl IntoIterator<Item = T>, word: impl Fn(T) -> &'static str) -> BTreeSet<String> {
        all.into_iter().map(|one| word(one).to_owned()).collect()
    }

    #[pg_test]
    fn the_tables_allow_the_states_of_runs_and_no_others() {
        assert_eq!(words(&constraint("run_history_status_check")), words_of(ENDINGS, Ending::word));
        assert_eq!(words(&constraint("run_status_check")), words_of(PAUSES, Pause::word));
    }

    #[pg_test]
    fn the_view_shows_the_states_of_runs_and_names_them_in_its_comment() {
        let shown = words_of(RunState::all(), RunState::shown);
        let comment = text(
            "SELECT pg_catalog.col_description('automation.runs'::regclass, attnum) FROM pg_catalog.pg_attribute
              WHERE attrelid = 'automation.runs'::regclass AND attname = 'status'",
        )
        .unwrap_or_default();
        let named: BTreeSet<String> =
            comment.trim_end_matches('.').replace(" or ", ", ").split(", ").map(str::to_owned).collect();
        assert_eq!(named, shown);
        let view = words(&text("SELECT pg_catalog.pg_get_viewdef('automation.runs'::regclass)").unwrap_or_default());
        for state in RunState::all().filter(|state| !matches!(state, RunState::Ended(_))) {
            assert!(view.contains(state.shown()), "{state:?} is in the view");
        }
    }

    #[pg_test]
    fn kinds_of_events() {
        let allowed = constraint("event_op_check");
        for op in [Op::Created, Op::Updated, Op::Deleted, Op::Truncated, Op::Emitted, Op::Started] {
            assert!(allowed.contains(&format!("'{}'", op.code() as char)), "{allowed}");
            assert_eq!(Op::from_code(op.code() as i8), Some(op));
        }
    }

    #[pg_test]
    fn words_of_webhooks_r004_13() {
        for (name, words) in [("outbox_method_check", &METHODS[..]), ("outbox_delivery_check", &DELIVERIES[..])] {
            let allowed = constraint(name);
            for word in words {
                assert!(allowed.contains(&format!("'{word}'")), "{allowed}");
            }
            assert_eq!(allowed.matches("::text").count(), words.len(), "{allowed}");
        }
    }

    #[pg_test]
    fn statuses_of_automations() {
        let allowed = constraint("automation_status_check");
        for status in [Status::Draft, Status::Active, Status::Paused] {
            assert!(allowed.contains(&format!("'{}'", status.word())), "{allowed}");
        }
    }
}
