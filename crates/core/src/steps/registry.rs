//! Makes enums and their dispatch of the list of kinds in `mod.rs`. Each match has an arm per kind and no other, so a
//! kind whose file lacks an answer does not compile.

/// `Name(type) how;` for each kind of step.
macro_rules! step_kinds {
    ($($(#[$doc:meta])* $kind:ident($type:ty) $how:ident;)*) => {
        /// A kind of step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum StepKind {
            $($(#[$doc])* $kind,)*
        }

        /// The action of a step, with its texts parsed.
        #[derive(Clone, Debug)]
        pub enum Action {
            $($(#[$doc])* $kind($type),)*
        }

        impl StepKind {
            /// All kinds.
            pub const ALL: [StepKind; [$(StepKind::$kind),*].len()] = [$(StepKind::$kind),*];

            /// Its form in the document, and the facts about it.
            pub fn form(self) -> &'static Form {
                match self {
                    $(StepKind::$kind => const { &<$type as StepAction>::FORM },)*
                }
            }

            /// Checks a step's fields beyond the rules of its form.
            pub(crate) fn check(self, step: Checking<'_>) {
                match self {
                    $(StepKind::$kind => <$type as StepAction>::check(step),)*
                }
            }

            /// Parses the texts of a step of this kind.
            pub(crate) fn compile(self, def: &StepDef, tries: &mut Tries, parts: &mut Parts<'_>) -> Option<Action> {
                match self {
                    $(StepKind::$kind => <$type as StepAction>::compile(def, tries, parts).map(Action::$kind),)*
                }
            }

            /// Writes the instructions of a step of this kind.
            pub(crate) fn lay_out(
                self,
                compiler: &mut Compiler,
                def: &StepDef,
                number: usize,
                path: &str,
                block: &Block,
            ) {
                match self {
                    $(StepKind::$kind => <$type as StepAction>::lay_out(compiler, def, number, path, block),)*
                }
            }
        }

        /// Brings other spellings of the fields of a step into the one form.
        pub(crate) fn tidy(step: &mut Map<String, Json>) {
            $(<$type as StepAction>::tidy(step);)*
        }

        impl Action {
            /// The kind of step that the action came from.
            pub fn kind(&self) -> StepKind {
                match self {
                    $(Action::$kind(_) => StepKind::$kind,)*
                }
            }

            /// The expressions in it, each with the field of the document that holds it.
            pub fn expressions(&self) -> Vec<(String, Checked<'_>)> {
                match self {
                    $(Action::$kind(step) => step.expressions(),)*
                }
            }

            /// The objects of the database that the step uses.
            pub fn touches(&self) -> Vec<Touch<'_>> {
                match self {
                    $(Action::$kind(step) => step.touches(),)*
                }
            }

            /// How often its steps are done, if it is a loop.
            pub fn repeat(&self) -> Option<Repeat<'_>> {
                match self {
                    $(Action::$kind(step) => step.repeat(),)*
                }
            }

            /// The protection in which the step is executed; `None` if the machine takes it itself.
            pub fn isolation(&self) -> Option<Isolation> {
                match self {
                    $(Action::$kind(_) => isolation!($how $type),)*
                }
            }

            /// Evaluates its expressions and has its effect done.
            pub fn perform<E: Effects>(&self, scope: &dyn Scope, effects: &mut E) -> Result<Done, E::Error> {
                match self {
                    $(Action::$kind(step) => perform!($how step, self, scope, effects),)*
                }
            }

            /// Takes the step, if the machine does so itself. False if the extension has to perform it.
            pub(crate) fn take(
                &self,
                machine: &mut Machine<'_>,
                place: usize,
                number: usize,
                world: &dyn Scope,
            ) -> bool {
                match self {
                    $(Action::$kind(step) => take!($how step, machine, place, number, world),)*
                }
            }
        }
    };
}

macro_rules! isolation {
    (performed $type:ty) => {
        Some(<$type as Performed>::ISOLATION)
    };
    ($how:ident $type:ty) => {
        None
    };
}

macro_rules! perform {
    (performed $step:ident, $action:expr, $scope:ident, $effects:ident) => {
        $step.perform($scope, $effects)
    };
    ($how:ident $step:ident, $action:expr, $scope:ident, $effects:ident) => {{
        let _ = $step;
        Err($effects.not_performed($action.kind().name()))
    }};
}

macro_rules! take {
    (performed $step:ident, $machine:ident, $place:ident, $number:ident, $world:ident) => {{
        let _ = $step;
        false
    }};
    (taken $step:ident, $machine:ident, $place:ident, $number:ident, $world:ident) => {{
        $step.take($machine, $place, $number, $world);
        true
    }};
    // Its own instructions begin and end a block; there is nothing to do at the step itself.
    (block $step:ident, $machine:ident, $place:ident, $number:ident, $world:ident) => {{
        let _ = $step;
        $machine.step_on($place);
        true
    }};
}
