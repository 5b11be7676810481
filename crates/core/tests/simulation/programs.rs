//! Random automations: every kind of step, inside one another.
//!
//! Each step that does something names itself by the rounds it is in (`vars.p0`, `vars.p1` ...), so that whatever is done
//! twice can be told from what is done in two rounds.

use crate::chance::Chance;
use automation_core::definition;
use automation_core::program::{Program, compile};
use serde_json::{Value as Json, json};
use std::sync::OnceLock;

/// How many families there are; to parse more would take longer than to simulate them.
pub const FAMILIES: usize = 60;
/// Automations that may start one another.
pub const SIZE: usize = 3;

/// The automations of a family.
pub fn family(number: usize) -> &'static [Program] {
    static POOL: [OnceLock<Vec<Program>>; FAMILIES] = [const { OnceLock::new() }; FAMILIES];
    POOL[number % FAMILIES].get_or_init(|| (0..SIZE).map(|level| program(number % FAMILIES, level)).collect())
}

/// Automations that want the same signals and nothing else.
pub fn rivals() -> &'static [Program] {
    static POOL: OnceLock<Vec<Program>> = OnceLock::new();
    let steps = json!([{"id": "go", "do": "wait_signal", "signal": "go0"}, {"do": "wait_signal", "signal": "go0"}]);
    let document = json!({"name": "rival", "triggers": [{"on": "call"}], "steps": steps});
    POOL.get_or_init(|| (0..SIZE).map(|_| compiled(&document)).collect())
}

fn program(family: usize, level: usize) -> Program {
    compiled(&document(family, level))
}

fn compiled(document: &Json) -> Program {
    let read = definition::read(document).unwrap_or_else(|problems| panic!("{problems:?} in {document}"));
    compile(&read).unwrap_or_else(|problems| panic!("{problems:?} in {document}"))
}

/// The document of an automation, to look at when a seed fails.
pub fn document(family: usize, level: usize) -> Json {
    let mut author = Author { chance: Chance::new((family * SIZE + level) as u64 + 1), next: 0, level };
    let mut steps = vec![json!({"id": "first", "do": "set", "variables": {"p0": ""}})];
    steps.extend(author.block(0, 0, &[]));
    let mut document = json!({
        "name": format!("a{level}"), "triggers": [{"on": "call"}], "steps": steps, "max_steps": 2000,
    });
    if author.chance.one_in(3) {
        document["on_failure"] = json!([author.act(0), author.delay(), author.act(0)]);
    }
    document
}

struct Author {
    chance: Chance,
    next: usize,
    /// Automations above this one may be started.
    level: usize,
}

impl Author {
    fn id(&mut self) -> String {
        self.next += 1;
        format!("s{}", self.next)
    }

    /// A few steps. `rounds` is how many loops they are in, `exits` are steps behind the blocks around.
    fn block(&mut self, depth: usize, rounds: usize, exits: &[String]) -> Vec<Json> {
        let exit = self.id();
        let mut inner = exits.to_vec();
        inner.push(exit.clone());
        let count = 1 + self.chance.below(if depth == 0 { 4 } else { 3 });
        let mut steps: Vec<Json> = (0..count).map(|_| self.step(depth, rounds, &inner)).collect();
        if self.chance.one_in(4) {
            let to = self.chance.pick(&inner).cloned().unwrap_or_default();
            let branch = json!({"id": self.id(), "do": "branch", "if": self.state(), "yes": to});
            let at = self.chance.below(steps.len());
            steps.insert(at, branch);
        }
        steps.push(json!({"id": exit, "do": "sequence", "steps": []}));
        steps
    }

    fn step(&mut self, depth: usize, rounds: usize, exits: &[String]) -> Json {
        let mut step = match self.chance.below(if depth < 3 { 22 } else { 11 }) {
            0..3 => self.act(rounds),
            3 => self.delay(),
            4..7 => self.wait_until(),
            7 => self.wait_for_event(),
            8 => self.wait_signal(),
            9 => self.run(rounds),
            10 => self.odd(),
            11..13 => json!({"do": "sequence", "steps": self.block(depth + 1, rounds, exits)}),
            13..15 => self.choose(depth, rounds, exits),
            15..18 => self.parallel(depth, rounds),
            18..21 => self.repeat(depth, rounds, exits),
            _ => self.jump_back(depth, rounds, exits),
        };
        if step.get("id").is_none() {
            step["id"] = self.id().into();
        }
        if self.chance.one_in(3) {
            step["continue_on_error"] = true.into();
        }
        if self.chance.one_in(8) {
            step["condition"] = self.state().into();
        }
        step
    }

    /// Something about entities, any of which may be so sooner or later.
    fn state(&mut self) -> String {
        let (a, b) = (self.chance.below(3), self.chance.below(3));
        let (x, y) = (self.chance.below(5), self.chance.below(5));
        match self.chance.below(4) {
            0 => format!("state.k.{a}.n >= {x}"),
            1 => format!("state.k.{a}.n >= {x} and state.k.{b}.n >= {y}"),
            2 => format!("state.k.{a}.n >= {x} or state.k.{b}.n >= {y}"),
            _ => format!("state.k[state.p.0.n].n >= {x}"),
        }
    }

    fn act(&mut self, rounds: usize) -> Json {
        let path = format!("{{{{ vars.p{rounds} }}}}");
        let mut step = json!({"id": self.id(), "do": "publish", "topic": "effect", "payload": {"path": path}});
        if self.chance.one_in(3) {
            step["retry"] = json!({"delays": ["1s", "2s"]});
        }
        step
    }

