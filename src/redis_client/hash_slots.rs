//! Hash slots: the slot of a key, the key of a command, the primary of a slot. Pure.

use std::sync::Arc;

use redis::{Arg, Cmd};

use super::node::RedisNode;

/// Number of slots in a cluster.
pub const SLOTS: u16 = 16384;

const SLOT_CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

/// A hash slot of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSlot(u16);

impl HashSlot {
    /// The slot of a key: of the text between its first pair of braces, if that is not empty.
    pub fn of_key(key: &[u8]) -> Self {
        let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
            let behind = &key[open + 1..];
            let length = behind.iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
            Some(&behind[..length])
        });
        Self(SLOT_CRC.checksum(tag.unwrap_or(key)) % SLOTS)
    }

    /// The slot of a command's first key; `None` for a command that names no key.
    pub fn of_command(command: &Cmd) -> Option<Self> {
        let mut words = command.args_iter().map(|word| match word {
            Arg::Simple(bytes) => bytes,
            _ => b"",
        });
        let name = words.next()?.to_ascii_uppercase();
        let key = match name.as_slice() {
            b"ACL" | b"ASKING" | b"AUTH" | b"CLIENT" | b"CLUSTER" | b"COMMAND" | b"CONFIG" | b"DISCARD" | b"EXEC"
            | b"FLUSHALL" | b"FLUSHDB" | b"INFO" | b"KEYS" | b"MULTI" | b"PING" | b"ROLE" | b"SCAN" | b"SCRIPT"
            | b"SELECT" | b"TIME" => None,
            b"EVAL" | b"EVALSHA" => words.nth(1).filter(|count| *count != b"0").and_then(|_| words.next()),
            b"OBJECT" | b"XGROUP" | b"XINFO" => words.nth(1),
            b"XREAD" => words.skip_while(|word| !word.eq_ignore_ascii_case(b"STREAMS")).nth(1),
            _ => words.next(),
        };
        key.map(Self::of_key)
    }
}

/// A range of slots with one primary.
#[derive(Debug, Clone)]
pub struct HashSlotRange {
    /// The first slot.
    pub first: u16,
    /// The last slot, inclusive.
    pub last: u16,
    /// The primary that serves them.
    pub primary: Arc<RedisNode>,
}

/// Which primary serves which slot.
#[derive(Debug, Clone)]
pub struct HashSlotMap {
    /// Sorted by slot.
    ranges: Vec<HashSlotRange>,
    primaries: Vec<Arc<RedisNode>>,
}

impl HashSlotMap {
    /// Builds the map from ranges in any order and all primaries, including those without slots.
    pub fn new(mut ranges: Vec<HashSlotRange>, mut primaries: Vec<Arc<RedisNode>>) -> Self {
        ranges.sort_by_key(|range| range.first);
        primaries.sort_by_key(|node| node.address.to_string());
        Self { ranges, primaries }
    }

    /// A map in which one primary serves all slots.
    pub fn whole(primary: Arc<RedisNode>) -> Self {
        Self::new(vec![HashSlotRange { first: 0, last: SLOTS - 1, primary: Arc::clone(&primary) }], vec![primary])
    }

    /// The primary of the slot; `None` if there is none.
    pub fn primary_of(&self, HashSlot(slot): HashSlot) -> Option<&Arc<RedisNode>> {
        let behind = self.ranges.partition_point(|range| range.first <= slot);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        (slot <= range.last).then_some(&range.primary)
    }

    /// Every primary, sorted by address.
    pub fn primaries(&self) -> &[Arc<RedisNode>] {
        &self.primaries
    }

