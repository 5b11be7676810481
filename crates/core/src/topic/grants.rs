//! Grants on topics, and the two questions that they answer.
//!
//! An event that one role emits reaches an automation of another role only if both sides agree: the emitter's side lets
//! the listener read the event, and the listener's side lets the emitter start runs. A grant speaks for one side
//! (`of`), or for all roles; one that was given by a role with the privileges of both sides settles both questions.
//!
//! A role that was made a member of another role hears the events which that other role emits. A superuser has the
//! privileges of every role without being a member of one: a superuser may read all events and start all automations,
//! but other roles start a superuser's automations only with a grant.

/// The right that a grant gives its grantee on topics under a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Emit events that automations of the granting side hear.
    Emit,
    /// Hear events that the granting side emits.
    Listen,
}

impl Right {
    /// As users write it.
    pub fn parse(text: &str) -> Option<Right> {
        match text {
            "emit" => Some(Right::Emit),
            "listen" => Some(Right::Listen),
            _ => None,
        }
    }

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Right::Emit => "emit",
            Right::Listen => "listen",
        }
    }

    /// The right that the other side has to grant.
    pub fn counterpart(self) -> Right {
        match self {
            Right::Emit => Right::Listen,
            Right::Listen => Right::Emit,
        }
    }
}

/// The memberships and privileges of roles. `R` names a role.
pub trait Roles<R> {
    /// Has `role` the privileges of `other`? A superuser has those of all.
    fn has(&self, role: R, other: R) -> bool;
    /// Was `role` made a member of `other`? A superuser is not a member of a role just by being a superuser.
    fn is_member(&self, role: R, other: R) -> bool;
}

/// A grant. `R` names a role.
#[derive(Clone, Debug)]
pub struct Grant<R> {
    /// The right that is granted.
    pub right: Right,
    /// On this topic and all below it; empty for all topics.
    pub prefix: String,
    /// The role that has the right, and every role with its privileges.
    pub grantee: R,
    /// The role that speaks: of `listen` the emitter, of `emit` the owner of the automations. None: all roles.
    pub of: Option<R>,
    /// The grant was given by a role with the privileges of both sides, so that nothing is needed from the other side.
    pub settled: bool,
}

impl<R: Copy + PartialEq> Grant<R> {
    fn speaks_for(&self, role: R) -> bool {
        self.of.is_none_or(|of| of == role)
    }
}

/// All grants.
#[derive(Clone, Debug)]
pub struct Grants<R>(Vec<Grant<R>>);

impl<R> Default for Grants<R> {
    fn default() -> Self {
        Grants(Vec::new())
    }
}

impl<R> FromIterator<Grant<R>> for Grants<R> {
    fn from_iter<T: IntoIterator<Item = Grant<R>>>(grants: T) -> Self {
        Grants(grants.into_iter().collect())
    }
}

impl<R: Copy + PartialEq> Grants<R> {
    /// Does an automation of `listener` hear the events that `emitter` emits on a topic?
    pub fn hears(&self, listener: R, emitter: R, topic: &str, roles: &impl Roles<R>) -> bool {
        listener == emitter
            || (self.may_read(listener, emitter, topic, roles) && self.may_start(emitter, listener, topic, roles))
    }

    /// May `reader` read the events that `emitter` emits on a topic?
    pub fn may_read(&self, reader: R, emitter: R, topic: &str, roles: &impl Roles<R>) -> bool {
        reader == emitter
            || roles.has(reader, emitter)
            || self.under(topic).any(|grant| match grant.right {
                Right::Listen => grant.speaks_for(emitter) && roles.has(reader, grant.grantee),
                Right::Emit => {
                    grant.settled
                        && grant.of.is_none_or(|of| roles.has(reader, of))
                        && roles.has(emitter, grant.grantee)
                }
            })
    }

    /// May `emitter` start runs of `owner`'s automations by an event on a topic?
    pub fn may_start(&self, emitter: R, owner: R, topic: &str, roles: &impl Roles<R>) -> bool {
        emitter == owner
            || roles.has(emitter, owner)
            || roles.is_member(owner, emitter)
            || self.under(topic).any(|grant| match grant.right {
                Right::Emit => grant.speaks_for(owner) && roles.has(emitter, grant.grantee),
                Right::Listen => grant.settled && grant.speaks_for(emitter) && roles.has(owner, grant.grantee),
            })
    }

    /// May `role` read (listen) or write (emit) entities of a kind that belongs to `owner`? One grant by the kind's
    /// owner is enough: an automation that listens to the kind names it, so the automation's owner has agreed already.
    pub fn may_use_kind(&self, right: Right, role: R, owner: R, kind: &str, roles: &impl Roles<R>) -> bool {
        role == owner
            || roles.has(role, owner)
            || self
                .under(kind)
                .any(|grant| grant.right == right && grant.speaks_for(owner) && roles.has(role, grant.grantee))
    }

    fn under(&self, topic: &str) -> impl Iterator<Item = &Grant<R>> {
        self.0.iter().filter(move |grant| is_under(&grant.prefix, topic))
    }
}

