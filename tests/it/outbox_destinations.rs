//! The queues of destinations on a real server: a hanging or failing destination delays no others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::receivers::HttpCatcher;
use quotabell::channels::ChannelSettings;
use quotabell::channels::email::EmailConfig;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::config::Config;
use quotabell::contacts::Contact;
use quotabell::contacts::resolver::ContactResolver;
use quotabell::outbox::lease::LEASE_MAX;
use quotabell::outbox::{
    DestinationCounts, DispatcherConfig, FanOutLoop, LEASE_MARGIN, LeaseRequest, LeasedDelivery, MultiplePolicy,
    OutboxContext, SettleRequest, Settlement, Slots, lease,
};
use quotabell::types::{DeliveryId, Destination, Outcome, OutcomeClass, Secret, UnixMs};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::eventually::WAIT_MAX;
use crate::support::notifier::{NoConsentRequests, Sending};
use crate::support::outbox::{
    GIVE_UP_AFTER, LONG, Outbox, alert, all_due, delivery, delivery_config, email, json, outcome, settle, subject,
    until, webhook,
};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, until_ended};
use crate::support::scripted_server::{REQUEST, ScriptedServer, Step};
use crate::support::webhook_receiver::secret;

/// One alert of a subject with this contact, in the outbox.
async fn raised(outbox: &Outbox, name: &str, contact: Contact) {
    let subject = subject(name);
    outbox.set_contacts(&subject, &json(&[contact])).await;
    outbox.raise(&alert(&subject, 80)).await;
}

fn hook(url: &str) -> Contact {
    Contact::webhook(url, Secret::new(secret(7)))
}

