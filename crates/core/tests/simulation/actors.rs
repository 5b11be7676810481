//! Who does what: users, one conductor, several executors. Each takes one small step at a time, in an order that chance
//! decides; a transaction is begun in one step and committed in another, if it is not rolled back or lost in a crash.

use crate::chance::Chance;
use crate::checks;
use crate::database::*;
use crate::programs::SIZE;
use automation_core::ids::WaitNo;
use automation_core::machine::{State, WaitFor};
use automation_core::program::Program;
use automation_core::topic;

/// The protocol between the processes, and ways to get it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    AsDesigned,
    /// The condition is checked and the wait inserted, without another look after the commit.
    NoArm,
    /// A wake does not say which wait it means.
    IgnoreNumber,
    /// Two executors may walk the same run.
    NoRunLock,
    /// A wake that finds its run in other hands is dropped.
    DropOnContention,
    /// A signal that somebody else is just taking counts as none.
    SkipLockedSignal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Run(i64),
    Dispatch(i64),
    Signal(i64),
}

/// A transaction that has not been committed.
pub struct Pending {
    pub writes: Vec<Write>,
    pub locks: Vec<Lock>,
    /// A run to look at after the commit.
    pub look: Option<i64>,
}

#[derive(Default)]
enum Executor {
    #[default]
    Idle,
    Busy(Pending),
    /// About to look once more at what it has armed.
    Armed(i64),
}

/// What was done in a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    effects: usize,
    completed: usize,
    failed: usize,
    cancelled: usize,
    suspensions: usize,
    crashes: usize,
}

impl std::ops::Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            effects: self.effects + other.effects,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            suspensions: self.suspensions + other.suspensions,
            crashes: self.crashes + other.crashes,
        }
    }
}

impl Tally {
    /// Did enough happen for so many simulations to have shown anything?
    pub fn is_worth_it(&self, simulations: u64) -> bool {
        let many = simulations as usize;
        self.effects > many
            && self.completed > many
            && self.failed > many / 4
            && self.cancelled > many / 4
            && self.suspensions > 5 * many
            && self.crashes > many
    }
}

pub struct Simulation {
    pub db: Database,
    pub family: &'static [Program],
    pub chance: Chance,
    pub protocol: Protocol,
    pub now: i64,
    sequence: i64,
    conductor: Option<Pending>,
    executors: [Executor; 3],
    users: [Option<Pending>; 2],
    faults: bool,
    pub tally: Tally,
    problem: Option<String>,
}

impl Simulation {
    pub fn new(seed: u64, protocol: Protocol, family: &'static [Program]) -> Simulation {
        Simulation {
            db: Database::default(),
            family,
            chance: Chance::new(seed),
            protocol,
            now: BEGIN,
            sequence: 1000,
            conductor: None,
            executors: Default::default(),
            users: Default::default(),
            faults: true,
            tally: Tally::default(),
            problem: None,
        }
    }

    /// A number that is never given out again, whatever becomes of the transaction.
    pub fn next_id(&mut self) -> i64 {
        self.sequence += 1;
        self.sequence
    }

