//! The log of alerts and notices: each with what raised it and how each of its deliveries ended.
//!
//! It is read backwards: a notification is read after the ends of its deliveries, so it is complete then, and a reader
//! holds only what belongs to notifications that were raised before the place which it has reached.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use redis::RedisResult;
use serde::Serialize;
use serde_json::Value;

use crate::outbox::alert_log::months;
use crate::redis_client::Partition;
use crate::subjects::Plans;
use crate::types::timestamp::Rfc3339;
use crate::types::{AlertStatus, Month, NotificationKind, Subject, UnixMs};

/// Number of entries per read.
const ENTRIES_AT_ONCE: usize = 1_000;

/// A raised alert or notice, and the outcomes of its deliveries.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LoggedNotification {
    /// An alert.
    Alert(LoggedAlert),
    /// A notice before units of a grant expire, of usage, or of the end of alerts.
    Notice(LoggedNotice),
}

/// A raised alert, and the outcomes of its deliveries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoggedAlert {
    /// The alert as it was raised, and the unit of its metric today.
    pub alert: Value,
    /// Whether it had ended, and why, as it was last noticed.
    #[serde(flatten)]
    pub status: AlertStatus,
    /// How its deliveries ended, in the order of their ends. A pending one is missing.
    pub deliveries: Vec<LoggedDelivery>,
}

/// A raised notice, and the outcomes of its deliveries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoggedNotice {
    /// Its type.
    pub r#type: NotificationKind,
    /// The notice as it was raised, and the unit of its metric today.
    pub notice: Value,
    /// As of an alert.
    pub deliveries: Vec<LoggedDelivery>,
}

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedDelivery {
    /// Its id.
    pub id: String,
    /// Its channel: `email`, `webhook` or `none`.
    pub channel: String,
    /// The contact that it was for; `none` without one.
    pub contact_id: String,
    /// To where its last attempt went, as [`logged_address`](crate::contacts::logged_address) shortens it; absent
    /// without an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The id of the message in which it was sent with others; absent if it was sent alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_in: Option<String>,
    /// The mail server's or the receiver's queue.
    pub destination: String,
    /// `delivered`, `dead`, `muted`, `expired` or `cancelled`.
    pub state: String,
    /// Number of attempts.
    pub attempts: u64,
    /// What the receiver or the network said in the last attempt that failed.
    pub last_error: Option<String>,
    /// When it ended, server time.
    pub ended_at: Rfc3339,
}

/// Which alerts and notices are wanted.
#[derive(Debug, Clone)]
pub struct LogFilter {
    /// Raised at this time or later.
    pub since: UnixMs,
    /// Raised before this time.
    pub until: UnixMs,
    /// Only this subject's.
    pub subject: Option<Subject>,
}

/// Reads the log of a partition, the newest alert or notice first.
#[derive(Debug)]
pub struct LogReader {
    partition: Partition,
    filter: LogFilter,
    plans: Plans,
    /// The months that are left to read, the newest last.
    months: Vec<Month>,
    /// The position in the newest month at which the next read begins.
    from: String,
    assembly: Assembly,
}

impl LogReader {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn begin(partition: Partition, filter: LogFilter, plans: Plans) -> RedisResult<Self> {
        let now = partition.client.server_time().await?;
        let months = months(now).into_iter().filter(|month| month.end() > filter.since).collect();
        Ok(Self { partition, filter, plans, months, from: "+".to_owned(), assembly: Assembly::default() })
    }

    /// The next alerts and notices; perhaps none although more follow. `None` at the end.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection; the next call reads the same entries again.
    pub async fn next(&mut self) -> RedisResult<Option<Vec<LoggedNotification>>> {
        let Some(month) = self.months.last() else { return Ok(None) };
        let Partition { client, keys } = &self.partition;
        let mut command = redis::cmd("XREVRANGE");
        // An entry is not older than the alert that it tells of.
        command.arg(keys.alert_log(*month)).arg(&self.from).arg(self.filter.since.0.max(0));
        let entries: Vec<(String, Fields)> = client.query(command.arg("COUNT").arg(ENTRIES_AT_ONCE)).await?;
        match entries.last() {
            Some((oldest, _)) if entries.len() == ENTRIES_AT_ONCE => self.from = format!("({oldest}"),
            _ => {
                self.months.pop();
                self.from = "+".to_owned();
            }
        }
        let mut reached = UnixMs(i64::MAX);
        for (_, fields) in entries {
            reached = self.assembly.add(fields, &self.filter).unwrap_or(reached);
        }
        if self.months.is_empty() {
            reached = UnixMs(i64::MIN);
        }
        Ok(Some(self.assembly.complete(reached, &self.plans)))
    }
}

