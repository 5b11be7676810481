//! From the document to the program: texts are parsed, steps inside steps become jumps.

use super::parts::{Parts, of_step};
use super::trigger::{limits, trigger};
use super::{Action, Op, Program, Retry, Step, Target};
use crate::definition::{DEFAULT_MAX_STEPS, Document, Problem, StepDef, StepKind};
use crate::expr::Expr;
use crate::steps::{Sequence, TimeLimit, Tries};
use crate::suggest::nearest;
use serde_json::Value as Json;

/// Compiles a document. All problems are returned, not only the first.
pub fn compile(document: &Document) -> Result<Program, Vec<Problem>> {
    let (program, problems) = compile_parts(document);
    if problems.is_empty() { Ok(program) } else { Err(problems) }
}

/// Compiles the parts that can be compiled, and returns the problems of the others.
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
pub(crate) struct Block {
    /// The numbers of the blocks around it and its own, outermost first.
    chain: Vec<usize>,
    /// How many of the outermost blocks are of another thread.
    foreign: usize,
    /// How many frames are open in it.
    frames: usize,
    /// The step that it is inside of, if that is of the same thread.
    within: Option<usize>,
}

/// The place of a compiled step.
struct Place {
    pc: usize,
    block: Block,
    /// The branch's targets as written.
    yes: Option<String>,
    no: Option<String>,
}

/// The steps and instructions of a program while they are made.
pub(crate) struct Compiler {
    pub steps: Vec<Step>,
    places: Vec<Place>,
    pub code: Vec<Op>,
    /// How many blocks there are so far.
    blocks: usize,
    problems: Vec<Problem>,
}

impl Compiler {
    /// A block that is inside of no other block.
    fn outermost(&mut self) -> Block {
        self.blocks += 1;
        Block { chain: vec![self.blocks], ..Block::default() }
    }

    /// A block inside of a step.
    pub fn inside(&mut self, block: &Block, step: usize, frames: usize) -> Block {
        self.blocks += 1;
        let mut chain = block.chain.clone();
        chain.push(self.blocks);
        Block { chain, foreign: block.foreign, frames: block.frames + frames, within: Some(step) }
    }

    /// A lane, where a thread of its own begins.
    pub fn lane(&mut self, block: &Block) -> Block {
        self.blocks += 1;
        let mut chain = block.chain.clone();
        let foreign = chain.len() + 1;
        chain.push(self.blocks);
        Block { chain, foreign, frames: 0, within: None }
    }

    /// Steps one after the other.
    pub fn block(&mut self, defs: &[StepDef], path: &str, block: &Block) {
        let first = self.steps.len();
        for (i, def) in defs.iter().enumerate() {
            self.step(def, &format!("{path}[{i}]"), block);
        }
        let end = self.code.len();
        // The sequence that a `require` ends is the one it stands in.
        for place in first..self.steps.len() {
            if self.places[place].block.chain == block.chain
                && let Action::Require(require) = &mut self.steps[place].action
            {
                require.end = end;
            }
        }
    }

    fn step(&mut self, def: &StepDef, path: &str, block: &Block) {
        let number = self.steps.len();
        let mut parts = of_step(def, path, &mut self.problems);
        let condition = parts.condition(def.get("condition"), "condition");
        let waits = def.kind().form().time_limit == TimeLimit::OfWait;
        let timeout_ms = def.get("timeout").and_then(|given| match parts.duration(given, "timeout")? {
            micros @ 1_000.. if waits || micros <= 2_147_483_647_000 => Some(micros / 1000),
            _ => {
                let most = if waits { "below 10000 years" } else { "below 24 days" };
                let hint = format!("It is at least 1 millisecond and {most}.");
                parts.wrong("timeout", &format!("invalid timeout of {}", parts.place), &hint);
                None
            }
        });
        let retry = def.get("retry").and_then(|given| Retry::read(given, &mut parts));
        let mut tries = Tries { timeout_ms, retry };
        // A step that could not be compiled has left a problem behind, and the program will not be used: the action
        // that stands in its place does not matter.
        let action = def.kind().compile(def, &mut tries, &mut parts).unwrap_or(Action::Sequence(Sequence));
        self.steps.push(Step {
            id: def.id().to_owned(),
            path: path.to_owned(),
            action,
            condition,
            continue_on_error: def.flag("continue_on_error", false),
            timeout_ms: tries.timeout_ms,
            retry: tries.retry,
            continue_on_timeout: def.flag("continue_on_timeout", true),
            enabled: def.flag("enabled", true),
            within: block.within,
            frames: block.frames,
        });
        let target = |field: &str| def.get(field).and_then(Json::as_str).map(str::to_owned);
        self.places.push(Place { pc: self.code.len(), block: block.clone(), yes: target("yes"), no: target("no") });
        def.kind().lay_out(self, def, number, path, block);
    }

    /// The instruction that begins a step with steps inside. Returns its number, for [`Compiler::end`].
    pub fn begin(&mut self, step: usize) -> usize {
        self.code.push(Op::Begin { step, past: 0 });
        self.code.len() - 1
    }

    /// The instruction that ends a step with steps inside.
    pub fn end(&mut self, begin: usize, step: usize) {
        self.code.push(Op::End(step));
        let here = self.code.len();
        if let Op::Begin { past, .. } = &mut self.code[begin] {
            *past = here;
        }
    }

    /// Steps whose variables are their own.
    pub fn local(&mut self, defs: &[StepDef], path: &str, block: &Block) {
        let sets = defs.iter().any(|def| def.kind() == StepKind::Set);
        if sets {
            self.code.push(Op::Open);
        }
        self.block(defs, path, &Block { frames: block.frames + usize::from(sets), ..block.clone() });
        if sets {
            self.code.push(Op::Close);
        }
    }

    /// A step that does its steps again and again.
    pub fn repeat(&mut self, def: &StepDef, number: usize, path: &str, block: &Block) {
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

    /// A block of one step that stands by itself in the document.
    pub fn block_of_one(&mut self, def: &StepDef, path: &str, block: &Block) {
        let first = self.steps.len();
        self.step(def, path, block);
        let end = self.code.len();
        if let Some(step) = self.steps.get_mut(first)
            && let Action::Require(require) = &mut step.action
        {
            require.end = end;
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
            if let Action::Branch(branch) = &mut self.steps[number].action {
                let mut resolved = resolved.into_iter();
                (branch.yes, branch.no) = (resolved.next().flatten(), resolved.next().flatten());
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
