//! The loop that empties the outbox: it turns each raised notification into deliveries.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::IDLE;
use super::context::OutboxContext;
use super::counting_backlog::CountingBacklog;
use super::delivery_log;
use super::end_recipients::recipients_of_each;
use super::entry;
use super::error::{Operation, OutboxError};
use super::fan_out::{FanOutReply, FanOutRequest, FanOutSource, fan_out};
use super::redis_outage::RedisOutage;
use super::wake::wake_reachable;
use crate::contacts::resolver::ResolvedContacts;
use crate::types::{Notification, QuotaNotification, Subject};

/// Number of entries per read.
const READ_MAX: usize = 64;

/// Approximate number of deliveries per call, which blocks the server for some milliseconds.
const DELIVERIES_AT_ONCE: usize = 200;

/// Maximum number of unreadable entries that are remembered, so that each is logged once.
const NAMED_MAX: usize = 1000;

/// Fans out the notifications of one partition.
#[derive(Debug)]
pub struct FanOutLoop {
    outbox: OutboxContext,
    new_alerts: Arc<Notify>,
    /// Unreadable entries that were logged.
    named: HashSet<String>,
    /// Subjects with deliveries that may wait although a contact was added after the contacts were read.
    unsure: HashSet<Subject>,
    counting: CountingBacklog,
}

/// An entry of the outbox.
struct OutboxEntry {
    id: String,
    /// The notification with its JSON.
    notification: Result<(Notification, Vec<u8>), String>,
}

impl OutboxEntry {
    /// Its id, its notification and the JSON; `None` if it is unreadable.
    fn raised(&self) -> Option<(&str, QuotaNotification<'_>, &[u8])> {
        let (notification, json) = self.notification.as_ref().ok()?;
        Some((&self.id, notification.quota()?, json))
    }
}

impl FanOutLoop {
    /// A loop that does nothing until it runs. The worker notifies `new_alerts` after a commit that raised alerts.
    pub fn new(outbox: OutboxContext, new_alerts: Arc<Notify>) -> Self {
        let counting = CountingBacklog::default();
        Self { outbox, new_alerts, named: HashSet::new(), unsure: HashSet::new(), counting }
    }

