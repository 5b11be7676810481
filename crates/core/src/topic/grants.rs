//! Grants on topics, and the two questions that they answer.
//!
//! An event that one role emits reaches an automation of another role only if both sides agree: the emitter's side lets the
//! listener read the event, and the listener's side lets the emitter start runs. A grant speaks for one side (`of`), or for
//! all roles; one that was given by a role with the privileges of both sides settles both questions.
//!
//! Membership answers only half: a listener with the privileges of the emitter may read, an emitter with the privileges of the
//! listener may start. The other half must never follow from it, because a role can make any other role its own member.

/// What a grant lets its grantee do with topics under a prefix.
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

/// A grant. `R` names a role.
#[derive(Clone, Debug)]
pub struct Grant<R> {
    /// To do what.
    pub right: Right,
    /// On this topic and all below it; empty for all topics.
    pub prefix: String,
    /// The role that has the right, and every role with its privileges.
    pub grantee: R,
    /// The role that speaks: of `listen` the emitter, of `emit` the owner of the automations. None: all roles.
    pub of: Option<R>,
    /// It was given by a role with the privileges of both sides, so that nothing is needed from the other one.
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
    /// Does an automation of `listener` hear what `emitter` emits on a topic? `has(a, b)`: has `a` the privileges of `b`?
    pub fn hears(&self, listener: R, emitter: R, topic: &str, has: impl Fn(R, R) -> bool) -> bool {
        listener == emitter
            || (self.may_read(listener, emitter, topic, &has) && self.may_start(emitter, listener, topic, &has))
    }

    /// May `reader` read what `emitter` emits on a topic?
    pub fn may_read(&self, reader: R, emitter: R, topic: &str, has: impl Fn(R, R) -> bool) -> bool {
        reader == emitter
            || has(reader, emitter)
            || self.under(topic).any(|grant| match grant.right {
                Right::Listen => grant.speaks_for(emitter) && has(reader, grant.grantee),
                Right::Emit => {
                    grant.settled && grant.of.is_none_or(|of| has(reader, of)) && has(emitter, grant.grantee)
                }
            })
    }

    /// May `emitter` start runs of `owner`'s automations by an event on a topic?
    pub fn may_start(&self, emitter: R, owner: R, topic: &str, has: impl Fn(R, R) -> bool) -> bool {
        emitter == owner
            || has(emitter, owner)
            || self.under(topic).any(|grant| match grant.right {
                Right::Emit => grant.speaks_for(owner) && has(emitter, grant.grantee),
                Right::Listen => grant.settled && grant.speaks_for(emitter) && has(owner, grant.grantee),
            })
    }

    /// May `role` read (listen) or write (emit) entities of a kind that belongs to `owner`? A kind has one owner who decides
    /// alone, and whoever listens to it has named it.
    pub fn may_use_kind(&self, right: Right, role: R, owner: R, kind: &str, has: impl Fn(R, R) -> bool) -> bool {
        role == owner
            || has(role, owner)
            || self.under(kind).any(|grant| {
                grant.right == right && grant.speaks_for(owner) && has(role, grant.grantee)
            })
    }

    fn under(&self, topic: &str) -> impl Iterator<Item = &Grant<R>> {
        self.0.iter().filter(move |grant| is_under(&grant.prefix, topic))
    }
}

/// Is a topic the prefix itself, or below it? Whole words count: `pay` is no prefix of `payments.ok`.
pub fn is_under(prefix: &str, topic: &str) -> bool {
    prefix.is_empty() || topic.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A prefix as it is kept: `payments.`, `payments.#` and `payments` are the same, `#` is the empty one. None if it is none.
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
    use super::{Grant, Grants, Right, is_under, prefix_of};

    const A: u32 = 1;
    const B: u32 = 2;
    const SUPER: u32 = 10;

    fn has(member: u32, role: u32) -> bool {
        member == role || member == SUPER
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
        assert!(none.hears(A, A, "payments.ok", has));
        assert!(!none.hears(A, B, "payments.ok", has) && !none.hears(B, A, "payments.ok", has));
        // a superuser reads all, and may start all; neither makes it hear, or be heard
        assert!(none.may_read(SUPER, A, "payments.ok", has) && !none.hears(SUPER, A, "payments.ok", has));
        assert!(none.may_start(SUPER, A, "payments.ok", has) && !none.hears(A, SUPER, "payments.ok", has));
    }

    #[test]
    fn a_grant_of_one_side_never_speaks_for_the_other() {
        // B lets A listen: that does not let B start A's automations
        let forged = grants(&[(Right::Listen, A, Some(B), false)]);
        assert!(forged.may_read(A, B, "payments.ok", has) && !forged.hears(A, B, "payments.ok", has));
        // B lets A emit: that does not let B read what A emits
        let spied = grants(&[(Right::Emit, A, Some(B), false)]);
        assert!(!spied.may_read(B, A, "payments.ok", has) && !spied.hears(B, A, "payments.ok", has));
    }

    #[test]
    fn both_sides_together_or_one_who_speaks_for_both() {
        let both = grants(&[(Right::Listen, A, Some(B), false), (Right::Emit, B, Some(A), false)]);
        assert!(both.hears(A, B, "payments.ok", has) && !both.hears(B, A, "payments.ok", has));
        assert!(!both.hears(A, B, "payment.ok", has));
        for settled in [(Right::Listen, A, Some(B), true), (Right::Emit, B, Some(A), true)] {
            let one = grants(&[settled]);
            assert!(one.hears(A, B, "payments", has) && !one.hears(B, A, "payments", has), "{settled:?}");
        }
        let all = grants(&[(Right::Emit, B, None, true)]);
        assert!(all.hears(A, B, "payments.ok", has) && !all.hears(B, A, "payments.ok", has));
    }

    #[test]
    fn a_kind_has_one_owner_who_decides() {
        let read = grants(&[(Right::Listen, B, Some(A), false)]);
        assert!(read.may_use_kind(Right::Listen, B, A, "payments", has));
        assert!(!read.may_use_kind(Right::Emit, B, A, "payments", has));
        assert!(!read.may_use_kind(Right::Listen, B, SUPER, "payments", has));
        assert!(grants(&[]).may_use_kind(Right::Emit, SUPER, A, "payments", has));
    }

    #[test]
    fn prefixes_are_whole_words() {
        assert!(is_under("a.b", "a.b") && is_under("a.b", "a.b.c") && is_under("", "x"));
        assert!(!is_under("a.b", "a.bc") && !is_under("a.b", "a"));
        assert_eq!(["a", "a.", "a.#", "#", ""].map(prefix_of), [Some("a"), Some("a"), Some("a"), Some(""), Some("")]);
        assert_eq!(["a.*", "a..b", ".", "a b", "*", "a.#.b"].map(prefix_of), [None; 6]);
    }
}
