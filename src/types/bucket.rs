//! Buckets: the hashes that share the counters of a metric and period.

/// Number of hashes for the counters of one metric and period. A subject needs about 64 bytes in them, and each hash is
/// small enough to expire without a noticeable pause of the server.
pub const BUCKETS: u16 = 256;

/// The CRC that Redis uses for hash slots.
const SLOT_CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

/// The number of the hash with a subject's counters: CRC-16/XMODEM of the subject, modulo 256.
pub fn bucket(subject: &str) -> u8 {
    (SLOT_CRC.checksum(subject.as_bytes()) % BUCKETS) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// External tools compute the bucket themselves: CRC-16/XMODEM, as for Redis slots.
    #[test]
    fn the_bucket_is_crc16_xmodem_modulo_256() {
        // The check value of CRC-16/XMODEM over "123456789" is 0x31c3.
        assert_eq!(bucket("123456789"), 0xc3);
    }
}
