//! Compiled versions, kept for the life of the process: a version never changes.
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;

use automation_core::definition::Document;
use automation_core::ids::VersionId;
use automation_core::program::{Program, compile};

use crate::pg::server_text;
use crate::pg::statement::Statement;
use crate::store::automations;

/// Most versions that a process keeps.
const CAPACITY: usize = 1000;

/// A version ready to run.
pub struct Version {
    pub program: Program,
    pub search_path: CString,
    /// The prepared statements of each step, made when the step first runs with values of their types.
    pub statements: Vec<RefCell<Vec<Rc<Statement>>>>,
}

thread_local!(static VERSIONS: RefCell<HashMap<VersionId, Result<Rc<Version>, String>>> = RefCell::new(HashMap::new()));

/// Makes sure that these versions are in the cache.
pub fn load(ids: impl Iterator<Item = VersionId>) {
    let mut missing: Vec<VersionId> = VERSIONS.with(|versions| {
        let versions = versions.borrow();
        ids.filter(|id| !versions.contains_key(id)).collect()
    });
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return;
    }
    let stored = automations::versions(&missing);
    VERSIONS.with(|versions| {
        let mut versions = versions.borrow_mut();
        if versions.len() + stored.len() > CAPACITY {
            versions.clear();
        }
        for version in stored {
            let compiled = compile_stored(&version.document).map(|program| {
                let statements = program.steps.iter().map(|_| RefCell::default()).collect();
                let search_path = server_text::c_string(&version.search_path).unwrap_or_default();
                Rc::new(Version { program, search_path, statements })
            });
            versions.insert(version.id, compiled);
        }
    });
}

/// A version; an error unless `load` was called for it and found it.
pub fn get(id: VersionId) -> Result<Rc<Version>, String> {
    VERSIONS.with(|versions| {
        versions.borrow().get(&id).cloned().unwrap_or_else(|| Err(format!("version {id} does not exist")))
    })
}

/// Compiles a version as it is stored.
pub fn compile_stored(document: &str) -> Result<Program, String> {
    let document: Document = serde_json::from_str(document).map_err(|error| error.to_string())?;
    compile(&document).map_err(|problems| {
        problems.iter().map(|p| format!("{}: {}", p.path, p.error.message)).collect::<Vec<_>>().join("; ")
    })
}
