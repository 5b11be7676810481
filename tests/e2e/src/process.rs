//! Operating-system processes: running the server's programs, and ending processes.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The signals that a test may send to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Hup,
    Int,
    Kill,
    Quit,
    Stop,
    Cont,
    Term,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Hup => "HUP",
            Signal::Int => "INT",
            Signal::Kill => "KILL",
            Signal::Quit => "QUIT",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
            Signal::Term => "TERM",
        }
    }
}

/// Sends a signal. A process that is already gone is no error: tests race with the server.
pub fn kill(pid: i32, signal: Signal) {
    assert!(pid > 1, "{pid} is no process of a test");
    Command::new("kill").arg(format!("-{}", signal.name())).arg(pid.to_string()).output().expect("kill runs");
}

/// `kill -9` of many processes by one call.
pub(crate) fn kill_all(processes: &[i32]) {
    assert!(processes.iter().all(|pid| *pid > 1), "{processes:?} are no processes of a test");
    Command::new("kill").arg("-KILL").args(processes.iter().map(i32::to_string)).output().expect("kill runs");
}

/// Whether the process runs. A zombie does not.
pub fn is_alive(pid: i32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z')
}

/// Whether the process is in the table of processes, be it as a zombie.
pub(crate) fn exists(pid: i32) -> bool {
    state_and_parent(pid).is_some()
}

/// The processes whose parent is `pid`.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc is mounted");
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|child| state_and_parent(*child).is_some_and(|(_, parent)| parent == pid))
        .collect()
}

fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "pid (name) state parent ...": the name may itself hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id runs");
    id.stdout.trim_ascii() == b"0"
}

/// A server program, as the user the server runs as.
pub(crate) fn server_command(program: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    // The server's user may not be allowed to enter the checkout.
    command.current_dir("/").env_remove("PGDATA").env("LC_ALL", "C");
    // pgrx would put the trace into the DETAIL of errors.
    command.env_remove("RUST_BACKTRACE").env_remove("RUST_LIB_BACKTRACE");
    command
}

/// Runs a server program to its end and returns its output, or its error.
pub(crate) fn run_server_program<I, A>(program: &Path, arguments: I) -> Result<String, String>
where
    I: IntoIterator<Item = A>,
    A: AsRef<OsStr>,
{
    let output = server_command(program).args(arguments).output().map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("{}: {printed}{}", program.display(), String::from_utf8_lossy(&output.stderr)))
    }
}
