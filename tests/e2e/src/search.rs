//! Looks for a text in everything that the engine keeps, to show that it is nowhere.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::cluster::Cluster;
use crate::database::Database;

/// A text as it may stand somewhere: in clear, in base64 wherever it begins there, in hexadecimal, as bytea is shown.
pub fn spellings(text: &str) -> Vec<String> {
    let base64 = (0..3_usize).map(|before| {
        let padded = format!("{}{text}", &"---"[..before]);
        let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        STANDARD_NO_PAD.encode(padded)[from..to].to_owned()
    });
    let hex = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    base64.chain([text.to_owned(), hex]).collect()
}

impl Database<'_> {
    /// The tables and views of the engine in which a row shows a text.
    #[track_caller]
    pub fn relations_with(&self, text: &str) -> Vec<String> {
        let relations = self.column(
            "SELECT c.oid::regclass::text FROM pg_class AS c
              WHERE c.relnamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace)
                AND c.relkind IN ('r', 'v', 'm') ORDER BY 1",
        );
        assert!(relations.len() > 50, "only {} tables and views", relations.len());
        let wanted: Vec<String> = spellings(text).iter().map(|one| format!("strpos(r::text, '{one}') > 0")).collect();
        let condition = wanted.join(" OR ");
        let shows =
            |relation: &String| self.boolean(&format!("SELECT EXISTS (SELECT FROM {relation} AS r WHERE {condition})"));
        relations.into_iter().filter(shows).collect()
    }
}

impl Cluster {
    /// The files of the server, its log and its write-ahead log among them, that hold a text.
    pub fn files_with(&self, text: &str) -> Vec<PathBuf> {
        let wanted: Vec<Vec<u8>> = spellings(text).into_iter().map(String::into_bytes).collect();
        let mut found = Vec::new();
        search(&self.data(), &wanted, &mut found);
        if spellings(text).iter().any(|one| self.log().contains(one.as_str())) {
            found.push(PathBuf::from("the log"));
        }
        found
    }
}

fn search(directory: &Path, wanted: &[Vec<u8>], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => search(&path, wanted, found),
            Ok(kind) if kind.is_file() => {
                // A file that the server has just removed holds nothing.
                let bytes = fs::read(&path).unwrap_or_default();
                if wanted.iter().any(|text| holds(&bytes, text)) {
                    found.push(path);
                }
            }
            _ => {}
        }
    }
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == text[0]) {
        if rest[at..].starts_with(text) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}
