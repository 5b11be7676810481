//! One database of a server, asked in SQL. Values come back as the text psql would show.

use std::cell::RefCell;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::cluster::{Cluster, PORT};
use crate::process::{Signal, kill};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// A background process of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    Conductor,
    Courier,
    Executor,
    Launcher,
}

impl Worker {
    pub(crate) fn backend_type(self) -> &'static str {
        match self {
            Worker::Conductor => "automation_engine conductor",
            Worker::Courier => "automation_engine courier",
            Worker::Executor => "automation_engine executor",
            Worker::Launcher => "automation_engine launcher",
        }
    }
}

/// An error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// Empty if the connection failed rather than the statement.
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.sqlstate, self.message)?;
        for (label, text) in [("DETAIL", &self.detail), ("HINT", &self.hint)] {
            if !text.is_empty() {
                write!(f, "\n{label}: {text}")?;
            }
        }
        Ok(())
    }
}

impl From<postgres::Error> for SqlError {
    fn from(error: postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => Self {
                sqlstate: error.code().code().to_owned(),
                message: error.message().to_owned(),
                detail: error.detail().unwrap_or_default().to_owned(),
                hint: error.hint().unwrap_or_default().to_owned(),
            },
            None => {
                Self { sqlstate: String::new(), message: error.to_string(), detail: String::new(), hint: String::new() }
            }
        }
    }
}

/// A database, and a connection to it that is made anew when the server has closed it.
pub struct Database<'c> {
    cluster: &'c Cluster,
    name: String,
    role: String,
    client: RefCell<Option<Client>>,
    drop_at_end: bool,
}

impl<'c> Database<'c> {
    pub(crate) fn existing(cluster: &'c Cluster, name: &str) -> Self {
        Self::new(cluster, name, "postgres", false)
    }

    pub(crate) fn created(cluster: &'c Cluster, name: &str) -> Self {
        Self::new(cluster, name, "postgres", true)
    }

    fn new(cluster: &'c Cluster, name: &str, role: &str, drop_at_end: bool) -> Self {
        let (name, role) = (name.to_owned(), role.to_owned());
        Self { cluster, name, role, client: RefCell::new(None), drop_at_end }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn cluster(&self) -> &'c Cluster {
        self.cluster
    }

