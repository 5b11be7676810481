//! One copy of each key in use.
//!
//! The rows of a table all have the same columns, so reading one would otherwise spend most of its time allocating
//! names that were just freed. A small table per thread keeps the keys seen last; what falls out is merely allocated
//! again.

use std::cell::RefCell;
use std::sync::Arc;

const SLOTS: usize = 1024;
const LONGEST: usize = 63; // Postgres truncates names there

thread_local! {
    static SEEN: RefCell<Vec<Option<Arc<str>>>> = const { RefCell::new(Vec::new()) };
}

/// A key, shared with the last use of the same one.
pub fn shared(key: &str) -> Arc<str> {
    if key.len() > LONGEST {
        return Arc::from(key);
    }
    SEEN.with(|seen| {
        let Ok(mut seen) = seen.try_borrow_mut() else { return Arc::from(key) };
        if seen.is_empty() {
            seen.resize(SLOTS, None);
        }
        match seen.get_mut(slot(key)) {
            Some(Some(known)) if **known == *key => Arc::clone(known),
            Some(place) => Arc::clone(place.insert(Arc::from(key))),
            None => Arc::from(key),
        }
    })
}

/// FNV-1a; a clash only costs an allocation.
fn slot(key: &str) -> usize {
    let hash =
        key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_is_the_same_allocation() {
        assert!(Arc::ptr_eq(&shared("status"), &shared("status")));
        assert_eq!(&*shared("total"), "total");
        let long = "x".repeat(100);
        assert_eq!(&*shared(&long), long);
    }
}