/// A fan-out loop and a dispatcher that sends through real channels, with a deadline that no test reaches.
struct Running {
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(outbox: &Outbox, concurrency: u32, smtp_url: &str) -> Self {
        let defaults = Config::defaults().expect("valid");
        let timeout = Duration::from_secs(600);
        let email = EmailConfig { smtp_url: smtp_url.into(), timeout, ..defaults.email };
        let webhook = WebhookConfig { allow_http: true, allow_private_networks: true, timeout, ..defaults.webhook };
        let settings = ChannelSettings { email: &email, webhook: &webhook, dns: &defaults.dns };
        let sending = Sending::new(Arc::clone(&outbox.client), settings, defaults.retry).expect("legal settings");
        let contacts = Arc::new(ContactResolver::new(outbox.keys.clone(), Vec::new()));
        let context = OutboxContext {
            client: Arc::clone(&outbox.client),
            keys: outbox.keys.clone(),
            contacts,
            on_multiple: MultiplePolicy::Each,
            new_deliveries: Arc::default(),
        };
        let fan_out = FanOutLoop::new(context.clone(), Arc::default());
        let dispatcher = DispatcherConfig {
            outbox: context,
            notifier: Arc::new(sending.notifier),
            consents: Arc::new(NoConsentRequests),
            slots: Slots::new(&delivery_config(concurrency)),
            config: delivery_config(concurrency),
            give_up_after: GIVE_UP_AFTER,
            lease_margin: LEASE_MARGIN,
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        let fan_out = tokio::spawn(async move { fan_out.run(token).await.expect("no fatal error") });
        let dispatcher = tokio::spawn(async move { dispatcher.run(stop).await.expect("no fatal error") });
        Self { tasks: vec![fan_out, dispatcher] }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits until this number of deliveries was delivered, and this number of others is unanswered.
async fn until_delivered(outbox: &Outbox, delivered: u64, hanging: u64) {
    until("those that are answered are delivered", || async { outbox.totals().await.delivered == delivered }).await;
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.pending, totals.made), (hanging, delivered + hanging), "the others still hang");
}

/// Two hundred customers whose receivers never answer must not delay the alerts of the others.
#[tokio::test]
async fn receivers_that_hang_delay_nobody_else() {
    let outbox = Outbox::start();
    let hanging = ScriptedServer::start_everywhere([Step::Hang]).await;
    let healthy = HttpCatcher::start([]).await.expect("a free port");
    for n in 0..200 {
        // Each of these addresses of this machine is a separate destination.
        let url = format!("http://127.1.{}.{}:{}/hook", n / 100, n % 100 + 1, hanging.port());
        raised(&outbox, &format!("hanging{n}"), hook(&url)).await;
    }
    for n in 0..20 {
        raised(&outbox, &format!("healthy{n}"), hook(&healthy.url("/hook"))).await;
    }
    let _running = Running::start(&outbox, 512, "smtp://127.0.0.1:1");
    until_delivered(&outbox, 20, 200).await;
}

/// More hanging receivers than slots: half of the slots are reserved for destinations that answered last time.
#[tokio::test]
async fn receivers_that_answered_last_time_have_half_of_the_slots() {
    let outbox = Outbox::start();
    let hanging = ScriptedServer::start_everywhere([Step::Hang]).await;
    let healthy = HttpCatcher::start([]).await.expect("a free port");
    raised(&outbox, "known", hook(&healthy.url("/hook"))).await;
    let _running = Running::start(&outbox, 8, "smtp://127.0.0.1:1");
    until_delivered(&outbox, 1, 0).await;
    for n in 0..30 {
        let url = format!("http://127.1.0.{}:{}/hook", n + 1, hanging.port());
        raised(&outbox, &format!("hanging{n}"), hook(&url)).await;
    }
    until("all that may hang do so", || async { leased(&outbox).await == 4 }).await;
    for n in 0..20 {
        raised(&outbox, &format!("healthy{n}"), hook(&healthy.url("/hook"))).await;
    }
    until_delivered(&outbox, 21, 30).await;
    assert_eq!(leased(&outbox).await, 4, "of the eight slots, half");
}

/// Leased deliveries of any destination.
async fn leased(outbox: &Outbox) -> u64 {
    let keys: Vec<String> = outbox.run("KEYS", format!("{}*", outbox.keys.leased_prefix())).await;
    keys.len() as u64
}

/// A mail server that hangs under hundreds of emails must not delay a webhook, and must not get all emails at once.
#[tokio::test]
async fn a_mail_server_that_hangs_delays_no_webhook() {
    let outbox = Outbox::start();
    let mails = ScriptedServer::start([Step::Hang]).await;
    let healthy = HttpCatcher::start([]).await.expect("a free port");
    for n in 0..300 {
        raised(&outbox, &format!("mail{n}"), email(&format!("m{n}"))).await;
    }
    for n in 0..20 {
        raised(&outbox, &format!("hook{n}"), hook(&healthy.url("/hook"))).await;
    }
    let _running = Running::start(&outbox, 512, &format!("smtp://127.0.0.1:{}", mails.port()));
    until_delivered(&outbox, 20, 300).await;
    let in_flight: u64 = outbox.run("ZCARD", format!("{}email", outbox.keys.leased_prefix())).await;
    assert_eq!(in_flight, 1, "it has never answered");
}

/// Concurrent attempts at one destination: first one, one more after each success, half after each failure, at most the
/// configured number.
#[tokio::test]
async fn the_bound_of_a_destination_grows_with_successes_and_halves_with_failures() {
    let outbox = Outbox::start();
    for n in 0..80 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("a")]).await;
    }
    let calls = std::cell::Cell::new(0);
    let lease_all = async || -> Vec<LeasedDelivery> {
        calls.set(calls.get() + 1);
        let token = format!("t{}", calls.get());
        lease(&outbox.client, &outbox.keys, all_due(&token, LONG)).await.expect("the lease works").leased
    };
    let end = async |leased: &LeasedDelivery, class: OutcomeClass| {
        let failed = Outcome { status: None, ..outcome(class) };
        let settlement = match class {
            OutcomeClass::Delivered => Settlement::Delivered(outcome(class)),
            _ => Settlement::Retry(failed, Duration::from_secs(3600)),
        };
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &settlement).await.expect("it settles");
    };
    let mut in_flight = lease_all().await;
    let first = &in_flight[0];
    assert_eq!((in_flight.len(), first.is_healthy, first.more_follows), (1, false, false), "it was never tried");
    assert_eq!(lease_all().await.len(), 0, "one is in flight");
    for expected in [2, 4, 8, 16, 16] {
        for leased in &in_flight {
            end(leased, OutcomeClass::Delivered).await;
        }
        in_flight = lease_all().await;
        assert_eq!(in_flight.len(), expected);
        assert!(in_flight.iter().all(|leased| leased.is_healthy && leased.more_follows));
    }
    end(&in_flight[0], OutcomeClass::Transient).await;
    assert_eq!(lease_all().await.len(), 0, "eight are allowed, fifteen are in flight");
    for leased in &in_flight[1..9] {
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &Settlement::Muted(String::new()))
            .await
            .expect("settles");
    }
    let more = lease_all().await;
    assert_eq!((more.len(), more[0].is_healthy), (1, false), "seven were left, and its last attempt failed");
    end(&more[0], OutcomeClass::Transient).await;
    for leased in &in_flight[9..12] {
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &Settlement::Muted(String::new()))
            .await
            .expect("settles");
    }
    assert_eq!(lease_all().await.len(), 0, "four are in flight, and four are allowed");
}

