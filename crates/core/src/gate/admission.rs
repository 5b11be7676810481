//! How many runs execute at the same time. A run that is not admitted stays queued and loses nothing.

/// The way in which a run was started: each has a limit of its own (R001-40).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// By an event.
    Event,
    /// By a schedule or by hand.
    Schedule,
}

impl Class {
    /// Does an opt-in `dedup` apply? Not to schedules and starts by hand: their automations make sure by themselves
    /// (R001-60). A start with a given event counts as an event (R001-52).
    pub fn dedups(self) -> bool {
        self == Class::Event
    }
}

/// The limits that stand in the server's settings; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Processes that execute runs. A process executes one run at a time, so a limit that is not smaller than this
    /// number is never reached.
    pub executors: u32,
    /// All runs of the database.
    pub all: Option<u32>,
    /// Runs of [`Class::Event`].
    pub events: Option<u32>,
    /// Runs of [`Class::Schedule`].
    pub schedules: Option<u32>,
    /// Runs of one tenant.
    pub per_tenant: Option<u32>,
    /// Runs of one owner.
    pub per_role: Option<u32>,
}

/// A limit that a run comes under: at most so many runs of the same scope execute at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<'a> {
    /// The sort of scope.
    pub sort: &'static str,
    /// Which scope of this sort: the class, tenant, owner or automation by its name or number.
    pub scope: &'a str,
    pub most: u32,
    /// Several owners share the scope. Runs of one owner that do not end must not use up the places of the others, so
    /// an owner with no run under way is let in beyond the limit.
    pub shared: bool,
}

/// The run that wants to execute.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub class: Class,
    pub tenant: Option<&'a str>,
    pub owner: &'a str,
    pub automation: &'a str,
    /// The automation's own limit.
    pub concurrency: Option<u32>,
}

impl Settings {
    /// Can no limit be reached? Asked for each run before its [`Candidate`] is put together.
    pub fn limit_nothing(&self, concurrency: Option<u32>) -> bool {
        [self.all, self.events, self.schedules, self.per_tenant, self.per_role, concurrency]
            .into_iter()
            .all(|most| self.reachable(most).is_none())
    }

    fn reachable(&self, most: Option<u32>) -> Option<u32> {
        most.filter(|most| *most < self.executors)
    }

    /// The limits that the run comes under and that can be reached, widest scope first.
    pub fn limits_of<'a>(&self, run: Candidate<'a>) -> impl Iterator<Item = Limit<'a>> {
        let (class, of_class) = match run.class {
            Class::Event => ("events", self.events),
            Class::Schedule => ("schedules", self.schedules),
        };
        let per_tenant = self.per_tenant.filter(|_| run.tenant.is_some());
        let limit = |sort, scope, most, shared| self.reachable(most).map(|most| Limit { sort, scope, most, shared });
        let limits = [
            limit("all", "", self.all, true),
            limit("class", class, of_class, true),
            limit("tenant", run.tenant.unwrap_or_default(), per_tenant, true),
            limit("role", run.owner, self.per_role, false),
            limit("automation", run.automation, run.concurrency, false),
        ];
        limits.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Class, Settings};

    const RUN: Candidate<'_> =
        Candidate { class: Class::Event, tenant: Some("acme"), owner: "16384", automation: "7", concurrency: Some(1) };

    const ALL: Settings = Settings {
        executors: 20,
        all: Some(15),
        events: Some(10),
        schedules: Some(5),
        per_tenant: Some(3),
        per_role: Some(2),
    };

    fn sorts(settings: Settings, run: Candidate<'_>) -> Vec<(&'static str, String, u32)> {
        settings.limits_of(run).map(|limit| (limit.sort, limit.scope.to_owned(), limit.most)).collect()
    }

    #[test]
    fn a_run_comes_under_the_limits_of_its_class_tenant_owner_and_automation() {
        let expected = [
            ("all", "", 15),
            ("class", "events", 10),
            ("tenant", "acme", 3),
            ("role", "16384", 2),
            ("automation", "7", 1),
        ];
        assert_eq!(sorts(ALL, RUN), expected.map(|(sort, scope, most)| (sort, scope.to_owned(), most)));
        let scheduled = Candidate { class: Class::Schedule, tenant: None, concurrency: None, ..RUN };
        let expected = [("all", "", 15), ("class", "schedules", 5), ("role", "16384", 2)];
        assert_eq!(sorts(ALL, scheduled), expected.map(|(sort, scope, most)| (sort, scope.to_owned(), most)));
    }

    #[test]
    fn a_limit_that_the_executors_cannot_reach_costs_nothing() {
        assert_eq!(sorts(Settings { executors: 2, ..ALL }, RUN), [("automation", "7".to_owned(), 1)]);
        assert!(Settings { executors: 2, ..ALL }.limit_nothing(None));
        assert!(!Settings { executors: 2, ..ALL }.limit_nothing(Some(1)));
        assert!(!Settings { executors: 3, ..ALL }.limit_nothing(None));
        assert!(Settings { executors: 16, ..Settings::default() }.limit_nothing(None));
    }

    #[test]
    fn only_scopes_that_several_owners_share_let_an_owner_in_beyond_the_limit() {
        let shared: Vec<&str> = ALL.limits_of(RUN).filter(|limit| limit.shared).map(|limit| limit.sort).collect();
        assert_eq!(shared, ["all", "class", "tenant"]);
    }
}
