//! Any fields in place of a usage event. Nothing may panic, and units stay in the range that scripts count exactly.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quotabell::events::parse::{RawEvent, UsageDelta};
use quotabell::types::UnixMs;
use quotabell::types::units::UNITS_MAX;

const NAMES: [&[u8]; 8] = [b"subject", b"units", b"credit", b"metric", b"ts", b"id", b"source_arrival", b"judge"];

fuzz_target!(|input: (i64, Vec<(u8, &[u8])>)| {
    let (arrival, fields) = input;
    let fields = fields.iter().map(|(name, value)| (NAMES[usize::from(*name) % NAMES.len()], *value));
    let raw = RawEvent::from_fields(fields);
    // Times of stream entries: 0 to the year 9999.
    if let Ok(event) = raw.parse(UnixMs(arrival.rem_euclid(253_402_300_800_000))) {
        let (UsageDelta::Used(units) | UsageDelta::Credit(units)) = event.amount else { return };
        assert!((1..=UNITS_MAX).contains(&units.get()));
    }
});
