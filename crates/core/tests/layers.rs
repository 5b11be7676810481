//! Does `make test` run every test there is? Asks `tests/run.sh --plan`, which goes through the layers without running them,
//! and cargo, which knows the crates and their test programs.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("the repository")
}

/// What a program prints that is run in the repository.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What all layers run, as the words of each command; the first is the layer.
fn plan() -> Vec<Vec<String>> {
    let plan = printed("bash", &["tests/run.sh", "--plan"]);
    plan.lines().map(|line| line.replacen(": ", " ", 1).split_whitespace().map(str::to_owned).collect()).collect()
}

/// The packages of the workspace.
fn packages() -> Vec<Value> {
    let metadata = printed(env!("CARGO"), &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// The names of the files of a folder that end so, without their ending.
fn names(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder of the repository");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let named = paths.filter(|path| path.extension().is_some_and(|e| e == ending));
    named.filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned())).collect()
}

/// Is there a test in any Rust file below a folder, other packages left out?
fn has_tests(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return !path.join("Cargo.toml").exists() && !path.ends_with("target") && has_tests(&path);
        }
        let rust = path.extension().is_some_and(|ending| ending == "rs");
        let is_test = |line: &str| line.trim() == "#[test]" || line.trim().starts_with("#[pg_test");
        rust && fs::read_to_string(&path).is_ok_and(|text| text.lines().any(is_test))
    })
}

/// Does a command run all tests of a package? The extension itself is tested by pgrx, inside a server.
fn runs_all_of(command: &[String], package: &str) -> bool {
    let words: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
    let own = words.split(|word| *word == "--").next().unwrap_or_default();
    match own {
        ["cargo", "test", options @ ..] => {
            !options.contains(&"--test") && options.windows(2).any(|pair| pair == ["-p", package])
        }
        ["pgrx", "test", ..] => package == "automation_engine",
        _ => false,
    }
}

/// The names that a layer hands to pg_regress.
fn handed_to_pg_regress(plan: &[Vec<String>]) -> BTreeSet<String> {
    let command = plan.iter().find(|words| words[0] == "pg_regress" && words[1] == "regress");
    command.expect("a layer runs it").iter().skip(5).filter(|word| !word.starts_with("--")).cloned().collect()
}

/// Asserts that the files with this ending are those with these names, and none of them is empty.
fn assert_expectations(folder: &str, ending: &str, tests: &BTreeSet<String>) {
    assert_eq!(&names(folder, ending), tests, "{folder}");
    for name in tests {
        let expected = root().join(folder).join(format!("{name}.{ending}"));
        assert!(fs::metadata(&expected).expect("a file").len() > 0, "{} is empty", expected.display());
    }
}

/// Asserts that a script which runs all files of its folder, unless it is given names, is called by a layer without names.
fn assert_run_without_names(script: &str) {
    let command = plan().into_iter().find(|words| words[1] == script).expect("a layer runs it");
    assert_eq!(command.len(), 2, "{command:?}");
}

#[test]
fn every_crate_with_tests_is_run_by_a_layer() {
    let plan = plan();
    let mut forgotten = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let tested = has_tests(manifest.parent().expect("a folder"));
        if tested && !plan.iter().any(|command| runs_all_of(command, name)) {
            forgotten.push(name.to_owned());
        }
    }
    assert_eq!(forgotten, Vec::<String>::new(), "no layer of tests/run.sh runs the tests of these");
}

/// All files below a folder with a name that the condition accepts; hidden folders and built artifacts left out.
fn files(folder: &Path, accepted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_file() && accepted(&name) {
            found.push(path);
        } else if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
            found.extend(files(&path, accepted));
        }
    }
    found
}

#[test]
fn every_package_is_a_member_of_the_workspace_or_has_no_test() {
    let manifests: Vec<PathBuf> =
        packages().iter().filter_map(|package| package["manifest_path"].as_str().map(PathBuf::from)).collect();
    let all = files(&root(), &|name| name == "Cargo.toml");
    assert!(all.len() >= manifests.len(), "{all:?}");
    let outside = all.iter().filter(|manifest| !manifests.contains(manifest));
    let forgotten: Vec<&PathBuf> = outside.filter(|manifest| has_tests(manifest.parent().expect("a folder"))).collect();
    assert_eq!(forgotten, Vec::<&PathBuf>::new(), "no layer can run the tests of these");
}

