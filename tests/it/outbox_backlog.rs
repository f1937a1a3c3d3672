//! The order in which a backlog of one destination is sent.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use quotabell::outbox::{LeaseRequest, LeasedDelivery, SettleReply, Settlement, lease};
use quotabell::types::{DeliveryId, Outcome};

use crate::support::outbox::{LONG, Outbox, alert, all_due, delivery, settle, subject, webhook};

/// The newest delivery must not wait for a whole backlog, and the oldest ones must make progress.
#[tokio::test]
async fn of_a_backlog_the_newest_leave_beside_the_oldest() {
    let outbox = Outbox::start();
    let alerts: Vec<_> = (0..100).map(|n| alert(&subject(&format!("s{n:03}")), 80)).collect();
    for (n, alert) in alerts.iter().enumerate() {
        outbox.fan_out_new(alert, &[webhook("a")]).await;
        // Each was created at its own time.
        let id = delivery(alert, &webhook("a"));
        let () = outbox.run("ZADD", &[outbox.queue(&id).await.as_str(), "XX", &n.to_string(), id.as_str()]).await;
    }
    outbox.trust("https://a.test").await;
    let leased = lease(&outbox.client, &outbox.keys, all_due("t1", LONG)).await.expect("the lease works").leased;
    let taken: Vec<usize> =
        (0..100).filter(|n| leased.iter().any(|one| one.id == delivery(&alerts[*n], &webhook("a")))).collect();
    assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7, 92, 93, 94, 95, 96, 97, 98, 99]);
}
/// If only one is attempted at a time and followers are released, the oldest used to be chosen every time, and released
/// ones came before later alerts.
#[tokio::test]
async fn the_newest_is_attempted_soon_at_a_receiver_that_takes_its_time() {
    let outbox = Outbox::start();
    let raise = async |name: &str| {
        let alert = alert(&subject(name), 80);
        outbox.fan_out_new(&alert, &[webhook("a")]).await;
        delivery(&alert, &webhook("a"))
    };
    for number in 0..200 {
        raise(&number.to_string()).await;
    }
    outbox.trust("https://a.test").await;
    let lease = async |token: &str, followers_max| {
        let request = LeaseRequest { followers_max, ..all_due(token, LONG) };
        lease(&outbox.client, &outbox.keys, request).await.expect("the lease works").leased
    };
    // All places are taken, and one at a time becomes free.
    let mut running: VecDeque<LeasedDelivery> = lease("all", 0).await.into();
    let newest = raise("newest").await;
    // When each became due, which may be later than its creation: it may have been replayed.
    let queue = outbox.queue(&newest).await;
    let mut places = HashMap::new();
    for id in outbox.run::<Vec<String>>("ZRANGE", &[queue.as_str(), "0", "-1"]).await {
        let id = DeliveryId::from_stored(&id);
        let () = outbox.run("HSET", &[outbox.keys.delivery(&id).as_str(), "created_at_ms", "1"]).await;
        places.insert(id.clone(), outbox.due(&id).await.expect("it is due"));
    }
    let end = async |leased: &LeasedDelivery, settlement| {
        let LeasedDelivery { id, token, .. } = leased;
        let answer = settle(&outbox.client, &outbox.keys, id, token, &settlement).await;
        assert!(matches!(answer, Ok(SettleReply::Done(_))), "{answer:?}");
    };
    for attempt in 0..40 {
        let ended = running.pop_front().expect("all places are taken");
        end(&ended, Settlement::Delivered(Outcome::delivered())).await;
        let (leased, mut is_attempted) = (lease(&attempt.to_string(), 100).await, false);
        assert!(leased.iter().any(|leased| leased.follows), "some follow the one that is attempted");
        for leased in leased {
            match leased.follows {
                true => {
                    end(&leased, Settlement::Released(Duration::ZERO)).await;
                    assert_eq!(outbox.due(&leased.id).await, places.get(&leased.id).copied(), "it keeps its place");
                }
                false => {
                    is_attempted |= leased.id == newest;
                    running.push_back(leased);
                }
            }
        }
        if is_attempted {
            return;
        }
    }
    panic!("the newest still waits");
}
