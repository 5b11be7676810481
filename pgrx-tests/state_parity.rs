//! The words that Rust writes are the words that the tables allow.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use crate::event_log::events::Op;
    use crate::pg_tests::text;
    use crate::store::history::Ending;
    use automation_core::lifecycle::Status;
    use automation_core::webhook::{DELIVERIES, METHODS};
    use pgrx::prelude::*;

    fn constraint(name: &str) -> String {
        text(&format!("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = '{name}' LIMIT 1"))
            .unwrap_or_default()
    }

    #[pg_test]
    fn endings_of_runs() {
        let allowed = constraint("run_history_status_check");
        for ending in [Ending::Completed, Ending::Failed, Ending::Cancelled, Ending::Skipped] {
            assert!(allowed.contains(&format!("'{}'", ending.word())), "{allowed}");
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
