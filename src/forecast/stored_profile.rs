//! The stored form of a profile. Pure.
//!
//! The form is a stream of bits. Shares and hours differ little from those of the hour before, so the differences are
//! stored.

use super::bit_stream::{BitReader, BitWriter, bits_of_small};
use super::profile::{DayHours, FACTOR_ONE, HOURS, UsageProfile};

/// Maximum length of the stored form, bytes. Most take 75 to 105.
const STORED_BYTES_MAX: usize = 200;
/// The first byte of the stored form.
const VERSION: u8 = 3;

/// Number of the lowest bits of the shares that are not stored: they say less than a day teaches.
const SHARE_BITS_LOST: u32 = 4;
/// What the first of 24 shares differs from: a 24th of 4095.
const SHARE_FIRST: u16 = 170;
/// What the first hour differs from: 32 units.
const HOUR_FIRST: u16 = 0x4200;

impl UsageProfile {
    /// The stored form.
    pub fn to_stored(&self) -> Vec<u8> {
        let Self { level, week, shares, seen, miss, days, today, counted, is_partial } = self;
        let [first, second] = &shares.map(|of| short_shares(&of, *days));
        let mut bits = BitWriter::with_capacity(STORED_BYTES_MAX);
        bits.write(VERSION.into(), 8);
        bits.write(level.to_bits().into(), 32);
        seen.iter().for_each(|seen| bits.write((*seen).into(), 8));
        [miss, days].iter().for_each(|number| bits.write((**number).into(), 16));
        bits.write_number(today.day.cast_unsigned().into());
        bits.write_number(*counted);
        bits.write((*is_partial).into(), 1);
        bits.write_small(&week.map(|factor| difference(factor, FACTOR_ONE as u16)));
        bits.write_small(&changes(first, SHARE_FIRST));
        // What is nearer: the hour before, or the same hour of the other kind of day.
        let (by_hour, by_kind) = (changes(second, SHARE_FIRST), differences(second, first));
        let is_by_kind = bits_of_small(&by_kind) < bits_of_small(&by_hour);
        bits.write(is_by_kind.into(), 1);
        bits.write_small(if is_by_kind { &by_kind } else { &by_hour });
        let used = today.hours.iter().rposition(|hour| *hour != 0).map_or(0, |last| last + 1);
        let (until, _) = today.hours.split_at(used);
        let has_gaps = until.contains(&0);
        bits.write(used as u64, 5);
        bits.write(has_gaps.into(), 1);
        if has_gaps {
            until.iter().for_each(|hour| bits.write((*hour != 0).into(), 1));
        }
        let with_usage: Vec<u16> = until.iter().copied().filter(|hour| *hour != 0).collect();
        bits.write_small(&changes(&with_usage, HOUR_FIRST));
        bits.into_bytes()
    }

    /// Reads the stored form. `None` if it is cut, or of another version.
    pub fn from_stored(stored: &[u8]) -> Option<Self> {
        let packed = stored.strip_prefix(&[VERSION])?;
        Self::from_packed(packed).filter(|Self { level, today, .. }| {
            let is_valid = |number: f64| number.is_finite() && number >= 0.0;
            is_valid((*level).into()) && today.units().into_iter().all(is_valid)
        })
    }

    fn from_packed(packed: &[u8]) -> Option<Self> {
        let mut bits = BitReader::new(packed);
        let level = f32::from_bits(u32::try_from(bits.read(32)?).ok()?);
        let mut seen = || u8::try_from(bits.read(8)?).ok();
        let seen = [seen()?, seen()?];
        let (miss, days) = (bits.read_u16(16)?, bits.read_u16(16)?);
        let day = u32::try_from(bits.read_number()?).ok()?.cast_signed();
        let (counted, is_partial) = (bits.read_number()?, bits.read_bool()?);
        let week = bits.read_small(7)?.into_iter().map(|factor| restored(FACTOR_ONE as u16, factor));
        let week = week.collect::<Vec<_>>().try_into().ok()?;
        let first = summed(&bits.read_small(HOURS)?, SHARE_FIRST);
        let is_by_kind = bits.read_bool()?;
        let second = bits.read_small(HOURS)?;
        let second = match is_by_kind {
            true => first.iter().zip(second).map(|(other, difference)| restored(*other, difference)).collect(),
            false => summed(&second, SHARE_FIRST),
        };
        let shares: [[u16; HOURS]; 2] = [first.try_into().ok()?, second.try_into().ok()?];
        let shares = shares.map(|of| of.map(|share| share << SHARE_BITS_LOST));
        let used = usize::from(bits.read_u16(5)?);
        let has_gaps = bits.read_bool()?;
        let mut has_usage = [false; HOURS];
        for hour in has_usage.get_mut(..used)? {
            *hour = !has_gaps || bits.read_bool()?;
        }
        let with_usage = has_usage.iter().filter(|has_usage| **has_usage).count();
        let mut with_usage = summed(&bits.read_small(with_usage)?, HOUR_FIRST).into_iter();
        let hours = has_usage.map(|has_usage| has_usage.then(|| with_usage.next()).flatten().unwrap_or_default());
        bits.end()?;
        let today = DayHours { day, hours };
        Some(Self { level, week, shares, seen, miss, days, today, counted, is_partial })
    }
}

