//! A server for tests: its own data directory and socket, gone when the test is.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::database::Database;
use crate::process::{self, Signal, is_alive, kill, run_server_program, server_command};

/// The socket's directory is private, so every server can have the same port.
pub(crate) const PORT: u16 = 5432;

/// How to stop a server; the names are those of `pg_ctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    Fast,
    Immediate,
    Smart,
}

/// A server under test. Dropped, it is stopped and its files are removed.
pub struct Cluster {
    home: PathBuf,
    bin: PathBuf,
    watchdog: Child,
}

/// Settings of a server that is not started yet.
pub struct ClusterBuilder {
    preload: bool,
    settings: Vec<(String, String)>,
}

impl ClusterBuilder {
    /// Adds a line of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves the extension out of `shared_preload_libraries`.
    pub fn without_library(mut self) -> Self {
        self.preload = false;
        self
    }

    /// Creates the cluster and starts it.
    pub fn start(self) -> Cluster {
        let cluster = Cluster::new();
        let data = cluster.data();
        let data = data.to_str().expect("a path in UTF-8");
        cluster.run(
            "initdb",
            &["-D", data, "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-A", "trust", "-N", "--no-instructions"],
        );
        append(&cluster.data().join("postgresql.conf"), "include 'e2e.conf'\n");
        cluster.set(&[
            ("listen_addresses", ""),
            ("fsync", "off"),
            ("shared_buffers", "32MB"),
            ("max_worker_processes", "32"),
            ("max_prepared_transactions", "10"),
            ("log_line_prefix", "%m [%p] %b %d "),
        ]);
        if self.preload {
            cluster.set(&[
                ("shared_preload_libraries", "automation_engine"),
                ("automation_engine.allow_superuser_automations", "on"),
            ]);
            // Settings for all servers of a test run, as in AE_SETTINGS="automation_engine.fast_append=off".
            let settings = std::env::var("AE_SETTINGS").unwrap_or_default();
            let settings = settings.split_whitespace().filter_map(|setting| setting.split_once('='));
            settings.for_each(|setting| cluster.set(&[setting]));
        }
        for (name, value) in &self.settings {
            cluster.set(&[(name, value)]);
        }
        cluster.place_socket();
        cluster.start_again();
        cluster
    }
}

impl Cluster {
    /// A server with the extension preloaded and the defaults of the tests (fsync off).
    pub fn start() -> Self {
        Self::build().start()
    }

    /// The same, open for other settings.
    pub fn build() -> ClusterBuilder {
        ClusterBuilder { preload: true, settings: Vec::new() }
    }

    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let bin = server_programs();
        let base = std::env::var_os("AE_E2E_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = base.join(format!("ae-{}-{number}", std::process::id()));
        fs::create_dir(&home).unwrap_or_else(|error| panic!("cannot create {}: {error}", home.display()));
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("a directory of ours");
        if process::is_root() {
            let status = Command::new("chown").arg("postgres:").arg(&home).status().expect("chown runs");
            assert!(status.success(), "there is no user postgres");
        }
        let watchdog = watch(&home);
        Self { home, bin, watchdog }
    }

