//! Resolves a name to addresses. The system's resolver knows no deadline, so it runs in a thread of its own, which is
//! left behind if it is late; the number of such threads is limited.
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::deadline::Deadline;

/// Resolver threads at the same time, those included whose request has given up waiting.
const MOST_THREADS: usize = 128;
/// Addresses looked at; a name with more is refused rather than half checked.
const MOST_ADDRESSES: usize = 64;

static THREADS: AtomicUsize = AtomicUsize::new(0);

pub trait Resolve: Send + Sync {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The names the operating system knows.
pub struct SystemNames;

impl Resolve for SystemNames {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

/// Gives its place back however the thread ends.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = THREADS.fetch_add(1, Ordering::AcqRel);
        let place = Place;
        (taken < MOST_THREADS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
    }
}

pub fn resolve(names: &Arc<dyn Resolve>, name: &str, deadline: Deadline) -> Result<Vec<IpAddr>, String> {
    let left = deadline.left().map_err(|_| "the time was up before the name was resolved".to_owned())?;
    let place = Place::take().ok_or("too many names wait for the name service")?;
    let (answer, answered) = mpsc::sync_channel(1);
    let (names, asked) = (Arc::clone(names), name.to_owned());
    std::thread::Builder::new()
        .name("name service".to_owned())
        .stack_size(512 * 1024)
        .spawn(move || {
            let _place = place;
            // The request may have given up waiting.
            let _ = answer.send(names.resolve(&asked));
        })
        .map_err(|error| format!("no thread for the name service: {error}"))?;
    match answered.recv_timeout(left) {
        Ok(Ok(addresses)) if addresses.is_empty() => Err("the host's name has no address".to_owned()),
        Ok(Ok(addresses)) if addresses.len() > MOST_ADDRESSES => {
            Err(format!("the host's name has more than {MOST_ADDRESSES} addresses"))
        }
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(_)) => Err("the host's name cannot be resolved".to_owned()),
        Err(mpsc::RecvTimeoutError::Timeout) => Err("the name service did not answer in time".to_owned()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("the name service failed".to_owned()),
    }
}