/// A dead worker must not occupy a place beyond its lease.
#[tokio::test]
async fn a_lease_that_ran_out_holds_no_place() {
    let outbox = Outbox::start();
    for name in ["a", "b"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook("a")]).await;
    }
    let first = lease(&outbox.client, &outbox.keys, all_due("t1", LONG)).await.expect("the lease works").leased;
    outbox.let_time_pass(&first[0].id).await;
    let second = lease(&outbox.client, &outbox.keys, all_due("t2", LONG)).await.expect("the lease works").leased;
    assert_eq!(second.len(), 1, "again one is in flight");
}

/// Destinations take turns: one with thousands of deliveries gets only its share of a call.
#[tokio::test]
async fn destinations_take_turns() {
    let outbox = Outbox::start();
    for n in 0..40 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("many")]).await;
    }
    for name in ["x", "y", "z"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook(name)]).await;
    }
    for destination in ["https://many.test", "https://x.test", "https://y.test", "https://z.test"] {
        outbox.trust(destination).await;
    }
    let request = |token| LeaseRequest { deliveries_max: 8, ..all_due(token, LONG) };
    let leased = lease(&outbox.client, &outbox.keys, request("t1")).await.expect("the lease works").leased;
    let of = |name: &str| leased.iter().filter(|one| one.destination.as_str() == name).count();
    assert_eq!((of("https://x.test"), of("https://y.test"), of("https://z.test")), (1, 1, 1));
    let leased = lease(&outbox.client, &outbox.keys, request("t2")).await.expect("the lease works").leased;
    assert_eq!(leased.len(), 8, "alone it gets all that its bound allows");
}

/// Destinations that may not answer get only the caller's slots for them, and take none from others.
#[tokio::test]
async fn unhealthy_destinations_get_no_more_than_is_left_for_them() {
    let outbox = Outbox::start();
    for n in 0..10 {
        outbox.fan_out_new(&alert(&subject(&format!("u{n}")), 80), &[webhook(&format!("u{n}"))]).await;
    }
    let request = LeaseRequest { unhealthy_max: 3, ..all_due("t1", LONG) };
    let answer = lease(&outbox.client, &outbox.keys, request).await.expect("the lease works");
    assert_eq!((answer.leased.len(), answer.next_healthy), (3, None));
    assert!(answer.next_unhealthy.is_some_and(|next| next <= answer.now), "more of them wait");
    let request = LeaseRequest { unhealthy_max: 0, ..all_due("t2", LONG) };
    assert_eq!(lease(&outbox.client, &outbox.keys, request).await.expect("the lease works").leased, []);
    // A healthy one is leased although seven others wait.
    let known = alert(&subject("known"), 80);
    outbox.fan_out_new(&known, &[webhook("known")]).await;
    outbox.trust("https://known.test").await;
    let request = LeaseRequest { deliveries_max: 2, unhealthy_max: 2, ..all_due("t3", LONG) };
    let leased = lease(&outbox.client, &outbox.keys, request).await.expect("the lease works").leased;
    assert!(leased.iter().any(|one| one.id == delivery(&known, &webhook("known"))), "{leased:?}");
}

