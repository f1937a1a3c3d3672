//! Any bytes in place of the replies to XREAD and TIME. A server or a proxy may send anything, so nothing may panic.
//! Pieces of any size must give the same index as the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quotabell::redis_client::index::{IndexProgress, ReplyIndex};
use quotabell::redis_client::resp;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let mut whole = ReplyIndex::new();
    let of_whole = whole.advance(bytes);

    let mut grown = ReplyIndex::new();
    let mut of_pieces = Ok(IndexProgress::Incomplete);
    let mut end = 0;
    while end < bytes.len() && of_pieces == Ok(IndexProgress::Incomplete) {
        end = (end + usize::from(piece) + 1).min(bytes.len());
        of_pieces = grown.advance(&bytes[..end]);
    }
    if bytes.is_empty() {
        of_pieces = grown.advance(bytes);
    }
    assert_eq!(of_whole, of_pieces);

    if of_whole == Ok(IndexProgress::Complete) {
        let entries: Vec<_> = whole.iter(bytes).map(|entry| (entry.id, entry.fields.count())).collect();
        assert_eq!(entries.len(), whole.count());
        assert!(grown.iter(bytes).map(|entry| (entry.id, entry.fields.count())).eq(entries));
        let _ = (whole.last(bytes), whole.long_entry(bytes, 64), whole.error_reply());
    }
    if let Ok(Some(next)) = resp::skip(bytes, 0) {
        assert!(next <= bytes.len());
    }
});