/// The fields of an entry.
type Fields = HashMap<String, String>;

/// What was read and is not returned yet.
#[derive(Debug, Default)]
struct Assembly {
    /// The ends by the id of their alert or notice.
    ends: HashMap<String, Ends>,
    /// The read alerts and notices by the time of their raising, and in the order of reading.
    raised: BTreeMap<(UnixMs, Reverse<u64>), Raised>,
    /// Number of read alerts and notices.
    read: u64,
}

/// What is known of an alert or a notice before it is read itself.
#[derive(Debug, Default)]
struct Ends {
    /// The last end first.
    deliveries: Vec<LoggedDelivery>,
    status: Option<AlertStatus>,
}

#[derive(Debug)]
struct Raised {
    id: String,
    kind: NotificationKind,
    json: String,
}

impl Assembly {
    /// Adds an entry, and returns its time. `None`: it can't be read, or is of another subject.
    fn add(&mut self, mut fields: Fields, filter: &LogFilter) -> Option<UnixMs> {
        let at = UnixMs(fields.get("at_ms")?.parse().ok()?);
        let id = fields.remove("alert_id").or_else(|| fields.remove("notice_id"))?;
        if filter.subject.as_ref().is_some_and(|wanted| fields.get("subject").is_none_or(|of| of != wanted.as_str())) {
            return None;
        }
        let content = NotificationKind::ALL.into_iter().find_map(|kind| Some((kind, fields.remove(kind.as_str())?)));
        if let Some((kind, json)) = content {
            let raised = serde_json::from_str::<Value>(&json).ok()?["raised_at"].as_str()?.parse().ok()?;
            if (filter.since..filter.until).contains(&raised) {
                self.read += 1;
                self.raised.insert((raised, Reverse(self.read)), Raised { id, kind, json });
            } else {
                self.ends.remove(&id);
            }
        } else if let Some(delivery) = fields.remove("delivery") {
            let deliveries = &mut self.ends.entry(id).or_default().deliveries;
            // A dead delivery that was replayed ends once more: the last end counts.
            if deliveries.iter().all(|later| later.id != delivery) {
                deliveries.push(delivery_of(delivery, fields, at)?);
            }
        } else {
            let status = serde_json::from_str(fields.get("state")?).ok()?;
            self.ends.entry(id).or_default().status.get_or_insert(status);
        }
        Some(at)
    }

    /// Takes what no entry before this time can change, the newest first. The end of an alert may be noticed before the
    /// alert leaves the outbox, but not before it was raised.
    fn complete(&mut self, reached: UnixMs, plans: &Plans) -> Vec<LoggedNotification> {
        let mut complete = Vec::new();
        while let Some(newest) = self.raised.last_entry().filter(|raised| raised.key().0 > reached) {
            let Raised { id, kind, json } = newest.remove();
            let Ends { mut deliveries, status } = self.ends.remove(&id).unwrap_or_default();
            deliveries.reverse();
            let mut content: Value = serde_json::from_str(&json).expect("it was parsed when it was read");
            add_unit(&mut content, plans);
            complete.push(match kind {
                NotificationKind::Alert => {
                    let status = status.unwrap_or_else(|| None.into());
                    LoggedNotification::Alert(LoggedAlert { alert: content, status, deliveries })
                }
                r#type => LoggedNotification::Notice(LoggedNotice { r#type, notice: content, deliveries }),
            });
        }
        complete
    }
}

/// The end of a delivery at this time.
fn delivery_of(id: String, mut fields: Fields, at: UnixMs) -> Option<LoggedDelivery> {
    let mut take = |name: &str| fields.remove(name);
    let given = |text: &String| !text.is_empty();
    Some(LoggedDelivery {
        id,
        channel: take("channel")?,
        contact_id: take("contact_id")?,
        address: take("address").filter(given),
        sent_in: take("sent_in").filter(given),
        destination: take("destination")?,
        state: take("state")?,
        attempts: take("attempts")?.parse().ok()?,
        last_error: take("last_error").filter(given),
        ended_at: Rfc3339(at),
    })
}

