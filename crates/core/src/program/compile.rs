//! From the document to the program: texts are parsed, steps inside steps become jumps.

use super::parts::{Parts, duration_text, of_step, shown};
use super::trigger::{limits, trigger};
use super::variables;
use super::webhook::webhook;
use super::{Action, Delay, Op, Program, Repeat, Retry, Step, StopStatus, Target};
use crate::bulk;
use crate::condition::Condition;
use crate::definition::{DEFAULT_MAX_STEPS, Document, Problem, StepDef, StepKind};
use crate::expr::{Budget, Expr, FixedScope};
use crate::machine::{MAX_ROUNDS, MAX_SIGNAL};
use crate::suggest::nearest;
use crate::template::{SqlTemplate, Template};
use crate::topic;
use crate::value::{Timestamp, Value};
use serde_json::Value as Json;

/// Compiles a document. All problems are returned, not only the first.
pub fn compile(document: &Document) -> Result<Program, Vec<Problem>> {
    let (program, problems) = compile_parts(document);
    if problems.is_empty() { Ok(program) } else { Err(problems) }
}

/// Compiles what can be compiled, and says what is wrong with the rest.
pub fn compile_parts(document: &Document) -> (Program, Vec<Problem>) {
    let mut problems = Vec::new();
    let triggers = document.triggers.iter().enumerate().filter_map(|(i, t)| trigger(t, i, &mut problems)).collect();
    let limits = limits(document, &mut problems);
    let mut parts = Parts { path: String::new(), place: String::new(), problems: &mut problems };
    let condition = parts.condition(document.condition.as_ref(), "condition");
    let key = document.key.as_ref().and_then(|text| parts.parsed(Expr::parse(text), "key", text));
    let timeout = document.timeout.as_ref().and_then(|text| {
        let micros = parts.duration(&Json::String(text.clone()), "timeout")?;
        if micros == 0 {
            parts.wrong("timeout", "timeout must not be zero", "");
        }
        Some(micros)
    });
    let mut compiler = Compiler { steps: Vec::new(), places: Vec::new(), code: Vec::new(), blocks: 0, problems };
    let block = compiler.outermost();
    compiler.block(&document.steps, "steps", &block);
    compiler.code.push(Op::Stop);
    let on_failure = (!document.on_failure.is_empty()).then_some(compiler.code.len());
    if on_failure.is_some() {
        let block = compiler.outermost();
        compiler.block(&document.on_failure, "on_failure", &block);
        compiler.code.push(Op::Stop);
    }
    compiler.resolve_branches();
    let program = Program {
        triggers,
        condition,
        key,
        steps: compiler.steps,
        code: compiler.code,
        on_failure,
        ordering: document.ordering,
        on_pause: document.on_pause,
        max_steps: document.max_steps.unwrap_or(DEFAULT_MAX_STEPS),
        timeout,
        tenant: document.tenant.clone(),
        limits,
    };
    (program, compiler.problems)
}

/// A list of steps that are done one after the other.
#[derive(Clone, Debug, Default)]
struct Block {
    /// The numbers of the blocks around it and its own, outermost first.
    chain: Vec<usize>,
    /// How many of the outermost blocks are of another thread.
    foreign: usize,
    /// How many frames are open in it.
    frames: usize,
    /// The step that it is inside of, if that is of the same thread.
    within: Option<usize>,
}

/// Where a step ended up.
struct Place {
    pc: usize,
    block: Block,
    /// The branch's targets as written.
    yes: Option<String>,
    no: Option<String>,
}

struct Compiler {
    steps: Vec<Step>,
    places: Vec<Place>,
    code: Vec<Op>,
    /// How many blocks there are so far.
    blocks: usize,
    problems: Vec<Problem>,
}

impl Compiler {
    /// A block that no other is around.
    fn outermost(&mut self) -> Block {
        self.blocks += 1;
        Block { chain: vec![self.blocks], ..Block::default() }
    }

    /// A block of a step's own.
    fn inside(&mut self, block: &Block, step: usize, frames: usize) -> Block {
        self.blocks += 1;
        let mut chain = block.chain.clone();
        chain.push(self.blocks);
        Block { chain, foreign: block.foreign, frames: block.frames + frames, within: Some(step) }
    }

    /// A lane, where a thread of its own begins.
    fn lane(&mut self, block: &Block) -> Block {
        self.blocks += 1;
        let mut chain = block.chain.clone();
        let foreign = chain.len() + 1;
        chain.push(self.blocks);
        Block { chain, foreign, frames: 0, within: None }
    }

