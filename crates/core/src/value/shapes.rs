//! The shapes of objects read lately.
//!
//! The rows of a table all have the same columns in the same order, so reading one would otherwise spend most of its
//! time on names that were just freed. A small table per thread keeps the shapes seen last; a shape that falls out is
//! merely made again.

use super::object::Shape;
use std::cell::RefCell;
use std::sync::Arc;

/// Sets, by first key, and how many shapes each keeps.
const SETS: usize = 64;
const WAYS: usize = 4;
/// Wider objects, and longer keys, are not kept: a document can have any key, a table only so many columns.
const WIDEST: usize = 256;
const LONGEST_KEY: usize = 63; // Postgres truncates names there

/// Shapes by their first key; the last one used comes first.
#[derive(Default)]
pub struct Shapes {
    sets: Vec<Vec<Arc<Shape>>>,
}

thread_local! {
    static RECENT: RefCell<Shapes> = RefCell::default();
}

/// Runs a reader with this thread's shapes.
pub fn with_recent<T>(run: impl FnOnce(&mut Shapes) -> T) -> T {
    RECENT.with(|recent| match recent.try_borrow_mut() {
        Ok(mut shapes) => run(&mut shapes),
        Err(_) => run(&mut Shapes::default()),
    })
}

impl Shapes {
    /// A shape that begins with these keys; `expected` is tried first.
    #[inline]
    pub fn predict(&self, before: &[Arc<str>], key: &str) -> Option<Arc<Shape>> {
        let set = self.sets.get(slot(before.first().map_or(key, |first| first)))?;
        let fits = |shape: &&Arc<Shape>| {
            let keys = shape.keys();
            keys.len() > before.len() && *keys[before.len()] == *key && keys[..before.len()] == *before
        };
        set.iter().find(fits).cloned()
    }

    /// Remembers a shape.
    pub fn keep(&mut self, shape: &Arc<Shape>) {
        let keys = shape.keys();
        let Some(first) = keys.first() else { return };
        if keys.len() > WIDEST || keys.iter().any(|key| key.len() > LONGEST_KEY || !is_written_as_is(key)) {
            return;
        }
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, Vec::new);
        }
        let set = &mut self.sets[slot(first)];
        set.truncate(WAYS - 1);
        set.insert(0, Arc::clone(shape));
    }
}

/// Whether a key stands in JSON text as it is. One that does not must not be looked for there: `x\` would be found at
/// the beginning of `"x\"y"`.
fn is_written_as_is(key: &str) -> bool {
    !key.bytes().any(|b| matches!(b, b'"' | b'\\' | 0..=0x1f))
}

/// FNV-1a; a clash only costs an allocation.
fn slot(key: &str) -> usize {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let hash = key.bytes().fold(start, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)) as usize % SETS
}