    /// Remembers the first thing that went wrong.
    pub fn wrong(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    pub fn locked(&self, lock: Lock) -> bool {
        let busy = self.executors.iter().filter_map(|executor| match executor {
            Executor::Busy(pending) => Some(pending),
            _ => None,
        });
        busy.chain(self.users.iter().flatten()).any(|pending| pending.locks.contains(&lock))
    }

    /// First everything goes wrong that can, then faults stop and every run has to end.
    pub fn run(mut self) -> Result<Tally, String> {
        for _ in 0..1 + self.chance.below(3) {
            let start = self.new_run();
            self.db.commit(start)?;
        }
        for _ in 0..self.chance.below(250) {
            self.disturbed_step()?;
        }
        self.faults = false;
        self.come_to_rest()?;
        for round in 0..400 {
            if self.db.runs.is_empty() {
                let ended = |status: &str| self.db.ended.values().filter(|end| end.0 == status).count();
                return Ok(Tally {
                    effects: self.db.effects.len(),
                    completed: ended("completed"),
                    failed: ended("failed"),
                    cancelled: ended("cancelled"),
                    suspensions: self.db.suspensions,
                    ..self.tally
                });
            }
            self.make_everything_happen(round == 0)?;
            self.come_to_rest()?;
        }
        Err(format!("these runs never end: {:?}", self.db.runs.keys()))
    }

    fn disturbed_step(&mut self) -> Result<(), String> {
        if self.chance.one_in(10) {
            self.now += self.chance.below(5) as i64 * SECOND;
        }
        if self.chance.one_in(50) {
            // All that was not committed is lost, in all processes.
            self.tally.crashes += 1;
            self.conductor = None;
            self.executors = Default::default();
            self.users = Default::default();
        }
        self.step()
    }

    fn step(&mut self) -> Result<(), String> {
        match self.chance.below(8) {
            0 | 1 => self.conductor_step()?,
            2 if self.faults => self.user_step()?,
            _ => self.executor_step()?,
        }
        match self.problem.take() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    /// Commits, or not.
    fn finish(&mut self, pending: Pending) -> Result<Option<i64>, String> {
        if self.faults && self.chance.one_in(10) {
            return Ok(None);
        }
        self.db.commit(pending.writes)?;
        Ok(pending.look)
    }

    fn executor_step(&mut self) -> Result<(), String> {
        let who = self.chance.below(self.executors.len());
        self.executors[who] = match std::mem::take(&mut self.executors[who]) {
            Executor::Idle => self.claim().map_or(Executor::Idle, Executor::Busy),
            Executor::Busy(pending) => self.finish(pending)?.map_or(Executor::Idle, Executor::Armed),
            Executor::Armed(run) => self.look_after_commit(run).map_or(Executor::Idle, Executor::Busy),
        };
        Ok(())
    }

    fn conductor_step(&mut self) -> Result<(), String> {
        match self.conductor.take() {
            Some(pending) => self.finish(pending).map(|_| ()),
            None => {
                let writes = if self.chance.one_in(2) { self.route() } else { self.due_timers() };
                self.conductor = Some(Pending { writes, locks: Vec::new(), look: None });
                Ok(())
            }
        }
    }

    /// Who is concerned by the next events, as of now.
    fn route(&mut self) -> Vec<Write> {
        let batch: Vec<i64> = self.db.unrouted.iter().copied().take(1 + self.chance.below(5)).collect();
        let mut writes = Vec::new();
        for id in batch {
            writes.push(Write::Routed(id));
            let mut to = |run: i64, wait: WaitNo, why: Why| writes.push(Write::Dispatch(Dispatch { run, wait, why }));
            match &self.db.events[&id] {
                Event::Started { run, automation, parent } => {
                    to(*run, WaitNo::NONE, Why::Start { automation: *automation, parent: *parent });
                }
                Event::Skip { run, wait } => to(*run, *wait, Why::Skip),
                Event::Cancel { run } => to(*run, WaitNo::NONE, Why::Cancel),
                event => {
                    let mut concerned: Vec<(i64, WaitNo, Why)> = Vec::new();
                    for (run, wait, source) in &self.db.index {
                        let why = match (source, event) {
                            (Source::State(kind, None), Event::Changed { kind: k, .. }) if kind == k => Why::Look,
                            (Source::State(kind, Some(own)), Event::Changed { kind: k, id })
                                if kind == k && own == id =>
                            {
                                Why::Look
                            }
                            (Source::Topic(pattern), Event::Emitted { topic, .. })
                                if topic::matches(pattern, topic) =>
                            {
                                Why::Event(id)
                            }
                            (Source::Signal(own), Event::Signalled { name }) if own == name => Why::Signal,
                            (Source::Run(own), Event::Ended { run }) if own == run => Why::Ended,
                            _ => continue,
                        };
                        // one wake, however many references match
                        if concerned.last().is_none_or(|last| (last.0, last.1) != (*run, *wait)) {
                            concerned.push((*run, *wait, why));
                        }
                    }
                    concerned.into_iter().for_each(|(run, wait, why)| to(run, wait, why));
                }
            }
        }
        writes
    }

    fn due_timers(&mut self) -> Vec<Write> {
        let due: Vec<_> = self.db.timers.iter().take_while(|timer| timer.0 <= self.now).take(5).cloned().collect();
        due.into_iter()
            .flat_map(|(at, run, wait, kind)| {
                let why = match kind {
                    TimerKind::Due => Why::Due,
                    TimerKind::Look => Why::Look,
                    TimerKind::Arm => Why::Arm,
                };
                [Write::TimerGone(at, run, wait, kind), Write::Dispatch(Dispatch { run, wait, why })]
            })
            .collect()
    }

    fn user_step(&mut self) -> Result<(), String> {
        let who = self.chance.below(self.users.len());
        match self.users[who].take() {
            Some(pending) => self.finish(pending).map(|_| ()),
            None => {
                let writes = self.user_writes();
                self.users[who] = Some(Pending { writes, locks: Vec::new(), look: None });
                Ok(())
            }
        }
    }

    fn new_run(&mut self) -> Vec<Write> {
        let (run, automation) = (self.next_id(), self.chance.below(SIZE));
        vec![Write::Event(self.next_id(), Event::Started { run, automation, parent: None })]
    }

    fn change(&mut self, kind: &str, id: usize, n: i64) -> Vec<Write> {
        let (kind, id) = (kind.to_owned(), id.to_string());
        let event = Event::Changed { kind: kind.clone(), id: id.clone() };
        vec![Write::Entity(kind, id, n), Write::Event(self.next_id(), event)]
    }

    fn signal(&mut self, name: &str, key: Option<String>) -> Vec<Write> {
        let signal = Signal { name: name.to_owned(), key };
        let event = Event::Signalled { name: name.to_owned() };
        vec![Write::Signal(self.next_id(), signal), Write::Event(self.next_id(), event)]
    }

    fn user_writes(&mut self) -> Vec<Write> {
        let live: Vec<i64> = self.db.runs.keys().copied().collect();
        let someone = self.chance.pick(&live).copied();
        match self.chance.below(12) {
            0..5 => {
                let (id, n) = (self.chance.below(3), self.chance.below(7) as i64);
                self.change("k", id, n)
            }
            5 => {
                let n = self.chance.below(3) as i64;
                self.change("p", 0, n)
            }
            6 | 7 => {
                let (topic, n) = (format!("t.{}", self.chance.below(2)), self.chance.below(9) as i64);
                vec![Write::Event(self.next_id(), Event::Emitted { topic, n })]
            }
            8 | 9 => {
                let name = ["go0", "go1"][self.chance.below(2)];
                let key = someone.filter(|_| self.chance.one_in(2)).map(|run| run.to_string());
                self.signal(name, key)
            }
            10 => {
                let Some(run) = someone else { return self.new_run() };
                if self.chance.one_in(3) {
                    return vec![Write::Event(self.next_id(), Event::Cancel { run })];
                }
                let state: State = serde_json::from_str(&self.db.runs[&run].state).expect("a state");
                let Some(wait) = self.chance.pick(&waits(&state)).cloned() else { return Vec::new() };
                vec![Write::SkipAsked(run, wait.step), Write::Event(self.next_id(), Event::Skip { run, wait: wait.no })]
            }
            _ => self.new_run(),
        }
    }

    /// Works on until nothing is left to be done, and looks whether all is well.
    fn come_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..50_000 {
            let idle = self.conductor.is_none()
                && self.executors.iter().all(|executor| matches!(executor, Executor::Idle))
                && self.db.dispatches.is_empty()
                && self.db.unrouted.is_empty()
                && self.db.timers.first().is_none_or(|timer| timer.0 > self.now);
            if idle {
                // whoever had not committed by now never will
                self.users = Default::default();
                return checks::at_rest(self);
            }
            self.step()?;
        }
        Err("the engine does not come to rest".to_owned())
    }

    /// Whatever a run can wait for comes true, one after the other.
    fn make_everything_happen(&mut self, first: bool) -> Result<(), String> {
        let mut writes = Vec::new();
        if first {
            for id in 0..3 {
                writes.extend(self.change("k", id, 1000));
            }
            writes.extend(self.change("p", 0, 1));
        }
        for run in self.db.runs.keys().copied().collect::<Vec<i64>>() {
            let state: State = serde_json::from_str(&self.db.runs[&run].state).expect("a state");
            for wait in waits(&state) {
                match wait.what {
                    WaitFor::Signal { name, key } => writes.extend(self.signal(&name, key)),
                    WaitFor::Event { topic } => {
                        let topic = topic.replace('*', "0");
                        writes.push(Write::Event(self.next_id(), Event::Emitted { topic, n: 1000 }));
                    }
                    _ => {}
                }
            }
        }
        self.db.commit(writes)?;
        if let Some(next) = self.db.timers.first() {
            self.now = self.now.max(next.0);
        }
        Ok(())
    }

    /// Two runs want the same signal; see the test of that name.
    pub fn rivals(mut self) -> Result<(), String> {
        self.faults = false;
        for _ in 0..2 {
            let start = self.new_run();
            self.db.commit(start)?;
        }
        self.come_to_rest()?;
        let signal = self.signal("go0", None);
        self.db.commit(signal)?;
        self.route_all()?;
        let taking = self.claim().ok_or("a run takes the signal")?;
        let Some(Lock::Run(first)) = taking.locks.iter().copied().find(|lock| matches!(lock, Lock::Run(_))) else {
            return Err("the run is locked".to_owned());
        };
        self.executors[0] = Executor::Busy(taking);
        for _ in 0..10 {
            if let Some(other) = self.claim() {
                self.finish(other)?;
            }
        }
        self.executors = Default::default();
        let cancel = Write::Event(self.next_id(), Event::Cancel { run: first });
        self.db.commit(vec![cancel])?;
        self.route_all()?;
        while !self.db.ended.contains_key(&first) {
            let ends = |pending: &Pending| pending.writes.iter().any(|write| matches!(write, Write::Ended(..)));
            if let Some(pending) = self.claim().filter(ends) {
                self.finish(pending)?;
            }
        }
        self.come_to_rest()
    }

    fn route_all(&mut self) -> Result<(), String> {
        while !self.db.unrouted.is_empty() {
            let writes = self.route();
            self.db.commit(writes)?;
        }
        Ok(())
    }
}