/// The shares without their lowest bits, rounded up or down by a number that is different each day.
///
/// If the nearest were always taken, small changes would be lost day after day.
fn short_shares(shares: &[u16; HOURS], days: u16) -> [u16; HOURS] {
    let first = u32::from(days) * HOURS as u32;
    std::array::from_fn(|hour| {
        let added = (first + hour as u32).wrapping_mul(0x9E37_79B9) >> (u32::BITS - SHARE_BITS_LOST);
        shares[hour].saturating_add(added as u16) >> SHARE_BITS_LOST
    })
}

/// How a number differs from a similar one: small for both signs.
const fn difference(number: u16, from: u16) -> u16 {
    let signed = number.wrapping_sub(from).cast_signed();
    ((signed << 1) ^ (signed >> 15)).cast_unsigned()
}

/// The number that differs from this one by so much.
const fn restored(from: u16, difference: u16) -> u16 {
    let signed = (difference >> 1) ^ (difference & 1).wrapping_neg();
    from.wrapping_add(signed)
}

fn differences(numbers: &[u16], from: &[u16]) -> Vec<u16> {
    numbers.iter().zip(from).map(|(number, from)| difference(*number, *from)).collect()
}

/// How each number differs from the one before.
fn changes(numbers: &[u16], first: u16) -> Vec<u16> {
    let before = std::iter::once(&first).chain(numbers);
    numbers.iter().zip(before).map(|(number, before)| difference(*number, *before)).collect()
}

/// The numbers with these changes.
fn summed(changes: &[u16], first: u16) -> Vec<u16> {
    let next = |before: &mut u16, change: &u16| {
        *before = restored(*before, *change);
        Some(*before)
    };
    changes.iter().scan(first, next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hours() -> impl Strategy<Value = [u16; HOURS]> {
        let hour = prop_oneof![Just(0), 0x3f80..0x4800_u16, 0..0x7f80_u16];
        prop_oneof![Just([0; HOURS]), prop::array::uniform24(0x4280..0x4400_u16), prop::array::uniform24(hour)]
    }

    fn shares() -> impl Strategy<Value = [u16; HOURS]> {
        prop_oneof![prop::array::uniform24(2_000..4_000_u16), prop::array::uniform24(any::<u16>())]
    }

    prop_compose! {
        fn profiles()(
            level in prop_oneof![Just(0.0_f32), 0.0..f32::MAX],
            week in prop_oneof![prop::array::uniform7(3_000..5_000_u16), prop::array::uniform7(any::<u16>())],
            shares in [shares(), shares()],
            seen in any::<[u8; 2]>(),
            (miss, days) in any::<(u16, u16)>(),
            (day, hours) in (prop_oneof![20_000..30_000, any::<i32>()], hours()),
            (counted, is_partial) in any::<(u64, bool)>(),
        ) -> UsageProfile {
            let today = DayHours { day, hours };
            UsageProfile { level, week, shares, seen, miss, days, today, counted, is_partial }
        }
    }

    proptest! {
        /// A profile that is read back as another one would change forecasts for weeks.
        #[test]
        fn any_profile_is_read_back(profile in profiles()) {
            let stored = profile.to_stored();
            prop_assert!(stored.len() <= STORED_BYTES_MAX, "{} bytes", stored.len());
            let read = UsageProfile::from_stored(&stored).expect("it was just stored");
            prop_assert_eq!(&read.to_stored(), &stored, "shares change each time");
            for (read, share) in read.shares.as_flattened().iter().zip(profile.shares.as_flattened()) {
                prop_assert!(read.abs_diff(*share) < 16, "{} instead of {}", read, share);
            }
            prop_assert_eq!(UsageProfile { shares: profile.shares, ..read }, profile.clone());
            prop_assert_eq!(UsageProfile::from_stored(&stored[..stored.len() - 1]), None);
            prop_assert_eq!(UsageProfile::from_stored(&[&stored[..], b"x"].concat()), None);
            prop_assert_eq!(UsageProfile::from_stored(&[&[VERSION + 1], &stored[1..]].concat()), None);
        }

        #[test]
        fn whatever_is_stored_leaves_numbers_that_can_be_computed_with(
            stored in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            if let Some(read) = UsageProfile::from_stored(&[&[VERSION], &stored[..]].concat()) {
                prop_assert!(read.level.is_finite() && read.today.units().iter().all(|units| *units >= 0.0));
            }
        }
    }

    #[test]
    fn a_profile_with_numbers_that_are_none_is_not_read() {
        let profile = UsageProfile::new(&[1.0 / 24.0; HOURS]);
        for level in [f32::NAN, f32::INFINITY, -1.0] {
            let profile = UsageProfile { level, ..profile.clone() };
            assert_eq!(UsageProfile::from_stored(&profile.to_stored()), None);
        }
        let mut endless = profile;
        endless.today.hours[23] = 0x7f80;
        assert_eq!(UsageProfile::from_stored(&endless.to_stored()), None, "an hour is infinite");
        assert_eq!(UsageProfile::from_stored(b""), None);
    }
}
