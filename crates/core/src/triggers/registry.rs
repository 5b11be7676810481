//! Makes an enum and its dispatch of the list of kinds in `mod.rs`. Each match has an arm per kind and no other, so a
//! kind whose file lacks an answer does not compile.

/// `Name(type);` for each kind of trigger.
macro_rules! trigger_kinds {
    ($($(#[$doc:meta])* $kind:ident($type:ty);)*) => {
        /// The kind of a trigger.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum On {
            $($(#[$doc])* $kind,)*
        }

        impl On {
            /// All kinds.
            pub const ALL: [On; [$(On::$kind),*].len()] = [$(On::$kind),*];

            /// Its form in the document, and the facts about it.
            pub fn form(self) -> &'static Form {
                match self {
                    $(On::$kind => const { &<$type as TriggerKind>::FORM },)*
                }
            }

            /// Fills in fields that the document leaves out.
            pub(crate) fn tidy(self, trigger: &mut Map<String, Json>) {
                match self {
                    $(On::$kind => <$type as TriggerKind>::tidy(trigger),)*
                }
            }

            /// Do the fields of a trigger go together?
            pub(crate) fn check(self, trigger: Checking<'_>) {
                match self {
                    $(On::$kind => <$type as TriggerKind>::check(trigger),)*
                }
            }

            /// The patterns of the topics that a trigger listens to.
            pub(crate) fn patterns(self, def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Vec<String>> {
                match self {
                    $(On::$kind => <$type as TriggerKind>::patterns(def, parts),)*
                }
            }

            /// The change that a trigger requires of the event's entity.
            pub(crate) fn change(self, def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Change> {
                match self {
                    $(On::$kind => <$type as TriggerKind>::change(def, parts),)*
                }
            }

            /// When the clock fires a trigger.
            pub(crate) fn schedule(self, def: &TriggerDef, parts: &mut Parts<'_>) -> Option<Schedule> {
                match self {
                    $(On::$kind => <$type as TriggerKind>::schedule(def, parts),)*
                }
            }
        }
    };
}
