//! One deadline for a whole exchange, kept below the HTTP and TLS code: every single read and write on the socket is
//! given the time that is left, so no behaviour of the receiver can make the exchange longer.
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after(timeout: Duration) -> Self {
        Deadline(Instant::now() + timeout)
    }

    /// The time left; an error if there is none.
    pub fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(timed_out()) } else { Ok(left) }
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the time is up")
}

pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// A connection that ends with its deadline.
pub struct Timed {
    stream: TcpStream,
    deadline: Deadline,
}

impl Timed {
    pub fn new(stream: TcpStream, deadline: Deadline) -> Self {
        Timed { stream, deadline }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.deadline.left()?))?;
        match self.stream.read(buffer) {
            Err(error) if is_timeout(&error) => Err(timed_out()),
            other => other,
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.deadline.left()?))?;
        match self.stream.write(bytes) {
            Err(error) if is_timeout(&error) => Err(timed_out()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