    fn block(&mut self, defs: &[StepDef], path: &str, block: &Block) {
        let first = self.steps.len();
        for (i, def) in defs.iter().enumerate() {
            self.step(def, &format!("{path}[{i}]"), block);
        }
        let end = self.code.len();
        // The sequence that a `require` ends is the one it stands in.
        for place in first..self.steps.len() {
            if self.places[place].block.chain == block.chain
                && let Action::Require { end: target, .. } = &mut self.steps[place].action
            {
                *target = end;
            }
        }
    }

    fn step(&mut self, def: &StepDef, path: &str, block: &Block) {
        let number = self.steps.len();
        let mut parts = of_step(def, path, &mut self.problems);
        let condition = match def.kind() {
            // their own condition is what they are about
            StepKind::WaitUntil | StepKind::Branch | StepKind::Require if def.get("condition").is_none() => None,
            _ => parts.condition(def.get("condition"), "condition"),
        };
        let timeout_ms = def.get("timeout").and_then(|given| match parts.duration(given, "timeout")? {
            micros @ 1_000.. if def.kind().waits() || micros <= 2_147_483_647_000 => Some(micros / 1000),
            _ => {
                let most = if def.kind().waits() { "below 10000 years" } else { "below 24 days" };
                let hint = format!("It is at least 1 millisecond and {most}.");
                parts.wrong("timeout", &format!("invalid timeout of {}", parts.place), &hint);
                None
            }
        });
        let mut retry = def.get("retry").and_then(|given| Retry::read(given, &mut parts));
        let action = match def.kind() {
            StepKind::Webhook => webhook(def, timeout_ms, retry.take(), &mut parts).unwrap_or(Action::Sequence),
            _ => action(def, &mut parts),
        };
        self.steps.push(Step {
            id: def.id().to_owned(),
            path: path.to_owned(),
            action,
            condition,
            continue_on_error: def.flag("continue_on_error", false),
            timeout_ms: timeout_ms.filter(|_| def.kind() != StepKind::Webhook),
            retry,
            continue_on_timeout: def.flag("continue_on_timeout", true),
            enabled: def.flag("enabled", true),
            within: block.within,
            frames: block.frames,
        });
        let target = |field: &str| def.get(field).and_then(Json::as_str).map(str::to_owned);
        self.places.push(Place { pc: self.code.len(), block: block.clone(), yes: target("yes"), no: target("no") });
        match def.kind() {
            StepKind::Choose => self.choose(def, number, path, block),
            StepKind::RepeatCount | StepKind::RepeatWhile | StepKind::RepeatUntil | StepKind::ForEach => {
                self.repeat(def, number, path, block);
            }
            StepKind::Parallel => self.parallel(def, number, path, block),
            StepKind::Bulk => self.bulk(def, number, path, block),
            StepKind::Sequence => {
                let begin = self.begin(number);
                let inner = self.inside(block, number, 0);
                self.local(&def.steps("steps"), &format!("{path}.steps"), &inner);
                self.end(begin, number);
            }
            _ => self.code.push(Op::Act(number)),
        }
    }

    fn begin(&mut self, step: usize) -> usize {
        self.code.push(Op::Begin { step, past: 0 });
        self.code.len() - 1
    }

    fn end(&mut self, begin: usize, step: usize) {
        self.code.push(Op::End(step));
        let here = self.code.len();
        if let Op::Begin { past, .. } = &mut self.code[begin] {
            *past = here;
        }
    }

    /// Steps whose variables are their own.
    fn local(&mut self, defs: &[StepDef], path: &str, block: &Block) {
        let sets = defs.iter().any(|def| def.kind() == StepKind::Set);
        if sets {
            self.code.push(Op::Open);
        }
        self.block(defs, path, &Block { frames: block.frames + usize::from(sets), ..block.clone() });
        if sets {
            self.code.push(Op::Close);
        }
    }

    fn choose(&mut self, def: &StepDef, number: usize, path: &str, block: &Block) {
        let begin = self.begin(number);
        let mut exits = Vec::new();
        for (way, (_, steps)) in def.whens().iter().enumerate() {
            let test = self.code.len();
            self.code.push(Op::Way { step: number, way, otherwise: 0 });
            let inner = self.inside(block, number, 0);
            self.local(steps, &format!("{path}.whens[{way}].steps"), &inner);
            exits.push(self.code.len());
            self.code.push(Op::Jump(0));
            let here = self.code.len();
            if let Op::Way { otherwise, .. } = &mut self.code[test] {
                *otherwise = here;
            }
        }
        let inner = self.inside(block, number, 0);
        self.local(&def.steps("otherwise"), &format!("{path}.otherwise"), &inner);
        let here = self.code.len();
        for exit in exits {
            self.code[exit] = Op::Jump(here);
        }
        self.end(begin, number);
    }

