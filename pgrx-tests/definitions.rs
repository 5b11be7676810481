//! How caches of definitions know that they are current.
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use crate::pg_tests::{number, run};
    use crate::store::automations::{fingerprint, fold_notes, note_change, notes_pile_up};
    use pgrx::prelude::*;

    #[pg_test]
    fn notes_of_changes_are_folded_and_no_reader_notices() {
        run("DELETE FROM automation_internal.definition_change");
        (0..600).for_each(|_| note_change());
        let before = fingerprint();
        assert!(notes_pile_up());
        fold_notes();
        assert_eq!(fingerprint(), before);
        assert!(!notes_pile_up());
        let few = number("SELECT count(*) FROM automation_internal.definition_change");
        assert!((100..=102).contains(&few), "{few} rows");
        // What is noted afterwards is a change, and folding what was folded before changes nothing either.
        (0..500).for_each(|_| note_change());
        let later = fingerprint();
        assert_ne!(later, before);
        fold_notes();
        assert_eq!(fingerprint(), later);
        assert_eq!(later.0, 1100);
    }
}
