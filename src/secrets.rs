//! Sealing secrets, and opening them again for the courier. The key stands in a file outside the database, so that neither
//! a dump nor another role's row is of any use: owner and name are part of what is sealed.
#![allow(unsafe_code)]
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use pgrx::pg_sys;

use crate::error::{EngineError, EngineResult};
use crate::gucs;
use crate::pg::{identity, random};

const KEY: usize = 32;
const NONCE: usize = 24;
/// Tells how the bytes after it are sealed.
const FORM: u8 = 1;
/// Base64 of the key with line ends, and then some.
const MAX_FILE: u64 = 4096;

const SETUP: &str = "Make one with \"head -c 32 /dev/urandom > FILE; chmod 600 FILE\" as the server's user, outside the data \
                     directory, and set automation_engine.secret_key_file to it.";

/// Seals a secret of a role.
pub fn seal(owner: pg_sys::Oid, name: &str, value: &[u8]) -> EngineResult<Vec<u8>> {
    let cipher = cipher()?;
    let nonce: [u8; NONCE] = random::strong().ok_or_else(|| EngineError::bug("no random bytes"))?;
    let bound = bound_to(owner, name);
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: value, aad: &bound })
        .map_err(|_| EngineError::bug("a secret was not sealed"))?;
    Ok([&[FORM][..], &nonce, &sealed].concat())
}

/// Opens it. Only the courier does, and the error tells nothing of the secret.
pub fn open(owner: pg_sys::Oid, name: &str, sealed: &[u8]) -> EngineResult<Vec<u8>> {
    let cipher = cipher()?;
    let broken = || {
        EngineError::wrong_state(format!("secret \"{name}\" cannot be opened"))
            .detail("It was sealed with another key, or for another role.")
            .hint("Set it again with automation.set_secret().")
    };
    let (nonce, sealed) = match sealed.split_first() {
        Some((&FORM, rest)) => rest.split_first_chunk::<NONCE>().ok_or_else(broken)?,
        _ => return Err(broken()),
    };
    let bound = bound_to(owner, name);
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &bound }).map_err(|_| broken())
}

fn bound_to(owner: pg_sys::Oid, name: &str) -> Vec<u8> {
    [b"automation_engine secret\0", &owner.to_u32().to_be_bytes()[..], name.as_bytes()].concat()
}

fn cipher() -> EngineResult<XChaCha20Poly1305> {
    let Some(path) = gucs::secret_key_file() else {
        return Err(EngineError::wrong_state("there is no key to seal secrets with")
            .detail("automation_engine.secret_key_file is not set.")
            .hint(SETUP));
    };
    let mut key = read_key(&path).map_err(|why| {
        let detail = match identity::is_superuser(identity::current_user()) {
            true => format!("File \"{path}\": {why}"),
            // where it is, is nobody else's business
            false => format!("The file of automation_engine.secret_key_file: {why}"),
        };
        EngineError::wrong_state("the key that seals secrets cannot be used").detail(detail).hint(SETUP)
    })?;
    let cipher = XChaCha20Poly1305::new(&key.into());
    key.fill(0);
    Ok(cipher)
}

/// The key, if nobody else can read it.
fn read_key(path: &str) -> Result<[u8; KEY], String> {
    let file = File::open(path).map_err(|error| format!("{error}."))?;
    // Of the file that is open, which cannot be exchanged for another one meanwhile.
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
    let raw: Result<[u8; KEY], _> = bytes.as_slice().try_into();
    let key = raw.ok().or_else(|| {
        let text: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        STANDARD.decode(text).ok()?.as_slice().try_into().ok()
    });
    let length = bytes.len();
    bytes.fill(0);
    key.ok_or_else(|| format!("it has {length} bytes and is neither 32 bytes nor the base64 of 32 bytes."))
}

fn server_user() -> u32 {
    // SAFETY: asks the kernel for a number; cannot fail.
    unsafe { libc::geteuid() }
}
