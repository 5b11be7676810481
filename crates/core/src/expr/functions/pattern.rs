//! Regular expressions whose cost is known before they run.
//!
//! A search takes at worst as many visits of states of the compiled pattern as the product of its size and the length
//! of the text. While that product is small it is charged and the regex crate does the search. A longer search goes
//! through a DFA that is built on the way within a fixed memory: its time is linear in the text plus the states that
//! were built, both of which are charged, and a pattern that needs more memory is refused instead of falling back to
//! the slow way.

use super::Context;
use crate::expr::ExprErrorKind;
use crate::expr::ops::Fault;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{NFA, State, WhichCaptures};
use regex_automata::{Anchored, Input, MatchError, MatchErrorKind, MatchKind};
use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// A pattern compiles to at most this many bytes; larger ones are refused.
const MAX_SIZE: usize = 256 * 1024;
/// Visits of states that one step pays for.
const VISITS_PER_STEP: usize = 64;
/// A search that may cost more steps than this goes through the DFA.
const DIRECT_STEPS: usize = 4_000;
/// Bytes of a DFA that one step pays for.
const BUILT_PER_STEP: usize = 32;
/// Bytes of a text that one step pays for where every byte is looked at once.
const BYTES_PER_STEP: usize = 64;
/// Compiled patterns that one thread keeps; most are constants of some filter.
const KEPT: usize = 16;

/// A compiled pattern; with it goes the memory that matching needs, which a copy would have to make anew.
struct Pattern {
    text: String,
    /// How many states and transitions a search may visit for each byte of the text.
    size: usize,
    direct: regex::Regex,
    linear: OnceCell<Option<Linear>>,
}

/// The same pattern for long texts.
struct Linear {
    forward: DFA,
    reverse: DFA,
    groups: PikeVM,
}

thread_local! {
    /// The pattern that was used last comes last.
    static PATTERNS: RefCell<Vec<Rc<Pattern>>> = const { RefCell::new(Vec::new()) };
}

/// Whether the pattern is found in the text.
pub fn is_match(pattern: &str, text: &str, context: &mut Context<'_>) -> Result<bool, Fault> {
    let pattern = compiled(pattern, context)?;
    if !pattern.is_long(text) {
        context.steps(pattern.direct_steps(text.len()))?;
        return Ok(pattern.direct.is_match(text));
    }
    match pattern.linear(context)?.find_end(text, true, context)? {
        Some(end) => Ok(end.is_some()),
        None => {
            context.steps(pattern.direct_steps(text.len()))?;
            Ok(pattern.direct.is_match(text))
        }
    }
}

/// The place of the first group, or of the whole match if the pattern has no group or the group took no part.
pub fn extract(pattern: &str, text: &str, context: &mut Context<'_>) -> Result<Option<Range<usize>>, Fault> {
    let pattern = compiled(pattern, context)?;
    if pattern.is_long(text) {
        let linear = pattern.linear(context)?;
        match linear.find_end(text, false, context)? {
            Some(None) => return Ok(None),
            Some(Some(end)) => {
                if let Some(start) = linear.find_start(text, end, context)? {
                    context.steps(pattern.direct_steps(end - start))?;
                    return Ok(linear.first_group(text, start..end));
                }
            }
            None => {}
        }
    }
    context.steps(pattern.direct_steps(text.len()))?;
    let found = pattern.direct.captures(text).and_then(|groups| groups.get(1).or_else(|| groups.get(0)));
    Ok(found.map(|group| group.range()))
}

/// The compiled pattern. Compiling costs the same whether or not it was done before: an expression that fits its budget
/// once must always fit.
fn compiled(pattern: &str, context: &mut Context<'_>) -> Result<Rc<Pattern>, Fault> {
    context.steps(100 + pattern.len() * 10)?;
    let known = PATTERNS.with_borrow_mut(|patterns| {
        let at = patterns.iter().rposition(|known| known.text == pattern)?;
        let found = patterns.remove(at);
        patterns.push(Rc::clone(&found));
        Some(found)
    });
    let found = match known {
        Some(found) => found,
        None => {
            let made = Rc::new(Pattern::compile(pattern)?);
            PATTERNS.with_borrow_mut(|patterns| {
                if patterns.len() >= KEPT {
                    patterns.remove(0);
                }
                patterns.push(Rc::clone(&made));
            });
            made
        }
    };
    context.steps(found.size / 2)?;
    Ok(found)
}

fn invalid(reason: &str) -> Fault {
    Fault::new(ExprErrorKind::InvalidPattern, format!("invalid regular expression: {reason}"))
}