    fn repeat(&mut self, def: &StepDef, number: usize, path: &str, block: &Block) {
        let begin = self.begin(number);
        let entry = self.code.len();
        self.code.push(Op::Loop { step: number, done: 0 });
        let inner = self.inside(block, number, 1);
        self.block(&def.steps("steps"), &format!("{path}.steps"), &inner);
        self.code.push(Op::Next { step: number, body: entry + 1 });
        let here = self.code.len();
        if let Op::Loop { done, .. } = &mut self.code[entry] {
            *done = here;
        }
        self.end(begin, number);
    }

    fn parallel(&mut self, def: &StepDef, number: usize, path: &str, block: &Block) {
        let begin = self.begin(number);
        let fork = self.code.len();
        self.code.push(Op::Fork { step: number, lanes: Vec::new(), join: 0 });
        let mut starts = Vec::new();
        for (i, lane) in def.steps("lanes").iter().enumerate() {
            starts.push(self.code.len());
            let inner = self.lane(block);
            self.block_at(lane, &format!("{path}.lanes[{i}]"), &inner);
            self.code.push(Op::Stop);
        }
        let here = self.code.len();
        self.code[fork] = Op::Fork { step: number, lanes: starts, join: here };
        self.end(begin, number);
    }

    /// The steps of a row stand beside the way of the run itself: a run of their own begins there.
    fn bulk(&mut self, def: &StepDef, number: usize, path: &str, block: &Block) {
        self.code.push(Op::Act(number));
        let jump = self.code.len();
        self.code.push(Op::Jump(0));
        let inner = self.lane(block);
        self.block(&def.steps("steps"), &format!("{path}.steps"), &inner);
        self.code.push(Op::Stop);
        self.code[jump] = Op::Jump(self.code.len());
        if let Action::Bulk { body, .. } = &mut self.steps[number].action {
            *body = jump + 1;
        }
    }

    /// A block of one step that stands by itself in the document.
    fn block_at(&mut self, def: &StepDef, path: &str, block: &Block) {
        let first = self.steps.len();
        self.step(def, path, block);
        let end = self.code.len();
        if let Some(step) = self.steps.get_mut(first)
            && let Action::Require { end: target, .. } = &mut step.action
        {
            *target = end;
        }
    }

    /// Turns the ids that branches name into places.
    fn resolve_branches(&mut self) {
        for number in 0..self.steps.len() {
            let resolved: Vec<Option<Target>> = ["yes", "no"]
                .into_iter()
                .map(|field| {
                    let place = &self.places[number];
                    let id = if field == "yes" { place.yes.clone() } else { place.no.clone() }?;
                    match self.target(number, &id) {
                        Ok(target) => Some(target),
                        Err((message, hint)) => {
                            let step = &self.steps[number];
                            let path = format!("{}.{field}", step.path);
                            let problem = Problem::shape(path, format!("step \"{}\"", step.id), message);
                            self.problems.push(if hint.is_empty() { problem } else { problem.hint(hint) });
                            None
                        }
                    }
                })
                .collect();
            if let Action::Branch { yes, no, .. } = &mut self.steps[number].action {
                let mut resolved = resolved.into_iter();
                (*yes, *no) = (resolved.next().flatten(), resolved.next().flatten());
            }
        }
    }

    fn target(&self, from: usize, id: &str) -> Result<Target, (String, String)> {
        let me = &self.steps[from].id;
        let Some(step) = self.steps.iter().position(|step| step.id == id) else {
            let close = nearest(id, self.steps.iter().map(|step| step.id.as_str()));
            let hint = close.map_or_else(String::new, |close| format!("Did you mean \"{close}\"?"));
            return Err((format!("step \"{me}\" branches to the unknown step \"{id}\""), hint));
        };
        let (here, there) = (&self.places[from].block, &self.places[step].block);
        let reachable = here.chain.starts_with(&there.chain) && there.chain.len() >= here.foreign;
        if !reachable {
            return Err((
                format!("step \"{me}\" cannot branch to step \"{id}\""),
                "A branch goes to a step beside it or beside one of the steps around it, within its own lane.".into(),
            ));
        }
        let passed = |other: usize| {
            let block = &self.places[other].block.chain;
            here.chain.starts_with(block) && block.len() >= there.chain.len()
        };
        let skipped = (from + 1..step).filter(|other| passed(*other)).collect();
        Ok(Target { step, pc: self.places[step].pc, frames: there.frames, skipped })
    }
}