/// Adds the unit and the scale of its metric, as they are now.
fn add_unit(content: &mut Value, plans: &Plans) {
    let metric = content["metric"].as_str().and_then(|metric| metric.parse().ok());
    let unit = metric.and_then(|metric| serde_json::to_value(plans.format_of(&metric).unit()).ok());
    if let (Some(content), Some(Value::Object(unit))) = (content.as_object_mut(), unit) {
        content.extend(unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const ALL: LogFilter = LogFilter { since: UnixMs(0), until: UnixMs(i64::MAX), subject: None };

    fn entry(at: i64, id: &str, more: &[(&str, &str)]) -> Fields {
        let at = at.to_string();
        let all =
            [("at_ms", at.as_str()), ("alert_id", id), ("subject", "alice")].into_iter().chain(more.iter().copied());
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn raised(at: i64, raised: i64, id: &str) -> Fields {
        let json = format!(r#"{{"id":"{id}","metric":"requests","raised_at":"{}"}}"#, UnixMs(raised));
        entry(at, id, &[("alert", &json)])
    }

    fn end(at: i64, id: &str, delivery: &str, state: &str) -> Fields {
        let of = [("delivery", delivery), ("channel", "email"), ("contact_id", "c"), ("destination", "email")];
        entry(at, id, &[&of[..], &[("state", state), ("attempts", "1")]].concat())
    }

    fn plans() -> Plans {
        Config::defaults().expect("valid").plans().expect("legal")
    }

    /// The id, the states of deliveries, and whether the alert has ended.
    fn shown(logged: &LoggedNotification) -> (&str, Vec<&str>, bool) {
        let LoggedNotification::Alert(LoggedAlert { alert, status, deliveries }) = logged else {
            panic!("no notice was added: {logged:?}");
        };
        let states = deliveries.iter().map(|delivery| delivery.state.as_str()).collect();
        (alert["id"].as_str().expect("an id"), states, status.end.is_some())
    }

    /// A counting daemon that held the log of a year to answer one request would run out of memory.
    #[test]
    fn a_reader_holds_only_what_is_open_at_the_place_that_it_reads() {
        let (mut assembly, plans, mut held_max, mut complete) = (Assembly::default(), plans(), 0, 0);
        for at in (0..10_000).rev().map(|number| number * 100) {
            for fields in [end(at + 50, &format!("{at}"), "d", "delivered"), raised(at + 1, at, &format!("{at}"))] {
                let reached = assembly.add(fields, &ALL).expect("an entry");
                complete += assembly.complete(reached, &plans).len();
                held_max = held_max.max(assembly.ends.len() + assembly.raised.len());
            }
        }
        assert_eq!((complete + assembly.complete(UnixMs(i64::MIN), &plans).len(), assembly.ends.len()), (10_000, 0));
        assert!(held_max <= 4, "{held_max}");
    }

    /// A customer who was told in the end must not look like one who was not, nor an ended alert like an open one.
    #[test]
    fn the_last_end_counts_and_an_end_before_the_fan_out_is_found() {
        let ended = r#"{"state":"ended","end_reason":"credited","ended_at":"2026-11-21T00:00:00Z"}"#;
        let open = r#"{"state":"open"}"#;
        let mut log = vec![
            entry(12, "early", &[("state", ended)]),
            raised(20, 10, "early"),
            raised(21, 21, "replayed"),
            end(22, "replayed", "one", "dead"),
            end(23, "replayed", "two", "cancelled"),
            entry(24, "replayed", &[("state", ended)]),
            end(25, "replayed", "one", "delivered"),
            entry(26, "replayed", &[("state", open)]),
            end(27, "of another time", "three", "dead"),
            HashMap::new(),
        ];
        let (mut assembly, plans, mut logged) = (Assembly::default(), plans(), Vec::new());
        while let Some(fields) = log.pop() {
            if let Some(reached) = assembly.add(fields, &ALL) {
                logged.extend(assembly.complete(reached, &plans));
            }
        }
        assert_eq!(logged.len(), 1, "nothing can change the first one any more");
        logged.extend(assembly.complete(UnixMs(i64::MIN), &plans));
        let shown: Vec<_> = logged.iter().map(shown).collect();
        assert_eq!(shown, [("replayed", vec!["cancelled", "delivered"], false), ("early", vec![], true)]);
    }
}