/// A destination that failed once after many successes may have several concurrent attempts: more than the slots for
/// failed ones.
#[tokio::test]
async fn an_unhealthy_destination_gets_no_more_than_is_left_for_all_of_them() {
    let outbox = Outbox::start();
    let state = format!("{}https://a.test", outbox.keys.destination_prefix());
    let () = outbox.run("HSET", &[state.as_str(), "bound", "8", "failures", "1"]).await;
    for n in 0..6 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("a")]).await;
    }
    let request = LeaseRequest { unhealthy_max: 3, ..all_due("t1", LONG) };
    let answer = lease(&outbox.client, &outbox.keys, request).await.expect("the lease works");
    assert_eq!(answer.leased.len(), 3);
}

/// Followers must take no place of their own, even if another worker leases there meanwhile: a receiver would get more
/// at once than its bound.
#[tokio::test]
async fn deliveries_that_follow_others_take_no_place() {
    let outbox = Outbox::start();
    for n in 0..200 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("a")]).await;
    }
    outbox.trust("https://a.test").await;
    let state = format!("{}https://a.test", outbox.keys.destination_prefix());
    let () = outbox.run("HSET", &[state.as_str(), "bound", "3"]).await;
    let lease_all = async |token| -> (Vec<LeasedDelivery>, Vec<LeasedDelivery>) {
        let request = LeaseRequest { followers_max: LEASE_MAX, ..all_due(token, LONG) };
        let leased = lease(&outbox.client, &outbox.keys, request).await.expect("the lease works").leased;
        leased.into_iter().partition(|leased| leased.follows)
    };
    let end = async |leased: &[LeasedDelivery]| {
        let settlement = Settlement::Delivered(outcome(OutcomeClass::Delivered));
        for LeasedDelivery { id, token, .. } in leased {
            settle(&outbox.client, &outbox.keys, id, token, &settlement).await.expect("it settles");
        }
    };
    let (followers, first) = lease_all("t0").await;
    assert_eq!((first.len(), followers.len()), (3, 3), "few follow while the bound grows");
    end(&first).await;
    end(&followers[..2]).await;
    outbox.trust("https://a.test").await;
    let (followers, first) = lease_all("t1").await;
    assert_eq!((first.len(), followers.len()), (15, 120), "one is in flight");
    assert!(first.iter().chain(&followers).all(|leased| leased.is_healthy && leased.more_follows));
    end(&first).await;
    end(&followers[..105]).await;
    assert_eq!(lease_all("t2").await, (vec![], vec![]), "sixteen are leased: each may be in flight");
    end(&followers[105..110]).await;
    let (followers, first) = lease_all("t3").await;
    assert_eq!((first.len(), followers.len()), (5, 40), "eleven may be in flight");
}

/// Followers must not all be sent at once, and must be available to others if the receiver hangs.
#[tokio::test]
async fn a_destination_has_no_more_attempts_at_once_than_its_bound() {
    let outbox = Outbox::start();
    let hanging = ScriptedServer::start([REQUEST, Step::Hang]).await;
    many_at_healthy(&outbox, hanging.port()).await;
    let _running = Running::start(&outbox, 512, "smtp://127.0.0.1:1");
    until("many are leased", || async { in_flight(&outbox, hanging.port()).await > 100 }).await;
    hanging.has_heard(16).await;
    until("the others are given back", || async { in_flight(&outbox, hanging.port()).await == 16 }).await;
    assert_eq!(hanging.heard(), 16);
}

