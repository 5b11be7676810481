//! How many runs execute at the same time. Who is not admitted stays queued and loses nothing.

use super::{Code, Reason};

/// How a run was started decides which executors it needs (R001-40).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// By an event.
    Event,
    /// By a schedule or by hand.
    Schedule,
}

impl Class {
    /// Executors of the class, unless the database says otherwise.
    pub fn default_limit(self) -> u32 {
        match self {
            Class::Event => 10,
            Class::Schedule => 5,
        }
    }

    /// Does an opt-in `dedup` apply? Not to schedules and starts by hand: their automations make sure by themselves
    /// (R001-60). A start with a given event counts as an event (R001-52).
    pub fn dedups(self) -> bool {
        self == Class::Event
    }
}

/// A limit and how much of it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Runs that execute now.
    pub executing: u32,
    /// How many may; `None` for no limit.
    pub limit: Option<u32>,
}

/// Everything that one more run has to fit into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// All runs of the database.
    pub global: Gauge,
    /// Those of the same [`Class`].
    pub class: Gauge,
    /// Those of the same tenant.
    pub tenant: Gauge,
    /// Those of the same owner.
    pub role: Gauge,
    /// Those of the same automation.
    pub automation: Gauge,
}

impl Load {
    fn gauges(&mut self) -> [(&mut Gauge, Code, &'static str); 5] {
        [
            (&mut self.global, Code::GlobalLimit, "in the database"),
            (&mut self.class, Code::ClassLimit, "of this class"),
            (&mut self.tenant, Code::TenantLimit, "of the tenant"),
            (&mut self.role, Code::RoleLimit, "of the owner"),
            (&mut self.automation, Code::AutomationLimit, "of the automation"),
        ]
    }

    /// May one more run execute? If so, it is counted.
    pub fn admit(&mut self) -> Result<(), Reason> {
        for (gauge, code, whose) in self.gauges() {
            if let Some(limit) = gauge.limit.filter(|limit| gauge.executing >= *limit) {
                let clause = format!("fewer than {limit} runs {whose} execute");
                return Err(Reason::new(code, clause, format!("{} do", gauge.executing)));
            }
        }
        for (gauge, ..) in self.gauges() {
            gauge.executing += 1;
        }
        Ok(())
    }
}

/// May a run take the lock on its entity? It is held from start to end or suspension, and given away in the order in
/// which it was asked for. `waiting` are the runs that want it, oldest first, this one perhaps among them.
pub fn entity_lock(holder: Option<i64>, waiting: &[i64], run: i64) -> Result<(), Reason> {
    let locked = |found: String| Err(Reason::new(Code::EntityLocked, "no other run works on the entity", found));
    match (holder, waiting.first()) {
        (Some(holder), _) if holder != run => locked(format!("run {holder} does")),
        (None, Some(first)) if *first != run => locked(format!("run {first} is first in line")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Gauge, Load, entity_lock};
    use crate::gate::Code;

    fn gauge(executing: u32, limit: u32) -> Gauge {
        Gauge { executing, limit: Some(limit) }
    }

    #[test]
    fn ten_runs_of_events_and_five_of_schedules_execute_at_the_same_time_r001_40_r001_61() {
        for (class, most) in [(Class::Event, 10), (Class::Schedule, 5)] {
            let mut load = Load { class: gauge(0, class.default_limit()), ..Load::default() };
            let admitted = (0..20).filter(|_| load.admit().is_ok()).count();
            assert_eq!(admitted, most);
        }
    }

    #[test]
    fn the_first_limit_that_is_reached_is_the_reason_r002_9() {
        let free = Load { global: gauge(3, 10), class: gauge(3, 10), tenant: gauge(1, 2), ..Load::default() };
        assert!(free.clone().admit().is_ok());
        for (load, code) in [
            (Load { global: gauge(10, 10), tenant: gauge(2, 2), ..free }, Code::GlobalLimit),
            (Load { class: gauge(10, 10), tenant: gauge(2, 2), ..free }, Code::ClassLimit),
            (Load { tenant: gauge(2, 2), role: gauge(4, 4), ..free }, Code::TenantLimit),
            (Load { role: gauge(4, 4), automation: gauge(1, 1), ..free }, Code::RoleLimit),
            (Load { automation: gauge(1, 1), ..free }, Code::AutomationLimit),
        ] {
            assert_eq!(load.clone().admit().expect_err("full").code, code);
        }
    }

    #[test]
    fn who_is_refused_is_not_counted() {
        let mut load = Load { global: gauge(0, 10), automation: gauge(1, 1), ..Load::default() };
        assert!(load.admit().is_err());
        assert_eq!(load.global.executing, 0);
    }

    #[test]
    fn the_lock_on_an_entity_goes_to_the_one_who_asked_first_r002_8_d14() {
        assert!(entity_lock(None, &[], 7).is_ok());
        assert!(entity_lock(None, &[7, 8], 7).is_ok());
        assert!(entity_lock(Some(7), &[8], 7).is_ok(), "it may already hold it");
        assert_eq!(entity_lock(None, &[7, 8], 8).expect_err("7 first").found, "run 7 is first in line");
        assert_eq!(entity_lock(Some(7), &[8], 8).expect_err("held").found, "run 7 does");
    }
}