    /// The addresses of the primaries, for the log.
    pub fn addresses(&self) -> String {
        self.primaries.iter().map(|node| node.address.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Number of slots that have a primary.
    pub fn covered(&self) -> usize {
        self.ranges.iter().map(|range| usize::from(range.last) + 1 - usize::from(range.first)).sum()
    }

    /// The slots without a primary, such as `0-5460, 16383`; `None` if all have one.
    pub fn uncovered(&self) -> Option<String> {
        let mut gaps = Vec::new();
        let mut next = 0;
        let ends = self.ranges.iter().map(|range| (range.first, range.last)).chain([(SLOTS, SLOTS)]);
        for (first, last) in ends {
            match first.saturating_sub(next) {
                0 => {}
                1 => gaps.push(next.to_string()),
                _ => gaps.push(format!("{next}-{}", first - 1)),
            }
            next = next.max(last.saturating_add(1));
        }
        (!gaps.is_empty()).then(|| gaps.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot_of(words: &[&str]) -> Option<HashSlot> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        HashSlot::of_command(&command)
    }

    /// A wrong slot would send every command for the key to the wrong server first.
    #[test]
    fn slots_are_those_of_redis() {
        // Values from CLUSTER KEYSLOT; the first is the check value of the CRC.
        assert_eq!(HashSlot::of_key(b"123456789"), HashSlot(0x31c3));
        assert_eq!(HashSlot::of_key(b"foo"), HashSlot(12182));
        for (key, tag) in [("due:{usage}", "usage"), ("x{a}{b}", "a"), ("{{a}}", "{a")] {
            assert_eq!(HashSlot::of_key(key.as_bytes()), HashSlot(SLOT_CRC.checksum(tag.as_bytes()) % SLOTS), "{key}");
        }
        for whole in ["{}a", "{a", "a}b{", "a{}{b}"] {
            assert_eq!(
                HashSlot::of_key(whole.as_bytes()),
                HashSlot(SLOT_CRC.checksum(whole.as_bytes()) % SLOTS),
                "{whole}"
            );
        }
    }

    /// If the router took another word for the key, it would send the command to a server without that key.
    #[test]
    fn the_key_of_a_command_is_found() {
        let key = Some(HashSlot::of_key(b"k"));
        for words in [
            &["HGETALL", "k"][..],
            &["evalsha", "abc", "2", "k", "l", "x"],
            &["XREAD", "COUNT", "1", "streams", "k", "0-0"],
            &["XINFO", "STREAM", "k"],
            &["XGROUP", "CREATE", "k", "g", "0-0"],
            &["XADD", "k", "*", "a", "b"],
        ] {
            assert_eq!(slot_of(words), key, "{words:?}");
        }
        for words in [&["TIME"][..], &["SCRIPT", "LOAD", "k"], &["EVALSHA", "abc", "0", "k"], &["SCAN", "0"]] {
            assert_eq!(slot_of(words), None, "{words:?}");
        }
    }

    fn range(first: u16, last: u16, port: u16) -> HashSlotRange {
        HashSlotRange { first, last, primary: Arc::new(RedisNode::local(port)) }
    }

    /// A gap that the start overlooks would later cause errors for single subjects.
    #[test]
    fn every_slot_has_its_primary_or_is_named() {
        let map =
            HashSlotMap::new(vec![range(10_923, 16_383, 3), range(0, 5460, 1), range(5461, 10_922, 2)], Vec::new());
        assert_eq!(map.uncovered(), None);
        for (slot, port) in [(0, 1), (5460, 1), (5461, 2), (10_922, 2), (10_923, 3), (16_383, 3)] {
            let primary = map.primary_of(HashSlot(slot)).expect("it is served");
            assert_eq!(primary.address, RedisNode::local(port).address, "{slot}");
        }
        let map = HashSlotMap::new(vec![range(1, 1, 1), range(3, 100, 1), range(103, 16_382, 2)], Vec::new());
        assert_eq!(map.uncovered().as_deref(), Some("0, 2, 101-102, 16383"));
        for slot in [0, 2, 101, 16_383] {
            assert!(map.primary_of(HashSlot(slot)).is_none(), "{slot}");
        }
        assert_eq!(HashSlotMap::new(Vec::new(), Vec::new()).uncovered().as_deref(), Some("0-16383"));
        assert_eq!(HashSlotMap::whole(Arc::new(RedisNode::local(1))).uncovered(), None);
    }
}
