//! Random bytes for keys and nonces.
use pgrx::pg_sys;

/// Bytes that cannot be guessed; None if the system has none to give.
pub fn strong<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    // SAFETY: fills the array, whose length is given with it.
    unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), N) }.then_some(bytes)
}