/// A follower takes the place of any ended attempt of any call. Otherwise attempts and their followers would occupy all
/// places one after another.
#[tokio::test]
async fn places_at_a_busy_destination_stay_filled() {
    let outbox = Outbox::start();
    for n in 0..200 {
        let subject = subject(&format!("s{n}"));
        outbox.set_contacts(&subject, &json(&[webhook("a")])).await;
        outbox.fan_out_new(&alert(&subject, 80), &[webhook("a")]).await;
    }
    outbox.trust("https://a.test").await;
    let receiver = FakeNotifier::new(|_| FakeAttempt::Gate);
    let loops = Loops::start(&outbox, &receiver, Setting { concurrency: 512, ..Setting::default() });
    // Followers that wait in vain are released after a second: 180 of them would take longer than this.
    let all = tokio::time::timeout(WAIT_MAX, async {
        for ended in 0..180 {
            until("sixteen run", || async {
                receiver.seen().len() == 16 + ended && receiver.running.load(Ordering::SeqCst) == 16
            })
            .await;
            receiver.let_end(1);
        }
    });
    all.await.expect("no place is left empty for a second");
    receiver.let_end(200);
    until_ended(&outbox, 200).await;
    assert_eq!(receiver.most_running.load(Ordering::SeqCst), 16);
    loops.drain().await;
}

/// A destination that begins to fail must not get all leased followers: its open circuit must release them. A released
/// delivery counts no attempt.
#[tokio::test]
async fn nothing_follows_an_attempt_that_failed() {
    let outbox = Outbox::start();
    let failing = ScriptedServer::start([REQUEST, Step::Say("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")]).await;
    let deliveries = many_at_healthy(&outbox, failing.port()).await;
    let _running = Running::start(&outbox, 512, "smtp://127.0.0.1:1");
    until("the circuit is open and nothing is in flight", || async {
        outbox.totals().await.destinations.open == 1 && in_flight(&outbox, failing.port()).await == 0
    })
    .await;
    let mut attempts = 0;
    for id in &deliveries {
        attempts += outbox.field(id, "attempts").await.map_or(0, |count| count.parse().expect("a number"));
    }
    assert_eq!((failing.heard(), attempts), (16, 16));
}

/// More deliveries than one call records, to a healthy receiver.
async fn many_at_healthy(outbox: &Outbox, port: u16) -> Vec<DeliveryId> {
    let contact = hook(&format!("http://127.0.0.1:{port}/hook"));
    let mut deliveries = Vec::new();
    for n in 0..144 {
        let subject = subject(&format!("s{n}"));
        outbox.set_contacts(&subject, &json(std::slice::from_ref(&contact))).await;
        let alert = alert(&subject, 80);
        outbox.fan_out_new(&alert, std::slice::from_ref(&contact)).await;
        deliveries.push(delivery(&alert, &contact));
    }
    outbox.trust(&format!("http://127.0.0.1:{port}")).await;
    deliveries
}

/// Leased deliveries of this receiver.
async fn in_flight(outbox: &Outbox, port: u16) -> u64 {
    outbox.run("ZCARD", format!("{}http://127.0.0.1:{port}", outbox.keys.leased_prefix())).await
}