    /// Another session, of another role.
    pub fn as_role(&self, role: &str) -> Database<'c> {
        Self::new(self.cluster, &self.name, role, false)
    }

    /// Another session of the same role.
    pub fn another_session(&self) -> Database<'c> {
        self.as_role(&self.role)
    }

    /// A bare client, for uses that are not covered here, such as COPY or notifications. Waits while the server
    /// starts or recovers.
    pub fn client(&self) -> Result<Client, SqlError> {
        let mut config = Config::new();
        config.host_path(self.cluster.socket_directory()).port(PORT).user(&self.role).dbname(&self.name);
        config.application_name("e2e").connect_timeout(PATIENCE);
        let began = Instant::now();
        loop {
            match config.connect(NoTls) {
                Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) && began.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Closes the session of this value; the next statement opens a new one.
    pub fn disconnect(&self) {
        self.client.replace(None);
    }

    /// Runs statements. More than one is one transaction, as the protocol has it.
    pub fn try_execute(&self, sql: &str) -> Result<(), SqlError> {
        self.simple_query(sql).map(drop)
    }

    /// Runs statements that must succeed.
    #[track_caller]
    pub fn execute(&self, sql: &str) {
        if let Err(error) = self.try_execute(sql) {
            self.fail(&format!("{error}\nin: {sql}"));
        }
    }

    /// Runs a statement that must fail, and returns the error.
    #[track_caller]
    pub fn error(&self, sql: &str) -> SqlError {
        match self.try_execute(sql) {
            Ok(()) => self.fail(&format!("no error from: {sql}")),
            Err(error) => error,
        }
    }

    /// All rows; `None` is NULL.
    pub fn try_rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let messages = self.simple_query(sql)?;
        Ok(messages
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
                }
                _ => None,
            })
            .collect())
    }

    /// All rows; `None` is NULL.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        match self.try_rows(sql) {
            Ok(rows) => rows,
            Err(error) => self.fail(&format!("{error}\nin: {sql}")),
        }
    }

    /// The first column of every row, NULL as the empty string.
    #[track_caller]
    pub fn column(&self, sql: &str) -> Vec<String> {
        let first = |row: Vec<Option<String>>| row.into_iter().next().flatten().unwrap_or_default();
        self.rows(sql).into_iter().map(first).collect()
    }

    /// The first column of the first row; `None` if there is no row or it is NULL.
    #[track_caller]
    pub fn value(&self, sql: &str) -> Option<String> {
        self.rows(sql).into_iter().next()?.into_iter().next()?
    }

    #[track_caller]
    pub fn text(&self, sql: &str) -> String {
        match self.value(sql) {
            Some(value) => value,
            None => self.fail(&format!("no value from: {sql}")),
        }
    }

    #[track_caller]
    pub fn number(&self, sql: &str) -> i64 {
        let value = self.text(sql);
        match value.parse() {
            Ok(number) => number,
            Err(_) => self.fail(&format!("{value:?} is no number, from: {sql}")),
        }
    }

    #[track_caller]
    pub fn boolean(&self, sql: &str) -> bool {
        match self.text(sql).as_str() {
            "t" => true,
            "f" => false,
            other => self.fail(&format!("{other:?} is no boolean, from: {sql}")),
        }
    }

    /// Asks until the answer is true; fails after 30 seconds with `what`, the last answer and the
    /// server's log. A server that is down or recovering is asked again as well.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: &str) {
        self.wait_at_most(PATIENCE, what, condition);
    }

    /// The same with another patience; returns how long it took.
    #[track_caller]
    pub fn wait_at_most(&self, patience: Duration, what: &str, condition: &str) -> Duration {
        let began = Instant::now();
        loop {
            // Each question is a transaction of its own, otherwise it would ask the same snapshot.
            let answer = self.try_rows(condition);
            if let Ok(rows) = &answer
                && rows.first().and_then(|row| row.first()).is_some_and(|value| value.as_deref() == Some("t"))
            {
                return began.elapsed();
            }
            if began.elapsed() > patience {
                let last = match answer {
                    Ok(rows) => format!("{rows:?}"),
                    Err(error) => error.to_string(),
                };
                self.fail(&format!(
                    "waited {patience:?} in vain until {what}\nasked: {condition}\nlast answer: {last}"
                ));
            }
            thread::sleep(PAUSE);
        }
    }

    /// The processes of one kind that serve this database; the launcher serves all.
    #[track_caller]
    pub fn worker_pids(&self, worker: Worker) -> Vec<i32> {
        let mut sql = format!("SELECT pid FROM pg_stat_activity WHERE backend_type = '{}'", worker.backend_type());
        if worker != Worker::Launcher {
            sql.push_str(" AND datname = current_database()");
        }
        self.column(&sql).iter().map(|pid| pid.parse().expect("a process id")).collect()
    }

    /// One process of the kind, waited for.
    #[track_caller]
    pub fn worker_pid(&self, worker: Worker) -> i32 {
        let began = Instant::now();
        loop {
            if let Some(pid) = self.worker_pids(worker).first() {
                return *pid;
            }
            if began.elapsed() > PATIENCE {
                self.fail(&format!("there is no {worker:?} for database {}", self.name));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Signals one process of the kind and returns its id.
    #[track_caller]
    pub fn signal_worker(&self, worker: Worker, signal: Signal) -> i32 {
        let pid = self.worker_pid(worker);
        kill(pid, signal);
        pid
    }

    fn simple_query(&self, sql: &str) -> Result<Vec<SimpleQueryMessage>, SqlError> {
        let mut slot = self.client.borrow_mut();
        // A session that the server has ended is noticed only when it is used.
        let usable = slot.as_mut().is_some_and(|client| client.is_valid(PATIENCE).is_ok());
        if !usable {
            *slot = Some(self.client()?);
        }
        let Some(client) = slot.as_mut() else { unreachable!("connected above") };
        Ok(client.simple_query(sql)?)
    }

    /// Fails the test with the end of the server's log.
    #[track_caller]
    fn fail(&self, message: &str) -> ! {
        panic!("{message}\n{}", self.cluster.log_tail())
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.cluster.keep_log();
        } else if self.drop_at_end {
            self.disconnect();
            // The test may have dropped or renamed it, or stopped the server.
            let _ = Database::existing(self.cluster, "postgres")
                .try_execute(&format!("DROP DATABASE IF EXISTS \"{}\" WITH (FORCE)", self.name));
        }
    }
}
