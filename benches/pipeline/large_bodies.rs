//! The daemon's memory while many of the largest bodies arrive at once, plain and compressed.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Size;
use crate::daemon::Daemon;
use crate::figures::mebibytes;
use crate::http_answer::read_answer;
use crate::ingestion::TOKEN;
use crate::redis_server::RedisServer;

/// The largest bodies that are allowed, sent at once: 64 MiB of them may be in flight.
const BODIES: usize = 64;
const EVENTS_OF_A_BODY: usize = 10_000;
const BYTES_OF_AN_EVENT: usize = 1_048;
/// Received, decompressed and decoded bodies share 64 MiB; the rest are buffers of sockets and of the allocator.
const BYTES_MAX: f64 = 5.0 * 64.0 * 1024.0 * 1024.0;

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let rounds = size.pick(5, 1);
    let body: String = (0..EVENTS_OF_A_BODY).map(event).collect();
    println!("\n## Memory while {BODIES} bodies of {} arrive at once, {rounds} times\n", mebibytes(body.len() as f64));
    println!("A body beyond the bound is answered 503; its client would send it again.\n");
    println!(
        "| content encoding | accepted | answered 503 | peak (VmHWM) before | after the first round | after all |"
    );
    println!("|---|---|---|---|---|---|");
    for encoding in ["identity", "gzip"] {
        let sent = match encoding {
            "gzip" => compressed(body.as_bytes())?,
            _ => body.clone().into_bytes(),
        };
        let server = RedisServer::start_with(&["--save", "", "--appendonly", "no"]);
        let daemon = Daemon::start(server.port(), &[("QUOTABELL__HTTP__TOKEN", TOKEN.to_owned())])?;
        let (before, sent) = (daemon.peak_bytes()?, Arc::new(sent));
        let (mut accepted, mut peaks) = (0, Vec::new());
        for _ in 0..rounds {
            accepted += round(daemon.address, encoding, &sent)?;
            peaks.push(daemon.peak_bytes()?);
        }
        let (first, last) = (peaks[0], peaks[rounds - 1]);
        println!(
            "| {encoding} | {accepted} | {} | {} | {} | {} |",
            rounds * BODIES - accepted,
            mebibytes(before),
            mebibytes(first),
            mebibytes(last)
        );
        anyhow::ensure!(last - before < BYTES_MAX, "the memory of bodies is not bounded");
    }
    Ok(())
}

fn event(number: usize) -> String {
    let mut event = format!("{{\"subject\":\"customer-{}\",\"note\":\"", number % 1_000);
    event.extend(std::iter::repeat_n('x', BYTES_OF_AN_EVENT - event.len() - 3));
    event + "\"}\n"
}

fn compressed(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

/// Sends all bodies at once. Returns the number of accepted ones.
fn round(address: SocketAddr, encoding: &'static str, body: &Arc<Vec<u8>>) -> anyhow::Result<usize> {
    let senders: Vec<_> = (0..BODIES)
        .map(|_| {
            let body = Arc::clone(body);
            std::thread::spawn(move || send_body(address, encoding, &body))
        })
        .collect();
    let mut accepted = 0;
    for sender in senders {
        accepted += usize::from(sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??);
    }
    Ok(accepted)
}

/// Whether the body was accepted; another answer than 202 and 503 is an error.
fn send_body(address: SocketAddr, encoding: &str, body: &[u8]) -> anyhow::Result<bool> {
    let mut requests = TcpStream::connect(address)?;
    let head = format!(
        "POST /v1/events?unknown=ignore HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A body beyond the bound is answered before it is received, and its connection may end.
    let sent = requests.write_all(head.as_bytes()).and_then(|()| requests.write_all(body));
    let answer = read_answer(&mut BufReader::new(requests));
    match (sent, answer) {
        (_, Ok((head, _))) if head.starts_with("HTTP/1.1 202") => Ok(true),
        (_, Ok((head, _))) if head.starts_with("HTTP/1.1 503") => Ok(false),
        (Err(_), Err(_)) => Ok(false),
        (_, Ok((head, body))) => anyhow::bail!("a large body: {head}{body}"),
        (Ok(()), Err(error)) => Err(error),
    }
}