/// A receiver that is down gets an occasional probe instead of each delivery; the first success releases all of them.
#[tokio::test]
async fn a_circuit_opens_after_five_failures_and_closes_with_one_success() {
    let outbox = Outbox::start();
    for n in 0..40 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("a")]).await;
    }
    let (state, destination) = (format!("{}https://a.test", outbox.keys.destination_prefix()), "https://a.test");
    let here = Destination::from_stored(destination);
    let calls = std::cell::Cell::new(0);
    let lease_all = async || -> Vec<LeasedDelivery> {
        calls.set(calls.get() + 1);
        let token = format!("t{}", calls.get());
        lease(&outbox.client, &outbox.keys, all_due(&token, LONG)).await.expect("the lease works").leased
    };
    let end = async |leased: &LeasedDelivery, settlement: Settlement| -> (Vec<Destination>, Vec<Destination>) {
        let (id, token) = (leased.id.clone(), leased.token.clone());
        let end = SettleRequest {
            id,
            channel: leased.channel,
            token,
            settlement,
            inherited: None,
            address: None,
            message_id: None,
        };
        let config = delivery_config(1);
        let settled = quotabell::outbox::settle(&outbox.client, &outbox.keys, &config, &[&end]).await.expect("settles");
        (settled.circuits_opened, settled.circuits_closed)
    };
    let failed = || {
        let outcome = Outcome { status: None, ..outcome(OutcomeClass::Transient) };
        Settlement::Retry(outcome, Duration::from_secs(3600))
    };
    for attempt in 1..=5 {
        let leased = lease_all().await;
        assert_eq!(leased.len(), 1, "attempt {attempt}");
        let opened = if attempt == 5 { vec![here.clone()] } else { Vec::new() };
        assert_eq!(end(&leased[0], failed()).await, (opened, Vec::new()));
    }
    assert_eq!(outbox.totals().await.destinations, DestinationCounts { healthy: 0, unhealthy: 0, open: 1 });
    let circuit = async || -> i64 {
        let probe: i64 = outbox.run("HGET", &[state.as_str(), "probe_at_ms"]).await;
        let stored: i64 = outbox.run("ZSCORE", &[outbox.keys.circuits().as_str(), destination]).await;
        assert_eq!(probe, stored);
        probe - outbox.totals().await.now.0
    };
    let let_probe_come = async || {
        let () = outbox.run("HSET", &[state.as_str(), "probe_at_ms", "1"]).await;
        outbox.look_at(destination).await;
    };
    assert!((1..=30_000).contains(&circuit().await), "in 30 s");
    outbox.look_at(destination).await;
    assert_eq!(lease_all().await, [], "thirty-five are due, and none leaves");
    // A failed probe doubles the time.
    let_probe_come().await;
    let leased = lease_all().await;
    assert_eq!(leased.len(), 1, "one probe");
    assert_eq!(end(&leased[0], failed()).await, (Vec::new(), Vec::new()));
    assert!((30_001..=60_000).contains(&circuit().await), "in 60 s");
    // Success closes it.
    let_probe_come().await;
    let leased = lease_all().await;
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    assert_eq!(end(&leased[0], delivered).await, (Vec::new(), vec![here]));
    assert_eq!(outbox.totals().await.destinations, DestinationCounts { healthy: 1, unhealthy: 0, open: 0 });
    assert_eq!(lease_all().await.len(), 2, "and the bound grows again");
}

/// Attempts that began before a circuit opened may end together with the one that closes it: it must stay closed.
#[tokio::test]
async fn a_circuit_that_several_successes_of_one_call_close_is_closed_once() {
    let outbox = Outbox::start();
    for n in 0..7 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("a")]).await;
    }
    outbox.trust("https://a.test").await;
    let leased = lease(&outbox.client, &outbox.keys, all_due("t1", LONG)).await.expect("the lease works").leased;
    let (failing, reached) = leased.split_at(5);
    let end_all = async |leased: &[LeasedDelivery], settlement: &Settlement| -> (Vec<Destination>, Vec<Destination>) {
        let mut ends = Vec::new();
        for LeasedDelivery { id, channel, token, .. } in leased {
            let (id, token, settlement) = (id.clone(), token.clone(), settlement.clone());
            ends.push(SettleRequest {
                id,
                channel: *channel,
                token,
                settlement,
                inherited: None,
                address: None,
                message_id: None,
            });
        }
        let (config, ends) = (delivery_config(1), ends.iter().collect::<Vec<_>>());
        let settled = quotabell::outbox::settle(&outbox.client, &outbox.keys, &config, &ends).await.expect("settles");
        (settled.circuits_opened, settled.circuits_closed)
    };
    let failed = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(3600));
    let here = || vec![Destination::from_stored("https://a.test")];
    assert_eq!(end_all(failing, &failed).await, (here(), Vec::new()));
    assert_eq!(outbox.totals().await.destinations.open, 1);
    assert_eq!(reached.len(), 2);
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    assert_eq!(end_all(reached, &delivered).await, (Vec::new(), here()));
    assert_eq!(outbox.totals().await.destinations.open, 0);
    let left: u64 = outbox.run("EXISTS", &[outbox.keys.circuits()]).await;
    assert_eq!(left, 0, "it would be counted as open for ever");
}

