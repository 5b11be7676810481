//! Replays the fuzzer's corpus, and small changes of every fixture, through the fuzz targets.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::{Path, PathBuf};

type Target = (&'static str, fn(&str));

const TARGETS: [Target; 5] = [
    ("parse", targets::parse),
    ("eval", targets::eval),
    ("filter", targets::filter),
    ("cron", targets::cron),
    ("template", targets::template),
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn the_kept_corpus_still_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, target) in TARGETS {
        let kept = files(&root.join("fuzz/corpus").join(name));
        assert!(!kept.is_empty(), "there is no corpus for {name}");
        for path in kept {
            target(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
        }
    }
}

/// A character dropped, doubled or replaced, at places that a counter picks.
fn mutations(text: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = text.chars().collect();
    let strange = ['(', ')', '{', '}', '\'', '"', '.', '?', '|', '-', '\0', '\u{200b}', '9', ' '];
    (0..3_usize).filter_map(move |i| {
        let at = (i * 7 + chars.len() / 2) % chars.len().max(1);
        let mut changed = chars.clone();
        match i % 3 {
            0 if !changed.is_empty() => _ = changed.remove(at),
            1 => changed.insert(at.min(changed.len()), strange[(i + chars.len()) % strange.len()]),
            _ => *changed.get_mut(at)? = strange[(i * 5 + chars.len()) % strange.len()],
        }
        Some(changed.into_iter().collect())
    })
}

#[test]
fn slightly_wrong_fixtures_panic_nowhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for path in files(&root).into_iter().filter(|path| path.extension().is_some_and(|e| e == "txt")) {
        let text = std::fs::read_to_string(path).unwrap();
        for input in text.lines().filter_map(|line| line.strip_prefix("> ")).filter(|input| input.len() < 300) {
            for changed in mutations(input) {
                let with_scope = format!("{changed}\n\n{{\"new\": {{\"id\": 1, \"status\": \"paid\"}}}}");
                TARGETS.iter().for_each(|(_, target)| target(&with_scope));
            }
        }
    }
}
