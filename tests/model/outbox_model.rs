//! Random histories of the delivery scripts against a model in memory: after each step Redis and the model agree, and
//! I4 holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::outbox::{
    LONG, Outbox, alert, delivery, email, outcome, settle, subject, waiting_delivery, webhook,
};
use crate::support::redis_server::RedisServer;
use proptest::prelude::*;
use quotabell::contacts::Contact;
use quotabell::outbox::{
    ActionReply, DeliveryAction, FanOutReply, FanOutSource, SettleReply, Settlement, SourceDisposition, act,
    wake_subject,
};
use quotabell::types::{Alert, Channel, DeliveryId, Keys, OutcomeClass};

/// One step. Numbers choose among the existing objects, so that every sequence is valid and can be shrunk.
#[derive(Debug, Clone)]
enum Step {
    /// Puts an alert into the outbox and fans it out to a subset of the contacts; twice, as after a lost reply.
    Raise { alert: u8, contacts: u8 },
    /// Leases everything that is due.
    Lease,
    /// Ends a lease as `end` says, with a possibly old token; sometimes twice.
    Settle { token: u8, end: u8 },
    /// Fans out a leased delivery again, with a possibly old token.
    FanOutAgain { token: u8, contacts: u8 },
    /// Ends a lease or a wait.
    TimePasses { delivery: u8 },
    /// An operator's action on a delivery in any state; twice, as after a lost reply.
    Act { delivery: u8, action: u8 },
    /// The subject changed.
    Wake,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..4_u8, 0..8_u8).prop_map(|(alert, contacts)| Step::Raise { alert, contacts }),
        4 => Just(Step::Lease),
        4 => (any::<u8>(), 0..8_u8).prop_map(|(token, end)| Step::Settle { token, end }),
        3 => (any::<u8>(), 0..8_u8).prop_map(|(token, contacts)| Step::FanOutAgain { token, contacts }),
        3 => any::<u8>().prop_map(|delivery| Step::TimePasses { delivery }),
        3 => (any::<u8>(), 0..4_u8).prop_map(|(delivery, action)| Step::Act { delivery, action }),
        1 => Just(Step::Wake),
    ]
}

/// A delivery in the model.
#[derive(Debug, Clone)]
struct Modelled {
    alert: u8,
    channel: Channel,
    state: &'static str,
    token: Option<String>,
    settled: Option<String>,
    is_due: bool,
    attempts: u32,
    records: usize,
    /// An operator cancelled it: no fan-out restores it.
    by_operator: bool,
    is_discarded: bool,
    /// Its lease has not ended.
    is_leased: bool,
}

#[derive(Debug, Clone)]
struct Token {
    id: DeliveryId,
    token: String,
}

/// The state of one history.
struct History<'a> {
    outbox: &'a Outbox,
    deliveries: BTreeMap<DeliveryId, Modelled>,
    tokens: Vec<Token>,
    calls: u32,
}

fn alert_of(number: u8) -> Alert {
    alert(&subject("alice"), u16::from(number) + 80)
}

/// The subset of the three contacts in the bits.
fn contacts_of(bits: u8) -> Vec<Contact> {
    let all = [email("a"), webhook("b"), email("c")];
    all.into_iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0).map(|(_, contact)| contact).collect()
}