/// What a step does. A part that could not be parsed has left a problem behind, and the program will not be used: what
/// stands in its place does not matter.
fn action(def: &StepDef, parts: &mut Parts<'_>) -> Action {
    try_action(def, parts).unwrap_or(Action::Sequence)
}

fn try_action(def: &StepDef, parts: &mut Parts<'_>) -> Option<Action> {
    Some(match def.kind() {
        StepKind::Sql => {
            let sql = def.text("sql");
            if sql.trim().is_empty() {
                parts.wrong("sql", &format!("sql of {} is empty", parts.place), "");
                return None;
            }
            Action::Sql(parts.parsed(SqlTemplate::parse(sql), "sql", sql)?)
        }
        StepKind::Call => {
            let args = parts.json(def.get("args"), "args")?;
            Action::Call { function: def.text("function").to_owned(), args }
        }
        StepKind::Publish => {
            let topic = parts.template(def.text("topic"), "topic");
            let payload = parts.json(def.get("payload"), "payload");
            Action::Publish { topic: topic?, payload: payload? }
        }
        StepKind::Notify => {
            let channel = parts.template(def.text("channel"), "channel");
            let payload = parts.json(def.get("payload"), "payload");
            Action::Notify { channel: channel?, payload: payload? }
        }
        StepKind::Set => variables::set(def, parts)?,
        StepKind::StoreState => {
            let kind = parts.template(def.text("kind"), "kind");
            let entity = parts.template(def.text("entity"), "entity");
            let state = parts.json(def.get("state"), "state");
            Action::StoreState { kind: kind?, entity: entity?, state: state? }
        }
        StepKind::Run => {
            let args = parts.json(def.get("args"), "args")?;
            Action::Run { automation: def.text("automation").to_owned(), args }
        }
        StepKind::Delay => Action::Delay(delay(def, parts)?),
        StepKind::WaitUntil => Action::WaitUntil(parts.condition(def.get("until"), "until")?),
        StepKind::WaitForEvent => {
            let text = def.text("topic");
            let topic = parts.template(text, "topic")?;
            if text.trim().is_empty() {
                parts.wrong(
                    "topic",
                    &format!("topic of {} is empty", parts.place),
                    "Wait for \"#\" to take any event.",
                );
                return None;
            }
            if topic.is_constant() {
                parts.parsed(topic::validate(text), "topic", text)?;
            }
            let filter = parts.condition(def.get("filter"), "filter");
            let lookback = match def.get("lookback") {
                Some(given) => Some(parts.duration(given, "lookback")?),
                None => None,
            };
            Action::WaitForEvent { topic, filter, lookback }
        }
        StepKind::WaitSignal => {
            let signal = parts.template(def.text("signal"), "signal")?;
            if def.text("signal").trim().is_empty() {
                parts.wrong("signal", &format!("signal of {} is empty", parts.place), "");
            }
            for (field, words) in [("signal", "the name"), ("key", "the key")] {
                if def.text(field).len() > MAX_SIGNAL && !def.text(field).contains("{{") {
                    parts.wrong(field, &format!("{words} of a signal has at most {MAX_SIGNAL} bytes"), "");
                }
            }
            let key = match def.get("key") {
                Some(_) => Some(parts.template(def.text("key"), "key")?),
                None => None,
            };
            Action::WaitSignal { signal, key }
        }
        StepKind::Branch => {
            let condition = parts.condition(def.get("if"), "if")?;
            Action::Branch { condition, yes: None, no: None }
        }
        StepKind::Choose => {
            let whens = def.whens();
            let parsed: Vec<Condition> = whens
                .iter()
                .enumerate()
                .filter_map(|(i, (when, _))| parts.condition(Some(when), &format!("whens[{i}].when")))
                .collect();
            Action::Choose(parsed)
        }
        StepKind::RepeatCount => {
            let given = def.get("count")?;
            if given.is_number() && given.as_u64().is_none_or(|rounds| rounds > u64::from(MAX_ROUNDS)) {
                let message = format!("count of {} is {given}, not a whole number from 0 to {MAX_ROUNDS}", parts.place);
                parts.wrong("count", &message, "");
            }
            Action::Repeat(Repeat::Count(parts.expression(Some(given), "count")?))
        }
        StepKind::RepeatWhile => Action::Repeat(Repeat::While(parts.condition(def.get("while"), "while")?)),
        StepKind::RepeatUntil => Action::Repeat(Repeat::Until(parts.condition(def.get("until"), "until")?)),
        StepKind::ForEach => Action::Repeat(Repeat::Each(parts.expression(def.get("in"), "in")?)),
        StepKind::Bulk => {
            let text = def.text("query");
            if text.trim().is_empty() {
                parts.wrong("query", &format!("query of {} is empty", parts.place), "");
                return None;
            }
            if def.steps("steps").is_empty() {
                parts.wrong("steps", &format!("{} has no steps", parts.place), "");
            }
            let query = parts.parsed(SqlTemplate::parse(text), "query", text)?;
            let rate = match def.get("rate") {
                None => None,
                Some(given) => match given.as_f64().filter(|rate| bulk::is_rate(*rate)) {
                    Some(rate) => Some(rate),
                    None => {
                        let message = format!("invalid rate {given} of {}", parts.place);
                        parts.wrong("rate", &message, bulk::RATE_HINT);
                        return None;
                    }
                },
            };
            Action::Bulk { query, rate, body: 0 }
        }
        // see `step`
        StepKind::Webhook => return None,
        StepKind::Parallel => {
            if def.steps("lanes").is_empty() {
                parts.wrong("lanes", &format!("{} has no lanes", parts.place), "");
            }
            Action::Parallel
        }
        StepKind::Sequence => Action::Sequence,
        StepKind::Require => Action::Require { condition: parts.condition(def.get("if"), "if")?, end: 0 },
        StepKind::Stop => {
            let status = match def.get("status").map(|_| def.text("status")) {
                None | Some("completed") => StopStatus::Completed,
                Some("failed") => StopStatus::Failed,
                Some("cancelled") => StopStatus::Cancelled,
                Some(other) => {
                    let message = format!("unknown status \"{other}\" of {}", parts.place);
                    parts.wrong("status", &message, "Use completed, failed or cancelled.");
                    return None;
                }
            };
            let message = match def.get("message") {
                Some(_) => Some(parts.template(def.text("message"), "message")?),
                None => None,
            };
            Action::Stop { status, message }
        }
    })
}

