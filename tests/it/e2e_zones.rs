//! The source of time zone data, and updates of the system's data while the daemon runs.

use std::path::Path;

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use chrono::Timelike as _;
use quotabell::types::{Day, UnixMs};
use serde_json::json;

/// The zone whose rules the tests write.
const ZONE: &str = "Test/Moving";

/// A folder for TZDIR with one zone and a version.
struct ZoneFolder(tempfile::TempDir);

impl ZoneFolder {
    fn new(version: &str, hours: i8) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(folder.path().join("Test")).expect("made");
        folder.write(version, hours);
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, version: &str, hours: i8) {
        std::fs::write(self.path().join(ZONE), fixed_zone(hours)).expect("written");
        std::fs::write(self.path().join("tzdata.zi"), format!("# version {version}\n# redo posix_only\n"))
            .expect("written");
    }

    fn variable(&self) -> &str {
        self.path().to_str().expect("a path in UTF-8")
    }
}

/// A TZif file (RFC 9636) of a zone with a constant offset.
fn fixed_zone(hours: i8) -> Vec<u8> {
    let seconds = i32::from(hours) * 3600;
    let mut file = Vec::new();
    // The 32-bit and 64-bit blocks are the same, because neither has a transition.
    for _ in 0..2 {
        file.extend(b"TZif2");
        file.extend([0; 15]);
        for count in [0_u32, 0, 0, 0, 1, 4] {
            file.extend(count.to_be_bytes());
        }
        file.extend(seconds.to_be_bytes());
        file.extend([0, 0]);
        file.extend(b"ABC\0");
    }
    file.extend(format!("\n<ABC>{}\n", -hours).as_bytes());
    file
}

/// An offset whose date differs from the UTC date for at least an hour, and that date.
fn another_date(now: UnixMs) -> (i8, Day) {
    let utc = now.to_utc().expect("in range");
    let today = Day::in_utc(now).expect("in range");
    if utc.hour() >= 11 { (14, today.next().expect("in range")) } else { (-12, today.before(1).expect("in range")) }
}

async fn count(outbox: &Outbox, daemon: &Daemon, counted: u64) {
    let _: String = outbox.run("XADD", &["usage", "*", "subject", "alice", "units", "1"]).await;
    eventually("the event is counted", || async { (outbox.totals().await.counted == counted).then_some(()) }).await;
    assert!(!daemon.has_said("panicked"));
}

/// A changed clock rule must not need a restart: otherwise days, limits and alerts would be wrong by an hour.
#[tokio::test]
async fn an_update_of_zone_data_moves_the_days_of_a_running_daemon() {
    let outbox = Outbox::start();
    let folder = ZoneFolder::new("2031a", 0);
    let _: () = outbox.run("HSET", &["quota_subject:alice", "timezone", ZONE, "limit:requests", "1000"]).await;
    let mut daemon = DaemonSetup::on(&outbox.server.url()).env("TZDIR", folder.variable()).start().await;
    let api = Caller::at(daemon.http().await);
    count(&outbox, &daemon, 1).await;
    let seconds: (i64, i64) = outbox.run("TIME", &[] as &[&str]).await;
    let now = UnixMs(seconds.0 * 1000);
    let (hours, moved) = another_date(now);
    let used = |day: Day| {
        let line = format!("history alice --from {day} --to {day} --json");
        quotabell(line.split(' ')).redis(&outbox.server.url()).env("TZDIR", folder.variable()).run().expect_json()
    };
    assert_eq!(used(Day::in_utc(now).expect("in range"))[0]["metrics"][0]["days"][0]["used"], 1);

    folder.write("2031b", hours);
    let said = daemon.says("new zone data are in effect").await;
    assert!(said.contains("2031b"), "{said}");
    count(&outbox, &daemon, 2).await;
    assert_eq!(used(moved)[0]["metrics"][0]["days"][0]["used"], 1);
    let checked = api.post("/v1/check", &json!({"subject": "alice"})).await.json();
    assert_eq!(checked["limits"][0]["period"], moved.to_string(), "{checked}");
    let metrics = daemon.get("/metrics").await.body;
    let shown = metrics.lines().filter(|line| line.starts_with("quotabell_zone_data_info{") && line.ends_with(" 1"));
    assert_eq!(shown.collect::<Vec<_>>(), [r#"quotabell_zone_data_info{source="TZDIR",version="2031b"} 1"#]);
}

/// A daemon without file descriptors must not replace the system's rules by the bundled ones for every zone.
#[tokio::test]
async fn a_folder_that_cannot_be_looked_at_stays_in_use() {
    let outbox = Outbox::start();
    let folder = ZoneFolder::new("2031a", 3);
    let place = tempfile::tempdir().expect("a folder");
    let link = place.path().join("zoneinfo");
    std::os::unix::fs::symlink(folder.path(), &link).expect("linked");
    let _: () = outbox.run("HSET", &["quota_subject:alice", "timezone", ZONE]).await;
    let setup = DaemonSetup::on(&outbox.server.url()).env("TZDIR", link.to_str().expect("UTF-8"));
    let mut daemon = setup.start().await;
    count(&outbox, &daemon, 1).await;

    // A link to itself causes an error other than a missing file, also for root.
    std::fs::remove_file(&link).expect("it is there");
    std::os::unix::fs::symlink(&link, &link).expect("linked");
    daemon.says("could not read a zone: it keeps its rules").await;
    assert!(!daemon.has_said("new zone data are in effect"));
    assert!(daemon.get("/metrics").await.body.contains("{source=\"TZDIR\",version=\"2031a\"} 1"));
}

/// An operator must be able to see which zone data a daemon uses.
#[test]
fn source_and_version_of_the_zone_data_are_printed() {
    let folder = ZoneFolder::new("2031a", 3);
    let said = format!("zone data: IANA 2031a in {} (TZDIR)\n", folder.variable());
    let with_folder = |line: &str| quotabell(line.split(' ')).env("TZDIR", folder.variable()).run();
    let version = concat!("quotabell ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(with_folder("--version").expect_done(), version);
    for line in ["--version --verbose", "--verbose -V"] {
        assert_eq!(with_folder(line).expect_done(), format!("{version}{said}"), "{line}");
    }
    let checked = with_folder("check-config --offline");
    assert!(checked.code == 0 && checked.stderr.contains(&format!("ok: {said}")), "{}", checked.told());
    let absent = quotabell(["check-config", "--offline"]).env("TZDIR", "/nonexistent").run();
    let warning = "warning: TZDIR names /nonexistent, which has no zone data: the bundled data are used\n";
    assert!(absent.code == 0 && absent.stderr.contains(warning), "{}", absent.told());
    assert!(absent.stderr.contains("ok: zone data: IANA 20"), "{}", absent.told());
    let alone = quotabell(["--verbose", "check-config", "--offline"]).run();
    assert!(alone.code == 2 && alone.stderr.contains("--verbose goes with --version alone"), "{}", alone.told());
}
