//! Secrets as they lie in a table: sealed with a key that lies elsewhere, and bound to whose they are, so that the bytes
//! are of no use in another row. No I/O and no randomness of its own.
#![forbid(unsafe_code)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

/// Bytes of a key.
const KEY: usize = 32;
/// Bytes of a nonce: so many that random ones do not meet.
pub const NONCE: usize = 24;
/// Tells how the bytes after it are sealed.
const FORM: u8 = 1;

/// What seals and opens.
pub struct Key(XChaCha20Poly1305);

impl Key {
    /// The key that a file holds: 32 bytes, or the base64 of them.
    pub fn read(file: &[u8]) -> Option<Key> {
        let mut bytes: [u8; KEY] = match file.try_into() {
            Ok(raw) => raw,
            Err(_) => {
                let text: Vec<u8> = file.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
                STANDARD.decode(text).ok()?.try_into().ok()?
            }
        };
        let key = Key(XChaCha20Poly1305::new(&bytes.into()));
        bytes.fill(0);
        Some(key)
    }

    /// Seals a value. `nonce` is random and never the same; `bound_to` says whose the value is.
    pub fn seal(&self, nonce: [u8; NONCE], bound_to: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let sealed = self.0.encrypt(&XNonce::from(nonce), Payload { msg: value, aad: bound_to }).ok()?;
        Some([&[FORM][..], &nonce, &sealed].concat())
    }

    /// Opens what was sealed with this key for the same owner; None for everything else.
    pub fn open(&self, bound_to: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.strip_prefix(&[FORM])?.split_first_chunk::<NONCE>()?;
        self.0.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: bound_to }).ok()
    }
}

/// Marks a secret that is a key for signing, in base64.
pub const SIGNING_KEY: &str = "whsec_";

/// Is a secret a signing key that is none? A key has 24 to 64 bytes.
pub fn is_broken_signing_key(secret: &str) -> bool {
    secret
        .strip_prefix(SIGNING_KEY)
        .is_some_and(|key| !STANDARD.decode(key).is_ok_and(|key| (24..=64).contains(&key.len())))
}

#[cfg(test)]
mod tests {
    use super::{Key, NONCE, is_broken_signing_key};

    fn key(byte: u8) -> Key {
        Key::read(&[byte; 32]).expect("32 bytes are a key")
    }

    #[test]
    fn what_was_sealed_is_opened_with_the_same_key_for_the_same_owner() {
        let sealed = key(1).seal([7; NONCE], b"ann token", b"canary").unwrap();
        assert_eq!(key(1).open(b"ann token", &sealed).as_deref(), Some(&b"canary"[..]));
        assert_eq!(key(2).open(b"ann token", &sealed), None, "another key");
        assert_eq!(key(1).open(b"bob token", &sealed), None, "another owner");
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
    }

    #[test]
    fn a_changed_byte_anywhere_is_noticed() {
        let sealed = key(1).seal([7; NONCE], b"ann", b"canary").unwrap();
        for place in 0..sealed.len() {
            let mut broken = sealed.clone();
            broken[place] ^= 1;
            assert_eq!(key(1).open(b"ann", &broken), None, "byte {place}");
            assert_eq!(key(1).open(b"ann", &sealed[..place]), None, "cut at {place}");
        }
    }

    #[test]
    fn the_same_value_is_sealed_differently_with_another_nonce() {
        let seal = |nonce| key(1).seal([nonce; NONCE], b"ann", b"canary").unwrap();
        assert_ne!(seal(1)[25..], seal(2)[25..]);
    }

    #[test]
    fn a_key_file_holds_32_bytes_or_their_base64() {
        let text = b"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n";
        let sealed = key(1).seal([7; NONCE], b"", b"x").unwrap();
        assert!(Key::read(text).unwrap().open(b"", &sealed).is_some());
        for file in [&b""[..], b"short", &[1; 31], &[1; 33], b"AQEB", &[b'!'; 44]] {
            assert!(Key::read(file).is_none(), "{file:?}");
        }
    }

    #[test]
    fn a_signing_key_is_long_enough() {
        let key = |length: usize| {
            use base64::Engine;
            format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(vec![1; length]))
        };
        for (secret, broken) in [
            ("any other text".to_owned(), false),
            (key(24), false),
            (key(64), false),
            (key(23), true),
            (key(65), true),
            ("whsec_".to_owned(), true),
            ("whsec_*".to_owned(), true),
        ] {
            assert_eq!(is_broken_signing_key(&secret), broken, "{secret}");
        }
    }
}
