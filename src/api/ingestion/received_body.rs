//! Receives the body of a request with events, within limits of size, time and memory, and decompresses it.

use std::io::{self, Read as _};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, EXPECT, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use flate2::read::MultiGzDecoder;
use futures_util::StreamExt as _;

use super::body_budget::{BodyReservation, BudgetExhausted};
use super::body_form::Encoding;
use crate::api::body::in_time;
use crate::api::problem::Problem;

/// Maximum length of a body, before and after it is decompressed, bytes.
pub const EVENTS_BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Maximum number of bytes of a refused body that are read and dropped. Most clients send a whole body before they read
/// the answer; if the connection closed earlier, they would not see what is wrong.
const DISCARDED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes that are decompressed at a time.
const INFLATED_AT_ONCE: usize = 64 * 1024;

/// A body in memory.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    bytes: Vec<u8>,
    encoding: Encoding,
    reservation: BodyReservation,
}

impl ReceivedBody {
    /// Receives a body.
    ///
    /// # Errors
    ///
    /// 413 if it is too long, 408 if it is too slow, 503 if other bodies use all memory, 400 if a part does not arrive.
    pub(super) async fn receive(
        headers: &HeaderMap,
        body: Body,
        encoding: Encoding,
        reservation: BodyReservation,
    ) -> Result<Self, Problem> {
        let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let is_too_long = announced.is_some_and(|bytes| bytes > EVENTS_BODY_BYTES_MAX);
        if is_too_long && headers.contains_key(EXPECT) {
            // The client waits for this answer before it sends the body.
            return Err(too_long());
        }
        let mut received = Self { bytes: Vec::new(), encoding, reservation };
        let mut refusal = is_too_long.then(too_long);
        let receiving = async {
            let mut frames = body.into_data_stream();
            let mut discarded = 0;
            while let Some(frame) = frames.next().await {
                let frame: Bytes = frame.map_err(|_| Problem::bad_request("the body did not arrive completely"))?;
                if refusal.is_some() {
                    discarded += frame.len();
                } else if let Err(problem) = received.add(&frame) {
                    received.forget();
                    refusal = Some(problem);
                }
                if discarded > DISCARDED_BYTES_MAX {
                    break;
                }
            }
            Ok(())
        };
        let arrived = in_time(receiving).await;
        // Also if the rest of the body is slow: a client repeats a 503, and not a 408.
        match (refusal, arrived) {
            (Some(refusal), _) => Err(refusal),
            (None, Ok(arrived)) => arrived.map(|()| received),
            (None, Err(late)) => Err(late),
        }
    }

    fn add(&mut self, frame: &[u8]) -> Result<(), Problem> {
        if self.bytes.len() + frame.len() > EVENTS_BODY_BYTES_MAX {
            return Err(too_long());
        }
        self.reservation.grow(frame.len())?;
        self.bytes.extend_from_slice(frame);
        Ok(())
    }

    /// Returns the memory.
    fn forget(&mut self) {
        self.bytes = Vec::new();
        self.reservation.release();
    }

    /// Whether decoding takes long enough to disturb other requests.
    pub(super) fn is_large(&self) -> bool {
        self.encoding == Encoding::Gzip || self.bytes.len() > INFLATED_AT_ONCE
    }

    /// The decompressed body. Its memory stays reserved as long as the reservation lives.
    ///
    /// # Errors
    ///
    /// 413 if it is too long, 503 if other bodies use all memory, 400 if it is no gzip, is cut, or has more behind it.
    pub(super) fn decompressed(self) -> Result<(Vec<u8>, BodyReservation), Problem> {
        let Self { bytes, encoding, mut reservation } = self;
        match encoding {
            Encoding::Identity => Ok((bytes, reservation)),
            Encoding::Gzip => {
                let inflated = inflate(&bytes, &mut reservation)?;
                Ok((inflated, reservation))
            }
        }
    }
}

/// Reads and drops the body of a request that is refused by its head, unless the client waits for the answer first.
pub(in crate::api) async fn discard(headers: &HeaderMap, body: Body) {
    if headers.contains_key(EXPECT) {
        return;
    }
    let discarding = async {
        let (mut frames, mut discarded) = (body.into_data_stream(), 0);
        while let Some(Ok(frame)) = frames.next().await
            && discarded <= DISCARDED_BYTES_MAX
        {
            discarded += frame.len();
        }
    };
    let _ = in_time(discarding).await;
}

fn inflate(bytes: &[u8], reservation: &mut BodyReservation) -> Result<Vec<u8>, Problem> {
    let mut decoder = MultiGzDecoder::new(bytes);
    let (mut inflated, mut piece) = (Vec::new(), vec![0; INFLATED_AT_ONCE]);
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(inflated),
            Ok(count) if inflated.len() + count > EVENTS_BODY_BYTES_MAX => return Err(too_long()),
            Ok(count) => {
                reservation.grow(count)?;
                inflated.extend_from_slice(&piece[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let detail = "the gzip data of the body is cut, or something else follows it";
                return Err(Problem::bad_request(detail));
            }
            Err(error) => return Err(Problem::bad_request(format!("the body is not gzip: {error}"))),
        }
    }
}

fn too_long() -> Problem {
    let detail = format!("the body is too large, at most {EVENTS_BODY_BYTES_MAX} bytes are allowed, also decompressed");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

impl From<BudgetExhausted> for Problem {
    fn from(error: BudgetExhausted) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).header(RETRY_AFTER, HeaderValue::from_static("1"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::body_budget::BodyBudget;
    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn inflated(bytes: &[u8]) -> Result<Vec<u8>, u16> {
        let mut reservation = BodyBudget::default().reservation();
        inflate(bytes, &mut reservation).map_err(|problem| problem.status().as_u16())
    }

    /// A small body must not fill the memory, and half a body must not be taken for a whole one.
    #[test]
    fn gzip_is_bounded_and_complete() {
        let whole = gzip(b"{}");
        assert_eq!(inflated(&whole), Ok(b"{}".to_vec()));
        assert_eq!(inflated(&[whole.clone(), whole.clone()].concat()), Ok(b"{}{}".to_vec()), "two members");
        for cut in 1..whole.len() {
            assert_eq!(inflated(&whole[..cut]), Err(400), "cut at {cut}");
        }
        assert_eq!(inflated(b"{}"), Err(400));
        assert_eq!(inflated(&[whole, b"x".to_vec()].concat()), Err(400), "something follows");
        let bomb = gzip(&vec![b' '; EVENTS_BODY_BYTES_MAX + 1]);
        assert!(bomb.len() < 20_000 && inflated(&bomb) == Err(413));
        let most = gzip(&vec![b' '; EVENTS_BODY_BYTES_MAX]);
        assert_eq!(inflated(&most).map(|bytes| bytes.len()), Ok(EVENTS_BODY_BYTES_MAX));
    }
}
