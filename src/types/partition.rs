//! The partition of a subject. Producers in any language compute the same: CRC-32 of the subject, or of its first part,
//! modulo the number of partitions.

use std::fmt;

use super::Separator;

/// Maximum number of partitions. A start looks for the state of every other number, and each daemon asks each partition
/// about once a second for due deliveries; 256 are far more than one cluster needs.
pub const PARTITIONS_MAX: u32 = 256;

const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

/// The number of a partition, with the count of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionNumber {
    number: u32,
    count: u32,
}

impl PartitionNumber {
    /// The first of `count` partitions. A count of 0 counts as 1, here and below.
    pub const fn first(count: u32) -> Self {
        Self { number: 0, count: if count == 0 { 1 } else { count } }
    }

    /// The partition of a subject: CRC-32 (IEEE, as in zlib and gzip) of its first part modulo `count`.
    pub fn of_subject(subject: &[u8], separator: Separator, count: u32) -> Self {
        let Self { count, .. } = Self::first(count);
        Self { number: CRC.checksum(separator.root(subject)) % count, count }
    }

    /// Every partition, in order.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        let Self { count, .. } = Self::first(count);
        (0..count).map(move |number| Self { number, count })
    }

    /// The number, from 0.
    pub const fn get(self) -> u32 {
        self.number
    }

    /// The count of partitions.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The name of its stream, from the common name of the streams: the same if there is only one partition.
    pub fn stream(self, name: &str) -> String {
        if self.count == 1 { name.to_owned() } else { format!("{name}:{}", self.number) }
    }
}

/// The number alone, as in metrics.
impl fmt::Display for PartitionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A producer that computes another number would send everything to the wrong stream. The documents show the same
    /// values.
    #[test]
    fn partitions_follow_the_published_checksums() {
        for (subject, checksum) in [
            ("123456789", 0xcbf4_3926_u32),
            ("alice", 0x278e_bc47),
            ("kunde-é-😀", 0x2a30_3b1e),
            ("The quick brown fox jumps over the lazy dog", 0x414f_a339),
        ] {
            for count in [1, 2, 3, 4, 8, 256] {
                let partition = PartitionNumber::of_subject(subject.as_bytes(), Separator::NONE, count);
                assert_eq!((partition.get(), partition.count()), (checksum % count, count), "{subject}");
            }
        }
    }

    /// A tree must be in one partition, so that one commit counts an event at all its levels.
    #[test]
    fn a_tree_is_in_the_partition_of_its_first_part() {
        let slash = "/".parse().expect("legal");
        let of = |subject: &str| PartitionNumber::of_subject(subject.as_bytes(), slash, 256);
        assert_eq!((of("alice/search/key-7"), of("alice/search")), (of("alice"), of("alice")));
    }

    /// A stream that started with one partition keeps its name.
    #[test]
    fn streams_bear_their_number_where_there_are_several() {
        let names = |count| PartitionNumber::all(count).map(|one| one.stream("usage")).collect::<Vec<_>>();
        assert_eq!(names(1), ["usage"]);
        assert_eq!(names(3), ["usage:0", "usage:1", "usage:2"]);
    }
}
