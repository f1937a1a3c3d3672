//! A webhook receiver that trusts nothing: it checks each signature with its own code (HMAC-SHA256 by RFC 2104, over
//! the crate `sha2`), and stores requests.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use crate::support::receivers::CaughtRequest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// A webhook with a valid signature.
#[derive(Debug, Clone)]
pub struct Verified {
    pub id: String,
    pub body: serde_json::Value,
}

/// A secret of 24 bytes, all of this value.
pub fn secret(byte: u8) -> String {
    format!("whsec_{}", STANDARD.encode([byte; 24]))
}

/// Checks a request as a receiver should: POST, JSON, all three headers, a signature of exactly these bytes.
pub fn verify(request: &CaughtRequest, secret: &str) -> Verified {
    verify_as(request, secret, "application/json")
}

/// The same for a body of another media type.
pub fn verify_as(request: &CaughtRequest, secret: &str, media_type: &str) -> Verified {
    assert_eq!(request.method, axum::http::Method::POST);
    let header = |name: &str| {
        let mut values = request.headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("no header {name}")).to_str().expect("text").to_owned();
        assert!(values.next().is_none(), "one header {name}");
        value
    };
    assert_eq!(header("content-type"), media_type);
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &request.body].concat();
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a whsec_ secret")).expect("base64");
    let expected = format!("v1,{}", STANDARD.encode(hmac(&key, &signed)));
    let signature = header("webhook-signature");
    assert!(signature.split(' ').any(|one| one == expected), "signature of {id}: {signature}, not {expected}");
    Verified { id, body: serde_json::from_slice(&request.body).expect("JSON") }
}

/// HMAC-SHA256 of RFC 2104, for keys up to one block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64, "a longer key would be hashed first");
    let pad = |byte: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ byte).collect() };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}
