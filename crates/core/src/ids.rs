//! The ids of the engine's rows, a type each, so that the compiler refuses one where another is meant.
//!
//! The number inside is for the borders alone: a column that is read or bound, shared memory, the key of a lock, an argument or a
//! result of an SQL function. JSON has the plain number.
use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])+ $name:ident($number:ty);)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

ids! {
    /// An automation: the same for all its versions, and never given to another one after it is dropped.
    AutomationId(i32);
    /// One version of one automation. Not the version's number, which counts from 1 in each automation.
    VersionId(i32);
    /// A run. The numbers of bulk jobs come from the same sequence, so that no run and no job have the same one.
    RunId(i64);
    /// An event of the log. Zero for one that was made up and is not in the log.
    EventId(i64);
    /// A wait of a run: its number within the run.
    WaitNo(i32);
}

impl WaitNo {
    /// The run as a whole is meant, or a wait that nothing outside the run ends. Waits with a number are counted from 1.
    pub const NONE: WaitNo = WaitNo(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_and_shown_as_its_number() {
        let id = AutomationId(-7);
        assert_eq!(serde_json::to_string(&id).expect("JSON"), "-7");
        assert_eq!(serde_json::from_str::<AutomationId>("-7").expect("an id"), id);
        assert_eq!(format!("{id} {:>4}", VersionId(12)), "-7   12");
    }
}
