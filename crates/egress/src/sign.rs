//! Signs messages as Standard Webhooks asks, so that a receiver can tell that a message is ours, unchanged and fresh.
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::hmac;

/// A signing key. Its bytes are neither shown nor compared.
pub struct Key(hmac::Key);

impl Key {
    /// From a secret as it was handed over: `whsec_` and base64, or any other text as it stands.
    pub fn from_secret(secret: &str) -> Self {
        let decoded = secret
            .strip_prefix("whsec_")
            .and_then(|text| STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok());
        let bytes = decoded.as_deref().unwrap_or(secret.as_bytes());
        Key(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// The value of the webhook-signature header: one signature per key, so that a receiver may know either while keys
/// change.
pub fn sign(keys: &[Key], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = keys
        .iter()
        .map(|key| {
            let mut context = hmac::Context::with_key(&key.0);
            context.update(format!("{id}.{timestamp}.").as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        })
        .collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks libraries.
    #[test]
    fn the_published_example_comes_out() {
        let key = Key::from_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = sign(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_without_prefix_is_its_own_bytes() {
        let plain = sign(&[Key::from_secret("abc")], "m", 1, b"x");
        let wrapped = sign(&[Key::from_secret("whsec_YWJj")], "m", 1, b"x");
        let unpadded = sign(&[Key::from_secret("whsec_YQ")], "m", 1, b"x");
        assert_eq!(plain, wrapped);
        assert_eq!(unpadded, sign(&[Key::from_secret("a")], "m", 1, b"x"));
    }

    #[test]
    fn two_keys_give_two_signatures() {
        let both = sign(&[Key::from_secret("new"), Key::from_secret("old")], "m", 1, b"x");
        let new = sign(&[Key::from_secret("new")], "m", 1, b"x");
        let old = sign(&[Key::from_secret("old")], "m", 1, b"x");
        assert_eq!(both, format!("{new} {old}"));
        assert_eq!(sign(&[], "m", 1, b"x"), "");
    }
}
