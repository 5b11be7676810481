//! Requests that are being sent, each in a thread of its own. Answers come back through a channel; one byte in a socket
//! wakes the courier, which waits for that socket and for its latch.
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use egress::{Network, Outcome, Request, send};

use crate::pg::clock::{self, Micros};
use crate::pg::threads;

/// The outcome of a request.
pub struct Answer {
    pub id: i64,
    pub attempt: i32,
    pub outcome: Outcome,
    pub started_at: Micros,
    pub ended_at: Micros,
}

pub struct Senders {
    answers: Receiver<Answer>,
    /// Kept so that the channel stays open.
    answer: Sender<Answer>,
    bell: UnixStream,
    ring: Arc<UnixStream>,
}

impl Senders {
    pub fn new() -> std::io::Result<Self> {
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        // A full socket wakes the courier just as well.
        ring.set_nonblocking(true)?;
        let (answer, answers) = channel();
        Ok(Senders { answers, answer, bell, ring: Arc::new(ring) })
    }

    /// The descriptor that is readable when answers have come.
    pub fn bell(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Sends a request. Its answer comes at its deadline at the latest.
    pub fn send(&self, id: i64, attempt: i32, request: Request, network: &Network) {
        let (answer, ring, network) = (self.answer.clone(), Arc::clone(&self.ring), network.clone());
        let started_at = clock::now();
        let started = threads::spawn("sender", move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| send(&request, &network)))
                .unwrap_or_else(|_| Outcome::Unknown("automation_engine bug: a sender failed".to_owned()));
            // The receiving end is gone when the process is about to end.
            let _ = answer.send(Answer { id, attempt, outcome, started_at, ended_at: wall_clock() });
            let _ = (&*ring).write(&[1]);
        });
        if let Err(error) = started {
            let outcome = Outcome::NotSent(format!("no thread to send it: {error}"));
            let _ = self.answer.send(Answer { id, attempt, outcome, started_at, ended_at: started_at });
            let _ = (&*self.ring).write(&[1]);
        }
    }

    /// The answers that have come since the last call.
    pub fn answers(&self) -> Vec<Answer> {
        let mut rung = [0; 256];
        while matches!((&self.bell).read(&mut rung), Ok(read) if read > 0) {}
        self.answers.try_iter().collect()
    }
}

/// The time without a call into Postgres, which is allowed only in the main thread.
fn wall_clock() -> Micros {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    unix.map_or(0, |time| time.as_micros() as i64) - clock::POSTGRES_EPOCH
}