impl History<'_> {
    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Raise { alert, contacts } => self.raise(alert, &contacts_of(contacts)).await,
            Step::Lease => self.lease().await,
            Step::Settle { token, end } => self.settle(token, end).await,
            Step::FanOutAgain { token, contacts } => self.fan_out_again(token, &contacts_of(contacts)).await,
            Step::TimePasses { delivery } => {
                if let Some(id) = self.pick(delivery)
                    && self.deliveries[&id].state == "pending"
                {
                    self.outbox.let_time_pass(&id).await;
                    let one = self.deliveries.get_mut(&id).expect("picked");
                    (one.is_due, one.is_leased) = (true, false);
                }
            }
            Step::Act { delivery, action } => self.act(delivery, action).await,
            Step::Wake => {
                let woken =
                    wake_subject(&self.outbox.client, &self.outbox.keys, &subject("alice")).await.expect("works");
                let waits = |one: &&mut Modelled| one.channel == Channel::None && one.state == "pending";
                let mut expected = 0;
                for waiting in self.deliveries.values_mut().filter(waits) {
                    (waiting.is_due, waiting.token, waiting.is_leased) = (true, None, false);
                    expected += 1;
                }
                assert_eq!(woken, expected);
            }
        }
    }

    fn pick(&self, number: u8) -> Option<DeliveryId> {
        self.deliveries.keys().nth(usize::from(number) % self.deliveries.len().max(1)).cloned()
    }

    /// Old tokens are as likely as the newest one, so that stale calls are frequent.
    fn pick_token(&self, number: u8) -> Option<Token> {
        let newest: Vec<&Token> = self.tokens.iter().rev().take(12).collect();
        newest.get(usize::from(number) % newest.len().max(1)).map(|token| (*token).clone())
    }

    async fn raise(&mut self, number: u8, contacts: &[Contact]) {
        let alert = alert_of(number);
        let entry = self.outbox.raise(&alert).await;
        let source = FanOutSource::Outbox { entry: &entry };
        let FanOutReply::Done(fanned) = self.outbox.fan_out(source, &alert, contacts).await else { panic!("not done") };
        assert_eq!(fanned.source, SourceDisposition::Consumed);
        self.model_wanted(number, contacts, None);
        assert_eq!(self.outbox.fan_out(source, &alert, contacts).await, FanOutReply::Gone);
    }

    /// Applies a fan-out to the wanted deliveries in the model; returns whether `source` is one of them.
    fn model_wanted(&mut self, number: u8, contacts: &[Contact], source: Option<&DeliveryId>) -> bool {
        let alert = alert_of(number);
        let mut wanted: Vec<(DeliveryId, Channel)> =
            contacts.iter().map(|contact| (delivery(&alert, contact), contact.channel())).collect();
        if wanted.is_empty() {
            wanted.push((waiting_delivery(&alert), Channel::None));
        }
        for (id, channel) in &wanted {
            let is_due = *channel != Channel::None;
            if source == Some(id) {
                let one = self.deliveries.get_mut(id).expect("the source exists");
                (one.is_due, one.token, one.is_leased) = (is_due, None, false);
                one.attempts -= u32::from(is_due);
            } else if let Some(one) = self.deliveries.get_mut(id) {
                if one.state == "cancelled" && !one.by_operator {
                    (one.state, one.is_due, one.token) = ("pending", is_due, None);
                }
            } else {
                let made = Modelled {
                    alert: number,
                    channel: *channel,
                    state: "pending",
                    token: None,
                    settled: None,
                    is_due,
                    attempts: 0,
                    records: 0,
                    by_operator: false,
                    is_discarded: false,
                    is_leased: false,
                };
                self.deliveries.insert(id.clone(), made);
            }
        }
        wanted.iter().any(|(id, _)| Some(id) == source)
    }

    async fn lease(&mut self) {
        self.calls += 1;
        let lease = self.outbox.lease(&format!("call{}", self.calls), LONG).await;
        assert!(lease.dropped.is_empty());
        let expected: BTreeSet<&DeliveryId> =
            self.deliveries.iter().filter(|(_, one)| one.state == "pending" && one.is_due).map(|(id, _)| id).collect();
        assert_eq!(lease.leased.iter().map(|leased| &leased.id).collect::<BTreeSet<_>>(), expected);
        for leased in lease.leased {
            let one = self.deliveries.get_mut(&leased.id).expect("known");
            (one.is_due, one.token, one.is_leased) = (false, Some(leased.token.clone()), true);
            one.attempts += u32::from(one.channel != Channel::None);
            assert_eq!(leased.attempts, one.attempts);
            // Every recorded outcome here is a refusal.
            assert_eq!(leased.may_have_arrived, one.attempts.saturating_sub(1) as usize > one.records, "{one:?}");
            self.tokens.push(Token { id: leased.id, token: leased.token });
        }
    }

    async fn settle(&mut self, number: u8, end: u8) {
        let Some(Token { id, token }) = self.pick_token(number) else { return };
        let one = self.deliveries.get_mut(&id).expect("known");
        let settlement = match end {
            0 => Settlement::Delivered(outcome(OutcomeClass::Delivered)),
            1 => Settlement::Dead(outcome(OutcomeClass::Permanent)),
            2 => Settlement::Retry(outcome(OutcomeClass::Transient), Duration::ZERO),
            3 => Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(3600)),
            4 => Settlement::Muted(String::new()),
            5 => Settlement::Expired,
            6 => Settlement::Cancelled,
            _ => Settlement::Released(Duration::ZERO),
        };
        // Without a contact nothing is attempted.
        if one.channel == Channel::None && settlement.outcome().is_some() {
            return;
        }
        let answer = settle(&self.outbox.client, &self.outbox.keys, &id, &token, &settlement).await.expect("works");
        if one.settled.as_ref() == Some(&token) {
            assert_eq!(answer, SettleReply::Repeated);
        } else if one.state == "pending" && one.token.as_ref() == Some(&token) {
            assert!(matches!(answer, SettleReply::Done(_)), "{answer:?}");
            one.state = settlement.state().as_str();
            (one.token, one.settled, one.is_due) = (None, Some(token), matches!(end, 2 | 7));
            one.is_leased = false;
            if settlement.outcome().is_some() {
                one.records += 1;
            } else {
                one.attempts -= u32::from(one.channel != Channel::None);
            }
        } else {
            assert_eq!(answer, SettleReply::Stale);
        }
    }

    async fn fan_out_again(&mut self, number: u8, contacts: &[Contact]) {
        let Some(Token { id, token }) = self.pick_token(number) else { return };
        let held = &self.deliveries[&id];
        let (alert, holds) = (held.alert, held.state == "pending" && held.token.as_ref() == Some(&token));
        let source = FanOutSource::Delivery { id: &id, token: &token };
        let answer = self.outbox.fan_out(source, &alert_of(alert), contacts).await;
        if !holds {
            assert_eq!(answer, FanOutReply::Stale);
            return;
        }
        let FanOutReply::Done(fanned) = answer else { panic!("not done: {answer:?}") };
        if self.model_wanted(alert, contacts, Some(&id)) {
            assert_eq!(fanned.source, SourceDisposition::Rescheduled);
        } else {
            assert_eq!(fanned.source, SourceDisposition::Cancelled);
            let one = self.deliveries.get_mut(&id).expect("known");
            (one.state, one.token, one.is_due, one.is_leased) = ("cancelled", None, false, false);
            one.attempts -= u32::from(one.channel != Channel::None);
        }
    }

    async fn act(&mut self, number: u8, action: u8) {
        let Some(id) = self.pick(number) else { return };
        let actions = [DeliveryAction::Replay, DeliveryAction::Retry, DeliveryAction::Cancel, DeliveryAction::Discard];
        let action = actions[usize::from(action)];
        for _ in 0..2 {
            let acted = act(&self.outbox.client, &self.outbox.keys, action, std::slice::from_ref(&id)).await;
            let answer = acted.expect("works")[0];
            let one = self.deliveries.get_mut(&id).expect("known");
            let is_taken = action.takes().iter().any(|state| state.as_str() == one.state);
            if !is_taken {
                assert!(matches!(answer, ActionReply::InState(state) if state.as_str() == one.state), "{answer:?}");
            } else if one.state == "pending" && one.is_leased {
                assert_eq!(answer, ActionReply::Leased);
            } else {
                assert_eq!(answer, ActionReply::Done);
                match action {
                    DeliveryAction::Replay | DeliveryAction::Retry => {
                        one.token = one.token.take().filter(|_| one.state == "pending");
                        (one.state, one.is_due, one.is_discarded) = ("pending", true, false);
                    }
                    DeliveryAction::Cancel => {
                        (one.state, one.is_due, one.token) = ("cancelled", false, None);
                        one.by_operator = true;
                    }
                    DeliveryAction::Discard => one.is_discarded = true,
                }
            }
        }
    }

    /// Checks that Redis agrees with the model, and with itself.
    async fn check(&self) {
        let (outbox, keys) = (self.outbox, &self.outbox.keys);
        let totals = outbox.assert_balanced().await;
        let kept = self.deliveries.values().filter(|one| one.state == "dead" && !one.is_discarded).count() as u64;
        let of = |state: &str| self.deliveries.values().filter(|one| one.state == state).count() as u64;
        assert_eq!(totals.made, self.deliveries.len() as u64);
        assert_eq!((totals.delivered, totals.dead, totals.muted), (of("delivered"), of("dead"), of("muted")));
        assert_eq!((totals.expired, totals.cancelled, totals.dead_kept), (of("expired"), of("cancelled"), kept));
        let pending: BTreeSet<String> = self.ids(|one| one.state == "pending");
        let listed: BTreeSet<String> = outbox.run("ZRANGE", &[keys.pending().as_str(), "0", "-1"]).await;
        assert_eq!((&listed, &outbox.queued().await), (&pending, &pending));
        let waiting: BTreeSet<String> = outbox.run("ZRANGE", &[keys.waiting().as_str(), "0", "-1"]).await;
        let waiting: BTreeSet<String> = waiting.iter().map(|member| member.replace("alice\0", "")).collect();
        assert_eq!(waiting, self.ids(|one| one.state == "pending" && one.channel == Channel::None));
        for (id, one) in &self.deliveries {
            let fields: BTreeMap<String, String> = outbox.run("HGETALL", keys.delivery(id)).await;
            assert_eq!((fields["state"].as_str(), fields.get("lease_token")), (one.state, one.token.as_ref()));
            assert_eq!(fields["attempts"], one.attempts.to_string(), "{one:?}");
            assert_eq!(fields.keys().filter(|field| field.starts_with("attempt:")).count(), one.records);
            let ttl: i64 = outbox.run("TTL", keys.delivery(id)).await;
            assert_eq!(ttl == -1, one.state == "pending", "only what is pending is kept for ever");
        }
    }

    fn ids(&self, of: impl Fn(&Modelled) -> bool) -> BTreeSet<String> {
        self.deliveries.iter().filter(|(_, one)| of(one)).map(|(id, _)| id.to_string()).collect()
    }
}

/// A delivery that is counted twice, or leaves the schedule while it is pending, would lose or double alerts.
#[test]
fn any_history_keeps_the_books_balanced_and_agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = RedisServer::start();
    let outbox = std::cell::RefCell::new(runtime.block_on(async { Outbox::on(server) }));
    let number = std::cell::Cell::new(0);
    let config = ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() };
    proptest!(config, |(steps in proptest::collection::vec(step(), 1..60))| {
        number.set(number.get() + 1);
        outbox.borrow_mut().keys = Keys::new(&format!("usage{}", number.get()));
        let outbox = outbox.borrow();
        runtime.block_on(async {
            let mut history = History { outbox: &outbox, deliveries: BTreeMap::new(), tokens: Vec::new(), calls: 0 };
            for step in &steps {
                history.step(step).await;
                history.check().await;
            }
        });
    });
}
