//! Sealing secrets, and opening them again for the courier. The key stands in a file outside the database, so that
//! neither a dump nor another role's row is of any use: a sealed secret is bound to its owner and name.
#![allow(unsafe_code)]
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use pgrx::pg_sys;
use sealed::Key;

use crate::error::{EngineError, EngineResult};
use crate::gucs;
use crate::pg::{identity, random};

/// Base64 of a key with line ends, and then some.
const MAX_FILE: u64 = 4096;

const SETUP: &str = "Make one with \"head -c 32 /dev/urandom > FILE; chmod 600 FILE\" as the server's user, outside the data \
                     directory, and set automation_engine.secret_key_file to it.";

/// Seals a secret of a role.
pub fn seal(owner: pg_sys::Oid, name: &str, value: &[u8]) -> EngineResult<Vec<u8>> {
    let key = key()?;
    let nonce = random::strong().ok_or_else(|| EngineError::bug("no random bytes"))?;
    key.seal(nonce, &bound_to(owner, name), value).ok_or_else(|| EngineError::bug("a secret was not sealed"))
}

/// Opens a sealed secret. Only the courier does, and the error tells nothing of the secret.
pub fn open(owner: pg_sys::Oid, name: &str, sealed: &[u8]) -> EngineResult<Vec<u8>> {
    key()?.open(&bound_to(owner, name), sealed).ok_or_else(|| {
        EngineError::wrong_state(format!("secret \"{name}\" cannot be opened"))
            .detail("It was sealed with another key, or for another role.")
            .hint("Set it again with automation.set_secret().")
    })
}

fn bound_to(owner: pg_sys::Oid, name: &str) -> Vec<u8> {
    [b"automation_engine secret\0", &owner.to_u32().to_be_bytes()[..], name.as_bytes()].concat()
}

fn key() -> EngineResult<Key> {
    let Some(path) = gucs::secret_key_file() else {
        return Err(EngineError::wrong_state("there is no key to seal secrets with")
            .detail("automation_engine.secret_key_file is not set.")
            .hint(SETUP));
    };
    read_key(&path).map_err(|why| {
        let detail = match identity::is_superuser(identity::current_user()) {
            true => format!("File \"{path}\": {why}"),
            // Only a superuser is told where the file is.
            false => format!("The file of automation_engine.secret_key_file: {why}"),
        };
        EngineError::wrong_state("the key that seals secrets cannot be used").detail(detail).hint(SETUP)
    })
}

/// The key, if no other user of the system can read its file.
fn read_key(path: &str) -> Result<Key, String> {
    let file = File::open(path).map_err(|error| format!("{error}."))?;
    // The metadata of the open file, which cannot be exchanged for another one meanwhile.
    let about = file.metadata().map_err(|error| format!("{error}."))?;
    if !about.is_file() {
        return Err("it is not a regular file.".to_owned());
    }
    if about.uid() != server_user() {
        return Err("it does not belong to the user that the server runs as.".to_owned());
    }
    if about.mode() & 0o177 != 0 {
        return Err(format!("its mode is {:04o}, not 0600 or 0400.", about.mode() & 0o7777));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(|error| format!("{error}."))?;
    let key = Key::read(&bytes);
    let length = bytes.len();
    bytes.fill(0);
    key.ok_or_else(|| format!("it has {length} bytes and is neither 32 bytes nor the base64 of 32 bytes."))
}

fn server_user() -> u32 {
    // SAFETY: asks the kernel for a number; cannot fail.
    unsafe { libc::geteuid() }
}
