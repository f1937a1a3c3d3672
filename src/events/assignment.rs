//! Which daemon should read which partition: rendezvous hashing, with an equal share for each daemon. Pure.
//!
//! Every daemon computes the assignment by itself from the list of live daemons, so no election is needed. If two
//! daemons see different lists for a moment, both want the same partition, or neither does. The partition's lease lets
//! only one of them read, and the next look at the list ends the disagreement.

use sha2::{Digest, Sha256};

use super::daemon_name::DaemonName;

/// The partitions of one daemon, as numbers below `count`, ascending.
///
/// Each partition ranks the daemons by a hash of both and goes to the first daemon that has room for one more. A daemon
/// takes its equal share; if the partitions do not divide evenly, some daemons take one more. When a daemon joins or
/// leaves, hardly more partitions move than the ones it takes over or leaves behind.
pub fn partitions_of(me: &DaemonName, daemons: &[DaemonName], count: u32) -> Vec<u32> {
    let mut daemons: Vec<&DaemonName> = daemons.iter().collect();
    daemons.sort_unstable();
    daemons.dedup();
    let (Some(share), Some(mut extras)) = (count.checked_div(len(&daemons)), count.checked_rem(len(&daemons))) else {
        return Vec::new();
    };
    let mut taken = vec![0; daemons.len()];
    let mut mine = Vec::new();
    for partition in 0..count {
        let mut ranked: Vec<usize> = (0..daemons.len()).collect();
        ranked.sort_by_cached_key(|at| rank(daemons[*at], partition));
        let can_take_one = |at: &usize| taken[*at] < share || taken[*at] == share && extras > 0;
        let Some(at) = ranked.into_iter().find(can_take_one) else { continue };
        extras -= u32::from(taken[at] == share);
        taken[at] += 1;
        if daemons[at] == me {
            mine.push(partition);
        }
    }
    mine
}

fn len(daemons: &[&DaemonName]) -> u32 {
    u32::try_from(daemons.len()).unwrap_or(u32::MAX)
}

/// Ranks a daemon by host and address, so that a daemon that restarts there reads the same partitions.
fn rank(daemon: &DaemonName, partition: u32) -> [u8; 32] {
    Sha256::new().chain_update(daemon.address_prefix()).chain_update(partition.to_be_bytes()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn daemons(count: usize) -> Vec<DaemonName> {
        (0..count).map(|at| DaemonName::new(&format!("host-{at}"), ([10, 0, 0, 1], 9464).into())).collect()
    }

    fn readers(daemons: &[DaemonName], count: u32) -> Vec<usize> {
        let mut readers = vec![usize::MAX; count as usize];
        for (at, daemon) in daemons.iter().enumerate() {
            for partition in partitions_of(daemon, daemons, count) {
                assert_eq!(readers[partition as usize], usize::MAX, "two want partition {partition}");
                readers[partition as usize] = at;
            }
        }
        readers
    }

    proptest! {
        /// A partition that nobody wants is never counted, and one daemon with most of them is the bottleneck.
        #[test]
        fn each_partition_has_one_reader_and_each_daemon_its_share(alive in 1_usize..9, count in 1_u32..64) {
            let daemons = daemons(alive);
            let readers = readers(&daemons, count);
            prop_assert!(readers.iter().all(|reader| *reader < alive), "{readers:?}");
            for at in 0..alive {
                let share = readers.iter().filter(|reader| **reader == at).count();
                prop_assert!(share == count as usize / alive || share == (count as usize).div_ceil(alive), "{readers:?}");
            }
            // The order of the list does not matter.
            let mut reversed = daemons.clone();
            reversed.reverse();
            for daemon in &daemons {
                prop_assert_eq!(partitions_of(daemon, &daemons, count), partitions_of(daemon, &reversed, count));
            }
        }

        /// A daemon that takes over a partition reads all of its state again: when one daemon leaves, the partitions of
        /// the others must not move.
        #[test]
        fn a_daemon_that_leaves_moves_few_partitions(alive in 2_usize..9, count in 8_u32..64) {
            let all = daemons(alive);
            let before = readers(&all, count);
            let after = readers(&all[..alive - 1], count);
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
            let has_to = before.iter().filter(|reader| **reader == alive - 1).count();
            prop_assert!(moved <= 3 * has_to + 1, "{moved} of {count} moved, {has_to} had to");
        }
    }

    /// A daemon that does not know the list yet must not take what others read.
    #[test]
    fn without_daemons_nobody_has_a_partition() {
        let me = &daemons(1)[0];
        assert_eq!(partitions_of(me, &[], 4), [0; 0]);
        assert_eq!(partitions_of(me, &daemons(0), 4), [0; 0]);
    }

    /// A rolling restart should move each partition once at most.
    #[test]
    fn a_daemon_that_is_started_again_reads_the_same_partitions() {
        let before = daemons(3);
        let mut after = before.clone();
        after[1] = DaemonName::new("host-1", ([10, 0, 0, 1], 9464).into());
        assert_ne!(before[1], after[1]);
        assert_eq!(partitions_of(&before[1], &before, 8), partitions_of(&after[1], &after, 8));
    }
}
