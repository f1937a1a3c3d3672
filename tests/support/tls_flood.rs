//! Servers that flood a client below its data: TLS 1.3 records without data, as long as the client reads.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::server::TlsStream;

use super::scripted_server::FLOODED;

/// The types of records (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// Bytes per write.
const WRITE_BYTES: usize = 64 * 1024;

/// The repeated record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFlood {
    /// Session tickets.
    Tickets,
    /// Records without data.
    EmptyRecords,
    /// Requests for new keys. The client would answer each one.
    KeyUpdates,
}

impl TlsFlood {
    pub const ALL: [Self; 3] = [Self::Tickets, Self::EmptyRecords, Self::KeyUpdates];

    /// The error of an attempt.
    pub fn ends_with(self) -> &'static str {
        match self {
            Self::Tickets => FLOODED,
            Self::EmptyRecords | Self::KeyUpdates => "TLS: the other side violates the protocol",
        }
    }

    /// Floods this connection until the client closes it. Its configuration exposes the keys.
    pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(self, tls: TlsStream<S>, sent: &AtomicU64) -> io::Result<()> {
        match self {
            Self::Tickets => flood_records(tls, HANDSHAKE, &ticket(), sent).await,
            Self::EmptyRecords => flood_records(tls, APPLICATION_DATA, &[], sent).await,
            Self::KeyUpdates => flood_key_updates(tls, sent).await,
        }
    }
}

/// A NewSessionTicket (RFC 8446, 4.6.1) with a lifetime of a day.
fn ticket() -> Vec<u8> {
    let mut body = 86_400_u32.to_be_bytes().to_vec();
    // Age obfuscation, a nonce of one byte, a ticket of 32 bytes, no extensions.
    body.extend([0, 0, 0, 0, 1, 7, 0, 32]);
    body.extend([7; 32]);
    body.extend([0, 0]);
    let length = u8::try_from(body.len()).expect("a short one");
    [vec![4, 0, 0, length], body].concat()
}

/// Sends records that rustls itself would not send, encrypted with its keys.
async fn flood_records<S: AsyncRead + AsyncWrite + Unpin>(
    mut tls: TlsStream<S>,
    kind: u8,
    content: &[u8],
    sent: &AtomicU64,
) -> io::Result<()> {
    tls.flush().await?;
    let (mut stream, connection) = tls.into_inner();
    let (mut sequence, secrets) = connection.dangerous_extract_secrets().expect("secrets").tx;
    let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another cipher was agreed on") };
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("a key"));
    loop {
        let mut records = Vec::new();
        while records.len() < WRITE_BYTES {
            let mut sealed = [content, &[kind]].concat();
            let length = u16::try_from(sealed.len() + AES_256_GCM.tag_len()).expect("a short record").to_be_bytes();
            let head = [APPLICATION_DATA, 3, 3, length[0], length[1]];
            let mut nonce: [u8; 12] = iv.as_ref().try_into().expect("twelve bytes");
            nonce[4..].iter_mut().zip(sequence.to_be_bytes()).for_each(|(nonce, byte)| *nonce ^= byte);
            key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(head), &mut sealed)
                .expect("sealed");
            records.extend(head);
            records.extend(sealed);
            sequence += 1;
        }
        stream.write_all(&records).await?;
        sent.fetch_add(records.len() as u64, Ordering::Relaxed);
    }
}

async fn flood_key_updates<S: AsyncRead + AsyncWrite + Unpin>(
    mut tls: TlsStream<S>,
    sent: &AtomicU64,
) -> io::Result<()> {
    /// A record with a KeyUpdate.
    const RECORD_BYTES: u64 = 5 + 5 + 1 + 16;
    loop {
        for _ in 0..100 {
            tls.get_mut().1.refresh_traffic_keys().map_err(io::Error::other)?;
        }
        tls.flush().await?;
        sent.fetch_add(100 * RECORD_BYTES, Ordering::Relaxed);
    }
}