    /// Fans notifications out until `stop`. Continues by itself when Redis is available again. Safe to cancel at any
    /// time: unfinished entries stay in the outbox. Several may run on one partition.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] if continuing would mean guessing ([`OutboxError::is_fatal`]).
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), OutboxError> {
        let mut outage = RedisOutage::new("fan-out");
        while !stop.is_cancelled() {
            let wait = match self.drain(&stop).await {
                Ok(()) => {
                    outage.worked();
                    IDLE
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    outage.failed(&error, &stop).await;
                    Duration::ZERO
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.new_alerts.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        Ok(())
    }

    /// Reads the outbox once from beginning to end. In a backlog, the newest alerts are taken in between, so that new
    /// alerts do not wait for all earlier ones. An entry that stays in the outbox, because it is unreadable or the
    /// server refuses only this entry, does not delay others.
    async fn drain(&mut self, stop: &CancellationToken) -> Result<(), OutboxError> {
        // Subjects left over by an error.
        self.look_again().await?;
        let mut from = "-".to_owned();
        loop {
            let began = Instant::now();
            let oldest = self.entries(redis::cmd("XRANGE"), &from, "+").await?;
            let Some(last) = oldest.last() else { return Ok(()) };
            from = format!("({}", last.id);
            let is_backlog = oldest.len() == READ_MAX;
            self.fan_out(oldest).await?;
            if is_backlog {
                let newest = self.entries(redis::cmd("XREVRANGE"), "+", &from).await?;
                self.fan_out(newest).await?;
            }
            self.counting.wait_for_counting(&self.outbox, began.elapsed(), stop).await;
            if stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    async fn fan_out(&mut self, entries: Vec<OutboxEntry>) -> Result<(), OutboxError> {
        for OutboxEntry { id, notification } in &entries {
            if let Err(why) = notification {
                self.name_unreadable(id, why);
            }
        }
        let raised: Vec<(&str, QuotaNotification<'_>, &[u8])> =
            entries.iter().filter_map(OutboxEntry::raised).collect();
        let OutboxContext { client, keys, contacts, on_multiple, new_deliveries } = &self.outbox;
        let subjects: Vec<&Subject> = raised.iter().map(|(_, notification, _)| notification.subject()).collect();
        let contacts = contacts.contacts_of_each(client, &subjects).await?;
        let with_contacts: Vec<(QuotaNotification<'_>, &ResolvedContacts)> =
            raised.iter().map(|(_, notification, _)| *notification).zip(&contacts).collect();
        let recipients = recipients_of_each(client, keys, &with_contacts, *on_multiple).await;
        let recipients = recipients.map_err(OutboxError::redis(Operation::Query, "the deliveries of ended alerts"))?;
        let mut requests = Vec::with_capacity(raised.len());
        for (&(entry, notification, json), recipients) in raised.iter().zip(&recipients) {
            requests.push(FanOutRequest { source: FanOutSource::Outbox { entry }, notification, json, recipients });
        }
        let mut unusable = Vec::new();
        for requests in chunks(&requests) {
            // Recorded before the call: if the reply is lost, they may wait.
            let waiting = requests.iter().filter(|request| request.recipients.waits);
            self.unsure.extend(waiting.map(|request| request.notification.subject().clone()));
            for (request, answer) in requests.iter().zip(fan_out(client, keys, requests).await?) {
                match answer {
                    FanOutReply::Done(result) => delivery_log::fanned_out(request.notification, &result),
                    FanOutReply::Gone | FanOutReply::Stale => {
                        tracing::debug!(
                            notification = request.notification.id(),
                            "not fanned out again: another daemon did it, or an earlier call whose reply was lost"
                        );
                    }
                    FanOutReply::WrongType => {
                        if let FanOutSource::Outbox { entry } = request.source {
                            unusable.push(entry);
                        }
                    }
                }
            }
            new_deliveries.notify_one();
        }
        for entry in unusable {
            self.name_unreadable(entry, "the key of one of its deliveries holds unexpected data");
        }
        self.look_again().await
    }

    /// Wakes deliveries that started to wait although their subject got a contact meanwhile.
    async fn look_again(&mut self) -> Result<(), OutboxError> {
        let unsure: Vec<Subject> = self.unsure.iter().cloned().collect();
        wake_reachable(&self.outbox, &unsure).await?;
        self.unsure.clear();
        Ok(())
    }

    async fn entries(&self, mut command: Cmd, from: &str, to: &str) -> Result<Vec<OutboxEntry>, OutboxError> {
        let OutboxContext { client, keys, .. } = &self.outbox;
        command.arg(keys.outbox()).arg(from).arg(to).arg("COUNT").arg(READ_MAX);
        let entries: Vec<(String, Vec<Value>)> =
            client.query(&command).await.map_err(OutboxError::redis(Operation::ReadOutbox, keys.stream()))?;
        Ok(entries.into_iter().map(|(id, fields)| OutboxEntry { id, notification: notification_of(fields) }).collect())
    }

    /// Leaves the entry in place, because a later version may be able to read it. Logs it once; the outbox gauge shows
    /// it.
    fn name_unreadable(&mut self, entry: &str, why: &str) {
        if self.named.len() >= NAMED_MAX {
            self.named.clear();
        }
        if self.named.insert(entry.to_owned()) {
            let outbox = self.outbox.keys.outbox();
            tracing::error!(outbox, entry, why, "outbox entry holds no readable notification and stays there");
        }
    }
}

/// Splits the requests into parts of one call each. A notification with too many contacts for a part is a part of its
/// own.
pub(super) fn chunks<'a, 'b>(requests: &'a [FanOutRequest<'b>]) -> impl Iterator<Item = &'a [FanOutRequest<'b>]> {
    let mut left = DELIVERIES_AT_ONCE;
    requests.chunk_by(move |_, next| {
        let deliveries = next.recipients.contacts.len();
        let fits = deliveries < left;
        left = if fits { left - deliveries } else { DELIVERIES_AT_ONCE };
        fits
    })
}

/// The notification of an entry and its JSON, from the entry's fields and values in turn.
fn notification_of(fields: Vec<Value>) -> Result<(Notification, Vec<u8>), String> {
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        if let (Value::BulkString(name), Value::BulkString(json)) = (name, value)
            && let Some(parsed) = entry::parse_field(&name, &json)
        {
            return parsed.map(|notification| (notification, json)).map_err(|error| error.to_string());
        }
    }
    Err("no field \"alert\", \"grant_expires\", \"usage_notice\" or \"resolved\"".to_owned())
}