    fn delay(&mut self) -> Json {
        json!({"id": self.id(), "do": "delay", "for": format!("{} seconds", self.chance.below(20))})
    }

    fn with_timeout(&mut self, mut step: Json, always: bool) -> Json {
        if always || self.chance.one_in(2) {
            step["timeout"] = format!("{} seconds", 1 + self.chance.below(30)).into();
            if self.chance.one_in(4) {
                step["continue_on_timeout"] = false.into();
            }
        }
        step
    }

    fn wait_until(&mut self) -> Json {
        let (entity, n) = (self.chance.below(3), self.chance.below(6));
        match self.chance.below(8) {
            // may be true for a moment only
            0 => {
                let step = json!({"do": "wait_until", "until": format!("state.k.{entity}.n = {n}")});
                self.with_timeout(step, true)
            }
            1 => {
                let until = format!("now() >= run.at + {} seconds", 1 + self.chance.below(40));
                self.with_timeout(json!({"do": "wait_until", "until": until}), false)
            }
            // what another lane may give back
            2 => {
                let until = format!("steps.s{}.n >= 1", 1 + self.chance.below(20));
                self.with_timeout(json!({"do": "wait_until", "until": until}), true)
            }
            _ => {
                let until = self.state();
                self.with_timeout(json!({"do": "wait_until", "until": until}), false)
            }
        }
    }

    fn wait_for_event(&mut self) -> Json {
        let topic = ["t.0", "t.1", "t.*"][self.chance.below(3)];
        let mut step = json!({"do": "wait_for_event", "topic": topic});
        if self.chance.one_in(2) {
            step["filter"] = format!("payload.n >= {}", self.chance.below(8)).into();
        }
        self.with_timeout(step, false)
    }

    fn wait_signal(&mut self) -> Json {
        let step = json!({"do": "wait_signal", "signal": format!("go{}", self.chance.below(2))});
        self.with_timeout(step, false)
    }

    fn run(&mut self, rounds: usize) -> Json {
        if self.level + 1 >= SIZE {
            return self.act(rounds);
        }
        let target = self.level + 1 + self.chance.below(SIZE - self.level - 1);
        let mut step = json!({"do": "run", "automation": format!("a{target}")});
        if self.chance.one_in(3) {
            step["retry"] = json!(1);
        }
        if self.chance.one_in(3) {
            step["timeout"] = "20 seconds".into();
        }
        step
    }

    fn odd(&mut self) -> Json {
        match self.chance.below(6) {
            0 => {
                let status = ["completed", "failed", "cancelled"][self.chance.below(3)];
                json!({"do": "stop", "status": status})
            }
            1 | 2 => json!({"do": "require", "if": self.state()}),
            3 => json!({"do": "set", "variables": {"x": "{{ 1 / 0 }}"}, "retry": 1}),
            _ => json!({"do": "set", "variables": {"x": "{{ (vars.x | default(0)) + 1 }}"}}),
        }
    }

    fn choose(&mut self, depth: usize, rounds: usize, exits: &[String]) -> Json {
        let ways: Vec<Json> = (0..1 + self.chance.below(2))
            .map(|_| json!({"when": self.state(), "steps": self.block(depth + 1, rounds, exits)}))
            .collect();
        json!({"do": "choose", "whens": ways, "otherwise": self.block(depth + 1, rounds, exits)})
    }

    fn parallel(&mut self, depth: usize, rounds: usize) -> Json {
        let lanes: Vec<Json> = (0..2 + self.chance.below(2))
            .map(|_| json!({"id": self.id(), "do": "sequence", "steps": self.block(depth + 1, rounds, &[])}))
            .collect();
        json!({"do": "parallel", "lanes": lanes})
    }

    fn repeat(&mut self, depth: usize, rounds: usize, exits: &[String]) -> Json {
        let (n, inner) = (self.chance.below(3), rounds + 1);
        let name = format!("{{{{ vars.p{rounds} + '/' + text(repeat.index) }}}}");
        let mut steps = vec![json!({"id": self.id(), "do": "set", "variables": {format!("p{inner}"): name}})];
        steps.extend(self.block(depth + 1, inner, exits));
        match self.chance.below(4) {
            0 => json!({"do": "repeat_count", "count": n, "steps": steps}),
            1 => json!({"do": "repeat_while", "while": format!("repeat.index <= {n}"), "steps": steps}),
            2 => json!({"do": "repeat_until", "until": format!("repeat.index >= {n}"), "steps": steps}),
            _ => json!({"do": "for_each", "in": vec![7; n], "steps": steps}),
        }
    }

    /// A loop made of a branch to an earlier step.
    fn jump_back(&mut self, depth: usize, rounds: usize, exits: &[String]) -> Json {
        let (top, inner) = (self.id(), rounds + 1);
        let count = format!("{{{{ (vars.c{rounds} | default(0)) + 1 }}}}");
        let name = format!("{{{{ vars.p{rounds} + '#' + text(vars.c{rounds}) }}}}");
        let variables = json!({format!("c{rounds}"): count, format!("p{inner}"): name});
        let mut steps = vec![json!({"id": top, "do": "set", "variables": variables})];
        steps.extend(self.block(depth + 1, inner, exits));
        let id = self.id();
        steps.push(json!({"id": id, "do": "branch", "if": format!("vars.c{rounds} < 2"), "yes": top}));
        json!({"do": "sequence", "steps": steps})
    }
}