/// Is a topic the prefix itself, or below it? Whole words count: `pay` is no prefix of `payments.ok`.
pub fn is_under(prefix: &str, topic: &str) -> bool {
    prefix.is_empty() || topic.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A prefix as it is kept: `payments.`, `payments.#` and `payments` are the same, `#` is the empty one. None if the
/// text is no prefix.
pub fn prefix_of(given: &str) -> Option<&str> {
    let kept = match given {
        "" | "#" => return Some(""),
        _ => given.strip_suffix(".#").or(given.strip_suffix('.')).unwrap_or(given),
    };
    let bad = kept.len() > super::MAX_LENGTH
        || kept.contains(['*', '#'])
        || kept.split('.').any(str::is_empty)
        || kept.chars().any(|c| c.is_control() || c.is_whitespace());
    (!bad).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::{Grant, Grants, Right, Roles, is_under, prefix_of};

    const A: u32 = 1;
    const B: u32 = 2;
    const SUPER: u32 = 10;

    const OF_A: u32 = 3;

    /// OF_A is a member of A.
    struct Known;

    impl Roles<u32> for Known {
        fn has(&self, role: u32, other: u32) -> bool {
            role == other || role == SUPER || self.is_member(role, other)
        }

        fn is_member(&self, role: u32, other: u32) -> bool {
            role == OF_A && other == A
        }
    }

    fn grants(all: &[(Right, u32, Option<u32>, bool)]) -> Grants<u32> {
        let one = |&(right, grantee, of, settled): &(Right, u32, Option<u32>, bool)| Grant {
            right,
            prefix: "payments".to_owned(),
            grantee,
            of,
            settled,
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn without_a_grant_an_event_is_for_its_own_role() {
        let none = grants(&[]);
        assert!(none.hears(A, A, "payments.ok", &Known));
        assert!(!none.hears(A, B, "payments.ok", &Known) && !none.hears(B, A, "payments.ok", &Known));
        // a superuser reads all, and may start all; neither makes it hear, or be heard
        assert!(none.may_read(SUPER, A, "payments.ok", &Known) && !none.hears(SUPER, A, "payments.ok", &Known));
        assert!(none.may_start(SUPER, A, "payments.ok", &Known) && !none.hears(A, SUPER, "payments.ok", &Known));
    }

    #[test]
    fn a_member_hears_the_role_and_the_role_does_not_hear_its_member() {
        let none = grants(&[]);
        assert!(none.hears(OF_A, A, "payments.ok", &Known) && !none.hears(A, OF_A, "payments.ok", &Known));
    }

    #[test]
    fn a_grant_of_one_side_never_speaks_for_the_other() {
        // B lets A listen: that does not let B start A's automations
        let forged = grants(&[(Right::Listen, A, Some(B), false)]);
        assert!(forged.may_read(A, B, "payments.ok", &Known) && !forged.hears(A, B, "payments.ok", &Known));
        // B lets A emit: that does not let B read the events that A emits
        let spied = grants(&[(Right::Emit, A, Some(B), false)]);
        assert!(!spied.may_read(B, A, "payments.ok", &Known) && !spied.hears(B, A, "payments.ok", &Known));
    }

    #[test]
    fn both_sides_together_or_one_who_speaks_for_both() {
        let both = grants(&[(Right::Listen, A, Some(B), false), (Right::Emit, B, Some(A), false)]);
        assert!(both.hears(A, B, "payments.ok", &Known) && !both.hears(B, A, "payments.ok", &Known));
        assert!(!both.hears(A, B, "payment.ok", &Known));
        for settled in [(Right::Listen, A, Some(B), true), (Right::Emit, B, Some(A), true)] {
            let one = grants(&[settled]);
            assert!(one.hears(A, B, "payments", &Known) && !one.hears(B, A, "payments", &Known), "{settled:?}");
        }
        let all = grants(&[(Right::Emit, B, None, true)]);
        assert!(all.hears(A, B, "payments.ok", &Known) && !all.hears(B, A, "payments.ok", &Known));
    }

    #[test]
    fn a_kind_has_one_owner_who_decides() {
        let read = grants(&[(Right::Listen, B, Some(A), false)]);
        assert!(read.may_use_kind(Right::Listen, B, A, "payments", &Known));
        assert!(!read.may_use_kind(Right::Emit, B, A, "payments", &Known));
        assert!(!read.may_use_kind(Right::Listen, B, SUPER, "payments", &Known));
        assert!(grants(&[]).may_use_kind(Right::Emit, SUPER, A, "payments", &Known));
    }

    #[test]
    fn prefixes_are_whole_words() {
        assert!(is_under("a.b", "a.b") && is_under("a.b", "a.b.c") && is_under("", "x"));
        assert!(!is_under("a.b", "a.bc") && !is_under("a.b", "a"));
        assert_eq!(["a", "a.", "a.#", "#", ""].map(prefix_of), [Some("a"), Some("a"), Some("a"), Some(""), Some("")]);
        assert_eq!(["a.*", "a..b", ".", "a b", "*", "a.#.b"].map(prefix_of), [None; 6]);
    }
}