/// Behind a permanently failing receiver nothing may wait forever: each delivery ends when its time is over, even
/// without an attempt; the others keep waiting.
#[tokio::test]
async fn behind_an_open_circuit_deliveries_end_when_their_time_is_over() {
    let outbox = Outbox::start();
    let alerts: Vec<_> = (0..4).map(|n| alert(&subject(&format!("s{n}")), 80)).collect();
    for alert in &alerts {
        outbox.fan_out_new(alert, &[webhook("a")]).await;
    }
    let id = |n: usize| delivery(&alerts[n], &webhook("a"));
    let long_ago = outbox.totals().await.now.plus(-7_200_000).0.to_string();
    // The first became due two hours ago; the second was attempted then.
    let () = outbox.run("ZADD", &[outbox.queue(&id(0)).await.as_str(), "XX", &long_ago, id(0).as_str()]).await;
    let tried = outbox.keys.delivery(&id(1));
    let () = outbox.run("HSET", &[&tried, "first_attempt_at_ms", &long_ago, "last_error", "HTTP 400"]).await;
    open_circuit(&outbox, outbox.totals().await.now).await;
    let request = |token| LeaseRequest { give_up_after: Duration::from_secs(3600), ..all_due(token, LONG) };
    let answer = lease(&outbox.client, &outbox.keys, request("t1")).await.expect("the lease works");
    let given_up: BTreeSet<_> = answer.given_up.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(given_up, [id(0), id(1)].into());
    let why = outbox.field(&id(1), "last_error").await;
    assert_eq!(why.as_deref(), Some("its destination has failed all the time; its last attempt: HTTP 400"));
    let answer = lease(&outbox.client, &outbox.keys, request("t2")).await.expect("the lease works");
    assert_eq!((answer.given_up.len(), answer.leased.len()), (0, 1), "one of the others is the probe");
    assert_eq!((outbox.state(&id(0)).await, outbox.state(&id(2)).await), ("dead".to_owned(), "pending".to_owned()));
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.dead, totals.dead_kept, totals.pending), (2, 2, 2));
}

/// While no daemon ran, nobody observed the receiver: our own outage must end no delivery, even if the first attempt
/// afterwards fails.
#[tokio::test]
async fn an_outage_does_not_count_against_what_waits_behind_an_open_circuit() {
    let outbox = Outbox::start();
    let now = outbox.totals().await.now;
    let hours = |hours: f64| now.plus(-(hours * 3_600_000.0) as i64);
    // They are retried for an hour; two hours of their age were an outage.
    let ids: Vec<DeliveryId> =
        (0..3).map(|n| delivery(&alert(&subject(&format!("s{n}")), 80), &webhook("a"))).collect();
    for (n, began) in [hours(4.0), hours(2.5), hours(2.5)].into_iter().enumerate() {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[webhook("a")]).await;
        let began = began.0.to_string();
        let () = outbox.run("HSET", &[outbox.keys.delivery(&ids[n]).as_str(), "first_attempt_at_ms", &began]).await;
    }
    open_circuit(&outbox, hours(2.0)).await;
    let request = |token| LeaseRequest { give_up_after: Duration::from_secs(3600), ..all_due(token, LONG) };
    let answer = lease(&outbox.client, &outbox.keys, request("t1")).await.expect("the lease works");
    let given_up: Vec<&DeliveryId> = answer.given_up.iter().map(|(id, _)| id).collect();
    assert_eq!(given_up, [&ids[0]], "it had waited for two hours before");
    let mut leased = answer.leased;
    if leased.is_empty() {
        // The attempt would have belonged to the one that was given up.
        outbox.look_at("https://a.test").await;
        let answer = lease(&outbox.client, &outbox.keys, request("t2")).await.expect("the lease works");
        assert_eq!(answer.given_up.len(), 0);
        leased = answer.leased;
    }
    assert_eq!(leased.len(), 1);
    let LeasedDelivery { id, token, .. } = &leased[0];
    let failed = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(3600));
    settle(&outbox.client, &outbox.keys, id, token, &failed).await.expect("settles");
    open_circuit(&outbox, now).await;
    let answer = lease(&outbox.client, &outbox.keys, request("t3")).await.expect("the lease works");
    assert_eq!((answer.given_up.len(), answer.leased.len()), (0, 1), "the other one");
}