fn delay(def: &StepDef, parts: &mut Parts<'_>) -> Option<Delay> {
    if let Some(until) = def.get("until") {
        let text = shown(until);
        return match (Timestamp::parse(text.trim()), Expr::parse(&text)) {
            (Some(_), _) => parts.template(&text, "until"),
            (None, Ok(expr)) if !expr.reads_something() => {
                let message = format!("invalid until \"{text}\" of {}", parts.place);
                parts.wrong("until", &message, "Give a timestamp such as '2030-01-01 08:00+00', or an expression.");
                None
            }
            (None, _) => computed(&text, "until", parts).filter(|template| may_be_a_time(template, parts)),
        }
        .map(Delay::Until);
    }
    let given = def.get("for")?;
    match duration_text(given) {
        Some(text) if text.contains("{{") => parts.template(&text, "for").map(Delay::Computed),
        // what begins with a name is computed
        Some(text) if text.trim_start().starts_with(|c: char| c.is_alphabetic() && c != 'P') => {
            match Expr::parse(&text) {
                // a lone word such as "infinity" was meant as a duration
                Ok(expr) if !expr.reads_something() => parts.length(given, "for").map(Delay::For),
                _ => computed(&text, "for", parts).map(Delay::Computed),
            }
        }
        _ => parts.length(given, "for").map(Delay::For),
    }
}

/// Is it something that is only known when the run gets there, or a point in time already?
fn may_be_a_time(template: &Template, parts: &mut Parts<'_>) -> bool {
    let scope = FixedScope::new(Value::Null, Timestamp(0));
    if template.expressions().any(|(expr, _)| !expr.is_constant()) {
        return true;
    }
    match template.eval(&scope, &mut Budget::default()) {
        Ok(value) if value.as_time().is_none() => {
            let message = format!("until of {} is {}, not a point in time", parts.place, value.to_json());
            parts.wrong("until", &message, "Give a timestamp such as '2030-01-01 08:00+00', or an expression.");
            false
        }
        // what cannot be evaluated is told by whoever checks expressions
        _ => true,
    }
}

/// A text with `{{ }}` inside, or an expression.
fn computed(text: &str, field: &str, parts: &mut Parts<'_>) -> Option<Template> {
    if text.contains("{{") {
        return parts.template(text, field);
    }
    parts.parsed(Template::expression(text), field, text)
}
