//! A stream that others trim, delete or recreate: losses are noticed, existing entries are counted once.

use crate::support::eventually::eventually;
use crate::support::partition::Partition;
use quotabell::types::Day;

/// Adds an entry that is trimmed before anybody can have read it.
async fn lose_an_entry(partition: &Partition) {
    let mut both = redis::pipe();
    both.atomic().cmd("XADD").arg("usage").arg("*").arg("subject").arg("lost").ignore();
    both.cmd("XTRIM").arg("usage").arg("MAXLEN").arg(0).ignore();
    let () = partition.client.pipe(&both).await.expect("done");
}

/// Entries that a producer trimmed before they were read are counted as missing, and the group's lag stays correct.
#[tokio::test]
async fn entries_trimmed_before_they_were_read_are_noticed() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    lose_an_entry(&partition).await;
    eventually("the gap is booked", || async {
        let read: u64 = partition.run(&["HGET", &partition.keys.checkpoint(), "entries_read"]).await;
        (read == 2).then_some(())
    })
    .await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(2));
}

/// A recreated stream with lower ids would never be read, because XREAD after the checkpoint finds nothing.
#[tokio::test]
async fn a_stream_made_again_is_read_from_its_beginning() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    partition.run::<u64>(&["DEL", "usage"]).await;
    partition.run::<String>(&["XADD", "usage", "1700000000000-0", "subject", "alice"]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", Day::parse("2023-11-14").expect("a date")).await, Some(1));
}

/// After the largest possible id Redis refuses to search. If that counted as an error, a completely counted stream
/// would look stopped.
#[tokio::test]
async fn a_stream_whose_ids_are_used_up_is_counted_to_its_end_and_so_is_its_successor() {
    let partition = Partition::with_worker().await;
    let last = "18446744073709551615-18446744073709551615";
    partition.run::<String>(&["XADD", "usage", last, "subject", "alice"]).await;
    eventually("it is audited", || async {
        let audited: Option<String> = partition.run(&["HGET", &partition.keys.checkpoint(), "audited"]).await;
        (audited.as_deref() == Some(last)).then_some(())
    })
    .await;
    partition.run::<u64>(&["DEL", "usage"]).await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(2));
}

/// If only the checkpoint is deleted, the existing entries must not be counted a second time.
#[tokio::test]
async fn a_checkpoint_that_is_deleted_stops_the_counting_until_it_is_mended() {
    let partition = Partition::with_worker().await;
    let counted = partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    let checkpoint = partition.keys.checkpoint();
    partition.run::<u64>(&["DEL", &checkpoint]).await;
    partition.run::<String>(&["CONFIG", "RESETSTAT"]).await;
    partition.add(&[(b"subject", b"alice")]).await;
    // Nothing else reads totals.
    eventually("the totals are looked at again and again", || async {
        let stats: String = partition.run(&["INFO", "commandstats"]).await;
        let calls = stats.split("cmdstat_hget:calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
        calls.filter(|calls| *calls >= 2)
    })
    .await;
    let today = partition.today().await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(1));
    partition.run::<u64>(&["HSET", &checkpoint, "id", &counted]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(2));
}

/// A recreated stream may have entries on both sides of the old checkpoint: XREAD after it would skip the lower ones
/// forever.
#[tokio::test]
async fn a_stream_made_again_around_the_checkpoint_is_read_from_its_beginning() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    let mut again = redis::pipe();
    again.atomic().cmd("DEL").arg("usage").ignore();
    again.cmd("XADD").arg("usage").arg("1700000000000-0").arg("subject").arg("alice").ignore();
    again.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").ignore();
    let () = partition.client.pipe(&again).await.expect("done");
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", Day::parse("2023-11-14").expect("a date")).await, Some(1));
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(2));
}

/// Existing entries before the checkpoint do not mean another stream: otherwise they would be counted twice.
#[tokio::test]
async fn an_entry_deleted_or_trimmed_at_the_checkpoint_is_no_new_stream() {
    let partition = Partition::with_worker().await;
    for trimming in [None, Some("0")] {
        for _ in 0..3 {
            partition.add(&[(b"subject", b"alice")]).await;
        }
        partition.caught_up().await;
        let last: String = partition.run(&["HGET", &partition.keys.checkpoint(), "id"]).await;
        match trimming {
            None => partition.run::<u64>(&["XDEL", "usage", &last]).await,
            Some(length) => partition.run::<u64>(&["XTRIM", "usage", "MAXLEN", length]).await,
        };
        partition.add(&[(b"subject", b"alice")]).await;
        partition.caught_up().await;
    }
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(8));
}

/// A blocking read never reaches the end of a busy stream: the gap would be reported late or never.
#[tokio::test]
async fn entries_trimmed_from_a_busy_stream_are_noticed() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    lose_an_entry(&partition).await;
    let mut added = 2;
    eventually("the gap is booked", || {
        added += 1;
        let partition = &partition;
        async move {
            partition.add(&[(b"subject", b"alice")]).await;
            partition.caught_up().await;
            let read: u64 = partition.run(&["HGET", &partition.keys.checkpoint(), "entries_read"]).await;
            (read == added).then_some(())
        }
    })
    .await;
}

/// After FLUSHALL the daemon counts new events; nothing old is left to compare with.
#[tokio::test]
async fn counting_goes_on_after_flushall() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"5")]).await;
    partition.caught_up().await;
    partition.run::<String>(&["FLUSHALL"]).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"2")]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(2));
}