/// After a pause or our own outage, one short failure must not end the whole backlog: the circuit has just opened. A
/// receiver that stays down for the whole time does end them.
#[tokio::test]
async fn a_circuit_that_opened_just_now_ends_nothing_that_is_older() {
    let outbox = Outbox::start();
    let long_ago = outbox.totals().await.now.plus(-4 * 86_400_000).0.to_string();
    for n in 0..20 {
        let alert = alert(&subject(&format!("s{n}")), 80);
        outbox.fan_out_new(&alert, &[webhook("a")]).await;
        let id = delivery(&alert, &webhook("a"));
        let () = outbox.run("ZADD", &[outbox.queue(&id).await.as_str(), "XX", &long_ago, id.as_str()]).await;
    }
    let state = format!("{}https://a.test", outbox.keys.destination_prefix());
    let lease_due = async |token: &str| {
        let request = LeaseRequest { give_up_after: Duration::from_secs(3600), ..all_due(token, LONG) };
        lease(&outbox.client, &outbox.keys, request).await.expect("the lease works")
    };
    let visit = async |token: &str, opened_at: Option<UnixMs>| {
        let now = outbox.totals().await.now.0.to_string();
        let () = outbox.run("HSET", &[state.as_str(), "probe_at_ms", &now]).await;
        if let Some(opened_at) = opened_at {
            let () = outbox.run("HSET", &[state.as_str(), "opened_at_ms", &opened_at.0.to_string()]).await;
        }
        outbox.look_at("https://a.test").await;
        lease_due(token).await
    };
    let failed = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(7200));
    for attempt in 1..=5 {
        let answer = lease_due(&format!("t{attempt}")).await;
        let LeasedDelivery { id, token, .. } = &answer.leased[0];
        settle(&outbox.client, &outbox.keys, id, token, &failed).await.expect("it settles");
    }
    assert_eq!(outbox.totals().await.destinations.open, 1);
    let answer = visit("probe", None).await;
    assert_eq!((answer.given_up.len(), answer.leased.len()), (0, 1), "the attempt that tells whether it is back");
    let LeasedDelivery { id, token, .. } = &answer.leased[0];
    settle(&outbox.client, &outbox.keys, id, token, &failed).await.expect("it settles");
    // The receiver has been down for two hours.
    let answer = visit("over", Some(outbox.totals().await.now.plus(-7_200_000))).await;
    assert_eq!(answer.given_up.len(), 14);
    assert_eq!(outbox.assert_balanced().await.dead, 14);
}

/// Opens the circuit of `https://a.test` with its next attempt at this time, and lets the next lease examine it.
async fn open_circuit(outbox: &Outbox, probe_at: UnixMs) {
    let state = format!("{}https://a.test", outbox.keys.destination_prefix());
    let probe_at = probe_at.0.to_string();
    let fields = [state.as_str(), "bound", "1", "failures", "9", "probe_at_ms", &probe_at, "probes", "4"];
    let () = outbox.run("HSET", &fields).await;
    outbox.look_at("https://a.test").await;
}
