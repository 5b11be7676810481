//! Reading the fields of a structured condition, each at most once and none unknown.

use super::invalid;
use crate::expr::ExprError;
use crate::suggest::nearest;
use serde_json::Value as Json;

/// The type of a JSON value, with its article.
pub fn name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// The fields of one object that have not been read yet.
pub struct Fields<'a> {
    what: &'static str,
    left: Vec<(&'a str, &'a Json)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Takes an object.
    pub fn new(what: &'static str, document: &'a Json) -> Result<Fields<'a>, ExprError> {
        match document {
            Json::Object(map) => {
                Ok(Fields { what, left: map.iter().map(|(k, v)| (k.as_str(), v)).collect(), known: Vec::new() })
            }
            other => Err(invalid(format!("{what} is {}, not an object", name(other)))),
        }
    }

    /// Takes a field by any of its names.
    pub fn take(&mut self, names: &[&'static str]) -> Option<&'a Json> {
        self.known.extend(names);
        let at = self.left.iter().position(|(key, _)| names.contains(key))?;
        Some(self.left.remove(at).1)
    }

    /// Reads a field by any of its names; an error says which one it was.
    pub fn read<T>(
        &mut self,
        names: &[&'static str],
        read: impl FnOnce(&'a Json) -> Result<T, ExprError>,
    ) -> Result<Option<T>, ExprError> {
        self.known.extend(names);
        let Some(at) = self.left.iter().position(|(key, _)| names.contains(key)) else { return Ok(None) };
        let (key, value) = self.left.remove(at);
        read(value).map(Some).map_err(|e| e.in_member(key))
    }

    /// Accepts a field without using it.
    pub fn ignore(&mut self, name: &'static str) {
        self.take(&[name]);
    }

    /// Refuses fields that were not taken.
    pub fn finish(self) -> Result<(), ExprError> {
        match self.left.first() {
            None => Ok(()),
            Some((key, _)) => Err(self.unknown(key)),
        }
    }

    /// The one field that is left, which must be one of these; `None` if none is left.
    pub fn only_one(mut self, names: &[&'static str]) -> Result<Option<(&'static str, &'a Json)>, ExprError> {
        self.known.extend(names);
        let mut found = None;
        for (key, value) in &self.left {
            let Some(known) = names.iter().find(|name| *name == key) else { return Err(self.unknown(key)) };
            if found.is_some() {
                return Err(invalid(format!("{} has more than one of its forms", self.what))
                    .with_hint("Put them in a list under \"and\" or \"or\".")
                    .at_key(key));
            }
            found = Some((*known, *value));
        }
        Ok(found)
    }

    fn unknown(&self, key: &str) -> ExprError {
        let near = nearest(key, self.known.iter().copied());
        invalid(format!("{} has an unknown field \"{key}\"", self.what)).with_suggestion(near).at_key(key)
    }
}
