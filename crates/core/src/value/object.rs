//! An object that keeps the order of its keys and stays quick when it is large.

use super::Value;
use std::sync::Arc;

/// Above this many keys a lookup goes through a sorted index; below, a scan is quicker.
const SCAN_LIMIT: usize = 24;

/// Keys and values in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Object {
    entries: Vec<(Arc<str>, Value)>,
    /// Positions in `entries` by key; empty while a scan is quicker.
    sorted: Vec<u32>,
}

impl Object {
    /// Takes the entries; of equal keys the last value wins and the first position stays.
    pub fn new(entries: Vec<(Arc<str>, Value)>) -> Object {
        if entries.len() <= SCAN_LIMIT {
            return Object { entries: distinct_by_scan(entries), sorted: Vec::new() };
        }
        let entries = distinct_by_sort(entries);
        let mut sorted: Vec<u32> = (0..entries.len() as u32).collect();
        sorted.sort_unstable_by(|a, b| entries[*a as usize].0.cmp(&entries[*b as usize].0));
        Object { entries, sorted }
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        if self.sorted.is_empty() {
            return self.entries.iter().find(|(k, _)| &**k == key).map(|(_, v)| v);
        }
        let at = self.sorted.binary_search_by(|i| (*self.entries[*i as usize].0).cmp(key)).ok()?;
        Some(&self.entries[self.sorted[at] as usize].1)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Value)> {
        self.entries.iter().map(|(k, v)| (k, v))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

fn distinct_by_scan(entries: Vec<(Arc<str>, Value)>) -> Vec<(Arc<str>, Value)> {
    // compared by length and bytes; the keys of one row hardly ever share both
    let clash = (1..entries.len()).any(|i| entries[..i].iter().any(|(k, _)| *k == entries[i].0));
    if !clash {
        return entries;
    }
    let mut out: Vec<(Arc<str>, Value)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match out.iter_mut().find(|(k, _)| *k == key) {
            Some(slot) => slot.1 = value,
            None => out.push((key, value)),
        }
    }
    out
}

fn distinct_by_sort(entries: Vec<(Arc<str>, Value)>) -> Vec<(Arc<str>, Value)> {
    let mut position = std::collections::HashMap::with_capacity(entries.len());
    let mut out: Vec<(Arc<str>, Value)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match position.get(&key) {
            Some(&at) => {
                let slot: &mut (Arc<str>, Value) = &mut out[at];
                slot.1 = value;
            }
            None => {
                position.insert(Arc::clone(&key), out.len());
                out.push((key, value));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_wins_in_small_and_large_objects() {
        for size in [3_i64, 100] {
            let mut entries: Vec<(Arc<str>, Value)> =
                (0..size).map(|i| (Arc::from(format!("k{i}")), Value::int(i))).collect();
            entries.push((Arc::from("k1"), Value::int(-1)));
            let object = Object::new(entries);
            assert_eq!(object.len() as i64, size);
            assert_eq!(object.get("k1"), Some(&Value::int(-1)));
            assert_eq!(object.get("nope"), None);
        }
    }
}