#[test]
fn every_file_of_tests_is_a_test_program_of_its_crate() {
    let mut forgotten = Vec::new();
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().expect("a path")).with_file_name("tests");
        // The extension's own tests/ folder holds the layers.
        if package["name"] == "automation_engine" || !folder.is_dir() {
            continue;
        }
        let targets = package["targets"].as_array().expect("a list");
        let run: BTreeSet<&str> =
            targets.iter().filter(|target| target["test"] == true).filter_map(|t| t["src_path"].as_str()).collect();
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let program = if path.is_dir() { path.join("main.rs") } else { path };
            let is_program = program.is_file() && program.extension().is_some_and(|ending| ending == "rs");
            if is_program && !run.contains(program.to_str().expect("UTF-8")) {
                forgotten.push(program.display().to_string());
            }
        }
    }
    assert_eq!(forgotten, Vec::<String>::new(), "cargo test does not run these");
}

#[test]
fn every_test_inside_the_server_is_a_module() {
    let text = fs::read_to_string(root().join("pgrx-tests/mod.rs")).expect("the module");
    let modules: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).map(str::to_owned).collect();
    let mut files = names("pgrx-tests", "rs");
    files.remove("mod");
    assert_eq!(files, modules);
}

#[test]
fn every_sql_file_is_run_and_compared_with_an_expectation() {
    let files = names("tests/pg_regress/sql", "sql");
    assert_eq!(handed_to_pg_regress(&plan()), files);
    assert_expectations("tests/pg_regress/expected", "out", &files);
}

/// Isolation specs whose guard no twin can leave out: (name, reason).
const NEED_NO_TWIN: &[(&str, &str)] = &[];

#[test]
fn every_isolation_spec_is_run_and_has_a_broken_twin() {
    assert_run_without_names("tests/isolation/run.sh");
    let specs = names("tests/isolation/specs", "spec");
    assert_expectations("tests/isolation/expected", "digest", &specs);
    let twins: BTreeSet<String> = names("tests/isolation/broken", "spec")
        .iter()
        .map(|name| name.split_once("__").map_or(name.as_str(), |(sound, _)| sound).to_owned())
        .collect();
    let excused: BTreeSet<String> = NEED_NO_TWIN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(&twins | &excused, specs, "a spec without a twin proves nothing");
    assert!(twins.is_disjoint(&excused), "it has a twin and is excused from having one");
}

#[test]
fn every_shell_script_is_linted() {
    let plan = plan();
    let linted = plan.iter().find(|words| words[1] == "shellcheck").expect("a layer runs it");
    let linted: BTreeSet<String> = linted.iter().skip(2).filter(|word| !word.starts_with('-')).cloned().collect();
    let mut scripts = files(&root(), &|name| name.ends_with(".sh"));
    scripts.push(root().join(".ci/run"));
    let scripts = scripts.iter().filter_map(|path| path.strip_prefix(root()).ok()?.to_str().map(str::to_owned));
    assert_eq!(linted, scripts.collect::<BTreeSet<_>>());
}

#[test]
fn every_attack_is_run() {
    assert_run_without_names("tests/attacks/run.sh");
}

#[test]
fn every_layer_is_run_by_default() {
    let script = fs::read_to_string(root().join("tests/run.sh")).expect("the script");
    let mut layers: BTreeSet<&str> =
        script.lines().filter_map(|line| line.strip_prefix("layer_")?.strip_suffix("() {")).collect();
    // Many kills at random; the layer e2e runs the same test with fewer of them.
    assert!(layers.remove("chaos"));
    let default = script.lines().find_map(|line| line.strip_prefix("ALL_LAYERS=\"")?.strip_suffix('"'));
    assert_eq!(default.expect("the list").split(' ').collect::<BTreeSet<_>>(), layers);
}
