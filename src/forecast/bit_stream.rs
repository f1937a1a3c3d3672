//! A stream of bits, the lowest first, with short codes for small numbers. Pure.

/// Number of ones before a number that is written whole.
const WHOLE: u32 = 12;

/// Writes a stream.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that fill no byte yet, and their number.
    held: u64,
    held_bits: u32,
}

impl BitWriter {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Writes the lowest bits of a number: at most 32.
    pub(super) fn write(&mut self, number: u64, bits: u32) {
        debug_assert!(bits <= 32 && number >> bits == 0);
        self.held |= number << self.held_bits;
        self.held_bits += bits;
        while self.held_bits >= 8 {
            self.bytes.push((self.held & 0xff) as u8);
            self.held >>= 8;
            self.held_bits -= 8;
        }
    }

    /// Writes a number of any size, with its length.
    pub(super) fn write_number(&mut self, number: u64) {
        let bits = u64::BITS - number.leading_zeros();
        self.write(bits.into(), 7);
        self.write(number & 0xffff_ffff & ones(bits), bits.min(32));
        self.write(number >> 32, bits.saturating_sub(32));
    }

    /// Writes numbers of which most are small, by a Rice code: all with the same number of low bits, and a one for each
    /// multiple of what those can hold.
    pub(super) fn write_small(&mut self, numbers: &[u16]) {
        let (low, _) = rice(numbers);
        self.write(low.into(), 4);
        for number in numbers {
            let (number, high) = (u64::from(*number), u32::from(*number) >> low);
            if high < WHOLE {
                self.write(ones(high), high + 1);
                self.write(number & ones(low), low);
            } else {
                self.write(ones(WHOLE), WHOLE);
                self.write(number, 16);
            }
        }
    }

    /// The bytes. What the last one does not need is zero.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if self.held_bits > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes
    }
}

/// Number of bits that [`BitWriter::write_small`] needs.
pub(super) fn bits_of_small(numbers: &[u16]) -> u32 {
    rice(numbers).1
}

/// The number of low bits with the shortest code, and its length.
fn rice(numbers: &[u16]) -> (u32, u32) {
    let length = |low: u32, number: u16| match u32::from(number) >> low {
        high if high < WHOLE => high + 1 + low,
        _ => WHOLE + 16,
    };
    let total = |low: u32| 4 + numbers.iter().map(|number| length(low, *number)).sum::<u32>();
    (0..16).map(|low| (low, total(low))).min_by_key(|(_, total)| *total).expect("16 are tried")
}

/// That many ones.
const fn ones(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Reads a stream. Everything is `None` beyond its end.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    held: u64,
    held_bits: u32,
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, held: 0, held_bits: 0 }
    }

    /// Reads at most 32 bits.
    pub(super) fn read(&mut self, bits: u32) -> Option<u64> {
        while self.held_bits < bits {
            let (next, rest) = self.bytes.split_first()?;
            self.held |= u64::from(*next) << self.held_bits;
            self.held_bits += 8;
            self.bytes = rest;
        }
        let number = self.held & ones(bits);
        self.held >>= bits;
        self.held_bits -= bits;
        Some(number)
    }

    pub(super) fn read_bool(&mut self) -> Option<bool> {
        Some(self.read(1)? == 1)
    }

    pub(super) fn read_u16(&mut self, bits: u32) -> Option<u16> {
        u16::try_from(self.read(bits)?).ok()
    }

    pub(super) fn read_number(&mut self) -> Option<u64> {
        let bits = u32::try_from(self.read(7)?).ok().filter(|bits| *bits <= u64::BITS)?;
        let low = self.read(bits.min(32))?;
        Some(low | self.read(bits.saturating_sub(32))? << 32)
    }

    pub(super) fn read_small(&mut self, count: usize) -> Option<Vec<u16>> {
        let low = u32::try_from(self.read(4)?).ok()?;
        let mut next = || {
            let mut high = 0;
            while high < WHOLE && self.read_bool()? {
                high += 1;
            }
            if high == WHOLE { self.read_u16(16) } else { u16::try_from(u64::from(high) << low | self.read(low)?).ok() }
        };
        (0..count).map(|_| next()).collect()
    }

    /// `None` if anything is left but the zeros that fill the last byte.
    pub(super) fn end(self) -> Option<()> {
        (self.bytes.is_empty() && self.held == 0 && self.held_bits < 8).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A number that is read back as another one would change forecasts for weeks.
        #[test]
        fn what_is_written_is_read(
            number in any::<u64>(),
            bits in 0..=64_u32,
            small in prop::collection::vec(prop_oneof![0..200_u16, any::<u16>()], 0..40),
            flag in any::<bool>(),
        ) {
            let number = number & ones(bits);
            let mut writer = BitWriter::default();
            writer.write(u64::from(flag), 1);
            writer.write_small(&small);
            writer.write_number(number);
            let bytes = writer.into_bytes();
            let length = 1 + bits_of_small(&small) + 7 + u64::BITS - number.leading_zeros();
            prop_assert_eq!(bytes.len(), length.div_ceil(8) as usize);
            let read = |bytes: &[u8]| {
                let mut reader = BitReader::new(bytes);
                let read = (reader.read_bool()?, reader.read_small(small.len())?, reader.read_number()?);
                reader.end().map(|()| read)
            };
            prop_assert_eq!(read(&bytes), Some((flag, small.clone(), number)));
            prop_assert_eq!(read(&bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(read(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
