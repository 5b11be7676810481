//! An object that keeps the order of its keys and stays quick when it is large.
//!
//! The keys are apart from the values, so that all rows of a table share one list of keys.

use super::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Above this many keys a lookup goes through a sorted index; below, a scan is quicker.
const SCAN_LIMIT: usize = 24;

/// The keys of an object: all different, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Shape {
    keys: Vec<Arc<str>>,
    /// Positions by key; empty while a scan is quicker.
    sorted: Vec<u32>,
}

impl Shape {
    /// Takes keys that are known to differ.
    pub(super) fn of_distinct(keys: Vec<Arc<str>>) -> Shape {
        let mut sorted: Vec<u32> = Vec::new();
        if keys.len() > SCAN_LIMIT {
            sorted = (0..keys.len() as u32).collect();
            sorted.sort_unstable_by(|a, b| keys[*a as usize].cmp(&keys[*b as usize]));
        }
        Shape { keys, sorted }
    }

    pub(super) fn keys(&self) -> &[Arc<str>] {
        &self.keys
    }

    #[inline]
    fn position(&self, key: &str) -> Option<usize> {
        if self.sorted.is_empty() {
            return self.keys.iter().position(|known| **known == *key);
        }
        let at = self.sorted.binary_search_by(|i| (*self.keys[*i as usize]).cmp(key)).ok()?;
        Some(self.sorted[at] as usize)
    }
}

/// Keys and values in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Object {
    shape: Arc<Shape>,
    values: Vec<Value>,
}

impl Object {
    /// Takes the entries; of equal keys the last value wins and the first position stays.
    pub fn new(entries: Vec<(Arc<str>, Value)>) -> Object {
        let mut keys: Vec<Arc<str>> = Vec::with_capacity(entries.len());
        let mut values = Vec::with_capacity(entries.len());
        let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
        let many = entries.len() > SCAN_LIMIT;
        for (key, value) in entries {
            let known = if many { seen.get(&key).copied() } else { keys.iter().position(|k| *k == key) };
            match known {
                Some(at) => values[at] = value,
                None => {
                    if many {
                        seen.insert(Arc::clone(&key), keys.len());
                    }
                    keys.push(key);
                    values.push(value);
                }
            }
        }
        Object { shape: Arc::new(Shape::of_distinct(keys)), values }
    }

    /// Takes values for the keys of a shape, one for each.
    pub(super) fn with_shape(shape: Arc<Shape>, values: Vec<Value>) -> Object {
        Object { shape, values }
    }

    pub(super) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(self.shape.position(key)?)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Value)> {
        self.shape.keys.iter().zip(&self.values)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        if Arc::ptr_eq(&self.shape, &other.shape) {
            return self.values == other.values;
        }
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
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