impl Pattern {
    fn compile(pattern: &str) -> Result<Pattern, Fault> {
        // A counted repetition can make a short pattern large. The regex crate has the messages for patterns that do
        // not parse.
        let built = regex::RegexBuilder::new(pattern).size_limit(MAX_SIZE).dfa_size_limit(MAX_SIZE).build();
        let direct = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => invalid("it is too large"),
            other => invalid(other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")),
        })?;
        let nfa = nfa(pattern, false, WhichCaptures::All).ok_or_else(|| invalid("it is too large"))?;
        Ok(Pattern { text: pattern.to_owned(), size: size_of(&nfa), direct, linear: OnceCell::new() })
    }

    fn direct_steps(&self, length: usize) -> usize {
        self.size.saturating_mul(length + 1) / VISITS_PER_STEP
    }

    fn is_long(&self, text: &str) -> bool {
        self.direct_steps(text.len()) > DIRECT_STEPS
    }

    /// The pattern for a long text; making it costs as much as compiling did.
    fn linear(&self, context: &mut Context<'_>) -> Result<&Linear, Fault> {
        context.steps(self.size / 2)?;
        self.linear.get_or_init(|| Linear::compile(&self.text)).as_ref().ok_or_else(|| invalid("it is too large"))
    }
}

impl Linear {
    fn compile(pattern: &str) -> Option<Linear> {
        let forward = nfa(pattern, false, WhichCaptures::All)?;
        let reverse = nfa(pattern, true, WhichCaptures::None)?;
        let config = DFA::config()
            .cache_capacity(MAX_SIZE)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(1))
            .minimum_bytes_per_state(None)
            .unicode_word_boundary(true);
        let dfa = |nfa: NFA, config| DFA::builder().configure(config).build_from_nfa(nfa).ok();
        Some(Linear {
            forward: dfa(forward.clone(), config.clone())?,
            reverse: dfa(reverse, config.match_kind(MatchKind::All))?,
            groups: PikeVM::new_from_nfa(forward).ok()?,
        })
    }

    /// Where the first match ends, or where it is known that there is one; `None` if the DFA cannot tell.
    fn find_end(&self, text: &str, earliest: bool, context: &mut Context<'_>) -> Result<Option<Option<usize>>, Fault> {
        context.steps(text.len() / BYTES_PER_STEP)?;
        let mut cache = self.forward.create_cache();
        let found = self.forward.try_search_fwd(&mut cache, &Input::new(text).earliest(earliest));
        charge_built(&self.forward, &cache, context)?;
        Ok(known(found, text)?.map(|found| found.map(|end| end.offset())))
    }

    /// Where a match begins of which the end is known.
    fn find_start(&self, text: &str, end: usize, context: &mut Context<'_>) -> Result<Option<usize>, Fault> {
        context.steps(end / BYTES_PER_STEP)?;
        let mut cache = self.reverse.create_cache();
        let input = Input::new(text).span(0..end).anchored(Anchored::Yes);
        let found = self.reverse.try_search_rev(&mut cache, &input);
        charge_built(&self.reverse, &cache, context)?;
        Ok(known(found, text)?.flatten().map(|start| start.offset()))
    }

    fn first_group(&self, text: &str, span: Range<usize>) -> Option<Range<usize>> {
        let mut cache = self.groups.create_cache();
        let mut groups = self.groups.create_captures();
        let input = Input::new(text).span(span.clone()).anchored(Anchored::Yes);
        self.groups.captures(&mut cache, input, &mut groups);
        let group = groups.get_group(1).or_else(|| groups.get_group(0));
        Some(group.map_or(span, |group| group.start..group.end))
    }
}

/// Charges the states that a search had to build; the search began with no states, so that it always costs the same.
fn charge_built(dfa: &DFA, cache: &regex_automata::hybrid::dfa::Cache, context: &mut Context<'_>) -> Result<(), Fault> {
    let capacity = dfa.get_config().get_cache_capacity();
    let built = cache.memory_usage() + cache.clear_count().saturating_mul(capacity);
    context.steps(built / BUILT_PER_STEP)
}

/// The result of a DFA; `None` where it cannot follow the pattern, which is so for `\b` beside letters that are not
/// ASCII.
fn known<T>(found: Result<T, MatchError>, text: &str) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.kind() {
            MatchErrorKind::GaveUp { .. } => Err(too_costly(text)),
            _ => Ok(None),
        },
    }
}

fn too_costly(text: &str) -> Fault {
    let message = format!("regular expression is too costly for a text of {} bytes", text.len());
    Fault::new(ExprErrorKind::BudgetExceeded, message)
        .with_hint("Use smaller counts in {}, or look at a part of the text only, as in left(text, 1000).")
}

fn nfa(pattern: &str, reverse: bool, captures: WhichCaptures) -> Option<NFA> {
    let config = NFA::config().nfa_size_limit(Some(MAX_SIZE)).reverse(reverse).which_captures(captures);
    NFA::compiler().configure(config).build(pattern).ok()
}

/// States and transitions: as many as the slowest search visits for one byte.
fn size_of(nfa: &NFA) -> usize {
    let of_state = |state: &State| match state {
        State::Sparse(sparse) => 1 + sparse.transitions.len(),
        State::Union { alternates } => 1 + alternates.len(),
        State::BinaryUnion { .. } => 3,
        State::Dense(_) => 2,
        State::ByteRange { .. } | State::Look { .. } | State::Capture { .. } | State::Fail | State::Match { .. } => 1,
    };
    nfa.states().iter().map(of_state).sum()
}