    /// A new database with the extension in it, dropped at the end of the test.
    pub fn database(&self, name: &str) -> Database<'_> {
        let database = self.empty_database(name);
        database.execute("CREATE EXTENSION automation_engine");
        database
    }

    /// A new database, dropped at the end of the test.
    pub fn empty_database(&self, name: &str) -> Database<'_> {
        self.connect("postgres").execute(&format!("CREATE DATABASE \"{name}\""));
        Database::created(self, name)
    }

    /// A new database of an encoding, dropped at the end of the test.
    pub fn encoded_database(&self, name: &str, encoding: &str) -> Database<'_> {
        self.connect("postgres")
            .execute(&format!("CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"));
        Database::created(self, name)
    }

    /// A database that is there already.
    pub fn connect(&self, name: &str) -> Database<'_> {
        Database::existing(self, name)
    }

    /// Stops the server and says how long that took.
    pub fn stop(&self, how: Shutdown) -> Duration {
        let mode = match how {
            Shutdown::Fast => "fast",
            Shutdown::Immediate => "immediate",
            Shutdown::Smart => "smart",
        };
        let began = Instant::now();
        self.pg_ctl(&["-m", mode, "-w", "-t", "60", "stop"]);
        began.elapsed()
    }

    /// Starts the server after it was stopped or crashed, and waits until it accepts connections.
    pub fn start_again(&self) {
        let log = self.log_path();
        let started = self.try_pg_ctl(&["-l", log.to_str().expect("a path in UTF-8"), "-w", "-t", "60", "start"]);
        if let Err(problem) = started {
            panic!("the server did not start: {problem}\n{}", self.log_tail());
        }
    }

    /// A fast stop and a start.
    pub fn restart(&self) {
        self.stop(Shutdown::Fast);
        self.start_again();
    }

    /// `kill -9` of the postmaster. Returns when none of its processes is left.
    pub fn crash(&self) {
        let postmaster = self.postmaster_pid();
        let mut processes = process::children(postmaster);
        kill(postmaster, Signal::Kill);
        processes.push(postmaster);
        self.wait_until_gone(postmaster, &processes);
    }

    fn wait_until_gone(&self, postmaster: i32, processes: &[i32]) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while processes.iter().any(|pid| is_alive(*pid)) {
            // A child that is deep in a computation does not notice by itself.
            if Instant::now() > deadline {
                processes.iter().for_each(|pid| kill(*pid, Signal::Kill));
            }
            thread::sleep(Duration::from_millis(10));
        }
        // A zombie still counts for the next postmaster's "is another one running?". Where init
        // does not reap, take the file away; no process is left that it could protect.
        while process::exists(postmaster) {
            if Instant::now() > deadline {
                let _ = fs::remove_file(self.data().join("postmaster.pid"));
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// `kill -9` of every process of the server in the same moment, as a power cut does. Returns when none is left.
    pub fn cut_power(&self) {
        let postmaster = self.postmaster_pid();
        // The postmaster is stopped first, so that it neither starts another process nor tells those that are left.
        kill(postmaster, Signal::Stop);
        let mut processes = process::children(postmaster);
        processes.push(postmaster);
        process::kill_all(&processes);
        self.wait_until_gone(postmaster, &processes);
    }

    pub fn postmaster_pid(&self) -> i32 {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        file.lines().next().and_then(|line| line.parse().ok()).expect("the first line is the process id")
    }

    /// Writes settings; they apply at the next reload or start. The last value of a name counts.
    pub fn set(&self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            append(&self.data().join("e2e.conf"), &format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
    }

    /// Writes settings and lets the running server read them.
    pub fn reload(&self, settings: &[(&str, &str)]) {
        self.set(settings);
        self.pg_ctl(&["reload"]);
    }

    /// A streaming standby of this server, started.
    pub fn standby(&self) -> Cluster {
        let standby = Cluster::new();
        let data = standby.data();
        let (data, home) = (data.to_str().expect("a path in UTF-8"), self.home.to_str().expect("a path in UTF-8"));
        let port = PORT.to_string();
        standby.run(
            "pg_basebackup",
            &["-D", data, "-h", home, "-p", &port, "-U", "postgres", "-R", "-N", "-c", "fast", "-X", "stream"],
        );
        standby.place_socket();
        standby.start_again();
        standby
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        self.pg_ctl(&["-w", "-t", "60", "promote"]);
    }

    /// All that the server has logged.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The end of the server's log, for messages of failed tests.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(60)..];
        format!("---- the end of the server's log\n{}\n----", tail.join("\n"))
    }

    /// Keeps the log of a failed test where a person can find it.
    pub(crate) fn keep_log(&self) {
        if let Some(directory) = std::env::var_os("AE_LOG_DIR") {
            let thread = thread::current();
            let test = thread.name().unwrap_or("test").replace("::", "-");
            let _ = fs::copy(self.log_path(), Path::new(&directory).join(format!("e2e-{test}-server.log")));
        }
    }

    /// The directory of the socket.
    pub fn socket_directory(&self) -> &Path {
        &self.home
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Runs a client or server program of this server, such as `pg_dump`, as the server's user.
    #[track_caller]
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        match run_server_program(&self.bin.join(program), arguments) {
            Ok(printed) => printed,
            Err(problem) => panic!("{problem}\n{}", self.log_tail()),
        }
    }

    fn log_path(&self) -> PathBuf {
        self.home.join("log")
    }

    fn place_socket(&self) {
        let home = self.home.to_str().expect("a path in UTF-8");
        self.set(&[("port", &PORT.to_string()), ("unix_socket_directories", home)]);
    }

    #[track_caller]
    fn pg_ctl(&self, arguments: &[&str]) {
        if let Err(problem) = self.try_pg_ctl(arguments) {
            panic!("{problem}\n{}", self.log_tail());
        }
    }

    fn try_pg_ctl(&self, arguments: &[&str]) -> Result<(), String> {
        // Not through a pipe: the server would hold it open.
        let mut command = server_command(&self.bin.join("pg_ctl"));
        command.arg("-s").arg("-D").arg(self.data()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("pg_ctl {} failed", arguments.join(" "))) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            self.keep_log();
        }
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Stops the server and removes its files when our end of the pipe closes: when the cluster is
/// dropped, when the test program ends (a cluster in a static is never dropped), when it is killed.
fn watch(home: &Path) -> Child {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        cat >/dev/null
        pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
        if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; then
            kill -QUIT "$pid"
            for i in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
        fi
        rm -rf "$1""#;
    Command::new("sh")
        .args(["-c", SCRIPT, "sh"])
        .arg(home)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh runs")
}

fn server_programs() -> PathBuf {
    let bin = std::env::var_os("AE_PG_BIN")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.dev/pg-e2e/lib/postgresql/15/bin"));
    // Resolved, because the server must find its files from any directory.
    fs::canonicalize(&bin)
        .unwrap_or_else(|_| panic!("there is no server at {}; make one with: make test LAYERS=e2e", bin.display()))
}

fn append(file: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    file.write_all(text.as_bytes()).expect("a file of ours");
}
