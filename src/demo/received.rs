//! The receivers: a mailbox and two webhook receivers, which check everything that arrives.
//!
//! They act like a customer: they check signatures with the public crate and read nothing from Redis.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use standardwebhooks::Webhook;

use super::mail;
use super::scenario::SimulatedSubject;
use crate::contacts::Contact;
use crate::demo::receivers::{CaughtMail, CaughtRequest, HttpCatcher, SmtpCatcher};
use crate::types::{AlertId, Channel, ContactId, DeliveryId};

/// Number of failures of the flaky receiver.
pub(super) const FAILURES: usize = 2;
/// The line between the alerts of an email.
const ITEM_RULE: &str = "\n________________________________________\n";
/// The reply code of the mail server for an accepted email.
const MAIL_ACCEPTED: u16 = 250;

pub(super) struct LocalReceivers {
    pub(super) mail: SmtpCatcher,
    /// Accepts webhooks.
    pub(super) steady: HttpCatcher,
    /// Fails first, then accepts webhooks.
    pub(super) flaky: HttpCatcher,
}

/// The numbers in a message about its alert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct AlertNumbers {
    /// 0 of a notice.
    #[serde(rename = "threshold_percent", default)]
    pub(super) percent: u16,
    pub(super) used: u64,
    pub(super) limit: u64,
}

/// What a message says beside its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Told {
    /// An alert of its own, raised at this time; of an email nobody needs the time.
    #[default]
    Nothing,
    RaisedAt(DateTime<Utc>),
    /// One of these many alerts in the message with this id.
    Digest {
        message: String,
        alerts: usize,
    },
    /// When the limit will probably be reached; nothing if the notice does not say it.
    Forecast(Option<DateTime<Utc>>),
    /// Why the alerts have ended.
    End(String),
}

/// An attempt as seen by its receiver.
#[derive(Debug, Clone)]
pub(super) struct ReceivedAttempt {
    pub(super) channel: Channel,
    /// The contact; `None` if it is unknown.
    pub(super) contact: Option<ContactId>,
    pub(super) alert: AlertId,
    /// The receiver's status.
    pub(super) status: u16,
    /// Zeros if the message has none.
    pub(super) numbers: AlertNumbers,
    pub(super) told: Told,
    /// A description if everything is correct.
    pub(super) sound: String,
    /// What is wrong.
    pub(super) problem: Option<String>,
    pub(super) at: Instant,
}

impl ReceivedAttempt {
    /// Whether the receiver accepted it.
    pub(super) const fn is_accepted(&self) -> bool {
        self.status >= 200 && self.status < 300
    }

    /// The id of the digest in which it came, and the number of its alerts.
    pub(super) const fn digest(&self) -> Option<(&String, usize)> {
        match &self.told {
            Told::Digest { message, alerts } => Some((message, *alerts)),
            _ => None,
        }
    }
}

impl LocalReceivers {
    /// Starts the receivers on free ports.
    pub(super) async fn start() -> std::io::Result<Self> {
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        let requests = AtomicUsize::new(0);
        Ok(Self {
            mail: SmtpCatcher::start_on(any_port).await?,
            steady: HttpCatcher::start_on(any_port, |_| (StatusCode::NO_CONTENT, String::new())).await?,
            flaky: HttpCatcher::start_on(any_port, move |_| {
                let is_over = requests.fetch_add(1, Ordering::Relaxed) >= FAILURES;
                (if is_over { StatusCode::NO_CONTENT } else { StatusCode::SERVICE_UNAVAILABLE }, String::new())
            })
            .await?,
        })
    }

    /// The attempts of the next message, checked by its receiver. Safe to cancel.
    pub(super) async fn next(&mut self, subjects: &[SimulatedSubject]) -> Vec<ReceivedAttempt> {
        tokio::select! {
            mail = self.mail.next() => read_mail(&mail, subjects),
            request = self.steady.next() => read_request(&request, subjects),
            request = self.flaky.next() => read_request(&request, subjects),
        }
    }
}

fn contact_of(subjects: &[SimulatedSubject], is_meant: impl Fn(&Contact) -> bool) -> Option<&Contact> {
    subjects.iter().flat_map(|simulated| &simulated.contacts).find(|contact| is_meant(contact))
}

/// The attempts of all alerts in a mail. One commit may raise several for a contact, which gets one message then.
fn read_mail(caught: &CaughtMail, subjects: &[SimulatedSubject]) -> Vec<ReceivedAttempt> {
    let raw = &caught.text;
    let contact = contact_of(subjects, |contact| caught.to.first().is_some_and(|to| to == contact.address()));
    let message_id = mail::header(raw, "Message-ID").unwrap_or_default();
    let attempt = |alert: AlertId, numbers, problem| ReceivedAttempt {
        channel: Channel::Email,
        contact: contact.map(|contact| contact.id.clone()),
        alert,
        status: MAIL_ACCEPTED,
        numbers,
        told: Told::Nothing,
        sound: format!("to {}", caught.to.join(", ")),
        problem,
        at: caught.arrived,
    };
    let problem = mail::part(raw, "text/html").is_none().then(|| "it has no HTML part".to_owned());
    let text = mail::part(raw, "text/plain").unwrap_or_default();
    let items: Vec<AlertNumbers> = text.split(ITEM_RULE).filter_map(numbers_of_text).collect();
    if message_id.starts_with("<digest_") && !items.is_empty() {
        let id = |of: &AlertNumbers| {
            id_of(*of, subjects.iter().filter(|one| one.contacts.iter().any(|own| Some(own) == contact)))
        };
        return items.iter().map(|numbers| attempt(id(numbers), *numbers, problem.clone())).collect();
    }
    let alert = AlertId::from_stored(&mail::header(raw, "X-Quotabell-Alert").unwrap_or_default());
    let is_of = |contact: &Contact| message_id.starts_with(&format!("<{}@", DeliveryId::derive(&alert, &contact.id)));
    let strange = || format!("its Message-ID {message_id} is not of this delivery");
    let problem = if contact.is_some_and(is_of) { problem } else { Some(strange()) };
    vec![attempt(alert, items.first().copied().unwrap_or_default(), problem)]
}

/// The id of the alert with these numbers that is expected for one of these subjects; its name if none is.
fn id_of<'a>(
    AlertNumbers { percent, limit, .. }: AlertNumbers,
    subjects: impl Iterator<Item = &'a SimulatedSubject>,
) -> AlertId {
    let what = format!("{percent} % of {limit}/");
    let mut alerts = subjects.flat_map(SimulatedSubject::raised);
    alerts.find(|alert| alert.what.starts_with(&what)).map_or(AlertId::from_stored(&what), |alert| alert.id.clone())
}

/// The numbers in an email's text for people: `Used  4,000 of 5,000 requests (80.0%)` and `Threshold  80%`.
fn numbers_of_text(text: &str) -> Option<AlertNumbers> {
    let number_after = |name: &str, nth: usize| -> Option<u64> {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(nth)?.replace(',', "").trim_end_matches('%').parse().ok()
    };
    let (percent, used, limit) = (number_after("Threshold ", 1)?, number_after("Used ", 1)?, number_after("Used ", 3)?);
    Some(AlertNumbers { percent: percent.try_into().ok()?, used, limit })
}

/// The checked part of a webhook's body.
#[derive(Deserialize)]
struct Body {
    timestamp: DateTime<Utc>,
    #[serde(flatten)]
    content: BodyContent,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "data")]
enum BodyContent {
    #[serde(rename = "quota.threshold_reached")]
    Alert(AlertNumbers),
    #[serde(rename = "quota.digest")]
    Digest { items: Vec<DigestItem> },
    #[serde(rename = "quota.forecast")]
    Forecast {
        expected_at: Option<DateTime<Utc>>,
        #[serde(flatten)]
        numbers: AlertNumbers,
    },
    #[serde(rename = "quota.resolved")]
    End {
        reason: String,
        #[serde(flatten)]
        numbers: AlertNumbers,
    },
}

/// An alert in a digest, which has no id there.
#[derive(Deserialize)]
struct DigestItem {
    data: DigestAlert,
}

#[derive(Deserialize)]
struct DigestAlert {
    subject: String,
    #[serde(flatten)]
    numbers: AlertNumbers,
}

fn read_request(caught: &CaughtRequest, subjects: &[SimulatedSubject]) -> Vec<ReceivedAttempt> {
    let path = caught.uri.path();
    let contact = contact_of(subjects, |contact| contact.secret().is_some() && contact.address().ends_with(path));
    let id = caught.headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let body = serde_json::from_slice::<Body>(&caught.body).ok();
    let problem = match (contact.and_then(Contact::secret), &body) {
        (None, _) => Some(format!("{path} belongs to no contact")),
        (_, None) => Some("its body is not the JSON of an alert or a notice".to_owned()),
        (Some(secret), Some(_)) => {
            let webhook = Webhook::new(secret.reveal());
            let verified = webhook.and_then(|webhook| webhook.verify(&caught.body, &caught.headers));
            verified.err().map(|error| error.to_string())
        }
    };
    let attempt = |alert: AlertId, numbers, told| ReceivedAttempt {
        channel: Channel::Webhook,
        contact: contact.map(|contact| contact.id.clone()),
        alert,
        status: caught.status,
        numbers,
        told,
        sound: "signature ok".to_owned(),
        problem: problem.clone(),
        at: caught.arrived,
    };
    let own = |numbers, told| vec![attempt(AlertId::from_stored(id), numbers, told)];
    let Some(Body { timestamp, content }) = body else { return own(AlertNumbers::default(), Told::Nothing) };
    match content {
        BodyContent::Alert(numbers) => own(numbers, Told::RaisedAt(timestamp)),
        BodyContent::Forecast { expected_at, numbers } => own(numbers, Told::Forecast(expected_at)),
        BodyContent::End { reason, numbers } => own(numbers, Told::End(reason)),
        BodyContent::Digest { items } => {
            let told = Told::Digest { message: id.to_owned(), alerts: items.len() };
            let id = |DigestAlert { subject, numbers }: &DigestAlert| {
                id_of(*numbers, subjects.iter().filter(|one| one.uses.subject.as_str() == subject))
            };
            items.iter().map(|item| attempt(id(&item.data), item.data.numbers, told.clone())).collect()
        }
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing | Self::RaisedAt(_) => Ok(()),
            Self::Digest { alerts, .. } => write!(f, ", one of {alerts} in this message"),
            Self::Forecast(expected) => {
                let expected = expected.map(|at| at.format("%H:%M UTC").to_string()).unwrap_or_default();
                write!(f, ", will be reached at about {expected}")
            }
            Self::End(reason) => write!(f, ", is over: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, Method, Uri};

    use super::*;
    use crate::demo::scenario::tests::sample;

    /// On a busy machine one commit reaches both thresholds: the demonstration would wait for mails that never come.
    #[test]
    fn each_alert_of_a_mail_about_several_is_known() {
        let subjects = sample().subjects;
        let item = |percent: u16| format!("\r\nUsed  5,000 of 5,000 requests a day\r\nThreshold  {percent}%\r\n");
        let rule = ITEM_RULE.replace('\n', "\r\n");
        let part = |kind: &str, text: &str| format!("--xyz\r\nContent-Type: {kind}\r\n\r\n{text}\r\n");
        let parts = part("text/plain", &["2 quota alerts\r\n".to_owned(), item(80), item(100)].join(&rule));
        let head =
            "Message-ID: <digest_1@example.com>\r\nContent-Type: multipart/alternative; boundary=\"xyz\"\r\n\r\n";
        let text = format!("{head}{parts}{}--xyz--\r\n", part("text/html", "<p>"));
        let (from, to, arrived) = (String::new(), vec!["alice@example.com".to_owned()], Instant::now());
        let read = read_mail(&CaughtMail { from, to, text, arrived }, &subjects);
        let alice = subjects.iter().find(|one| one.uses.subject.as_str() == "alice").expect("alice");
        let expected: Vec<&AlertId> = alice.raised().map(|alert| &alert.id).collect();
        assert_eq!(read.iter().map(|one| &one.alert).collect::<Vec<_>>(), expected);
        assert!(read.iter().all(|one| one.problem.is_none() && one.numbers.used == 5_000), "{read:?}");
    }

    /// A demonstration that accepts any signature would show nothing.
    #[test]
    fn a_signature_by_another_secret_is_noticed() {
        let subjects = sample().subjects;
        let body = concat!(
            r#"{"type":"quota.threshold_reached","timestamp":"2026-11-28T12:00:00Z","#,
            r#""data":{"threshold_percent":80,"used":80,"limit":100}}"#
        );
        // The crate uses its own clock, so the signature must be current.
        let now_s = chrono::Local::now().timestamp();
        let read = |secret: &str| {
            let signature = Webhook::new(secret).expect("base64").sign("alert_1", now_s, body.as_bytes());
            let mut headers = HeaderMap::new();
            headers.insert("webhook-id", HeaderValue::from_static("alert_1"));
            headers.insert("webhook-timestamp", now_s.into());
            headers.insert("webhook-signature", signature.expect("UTF-8").parse().expect("printable"));
            let (method, uri, body) = (Method::POST, Uri::from_static("/bob"), body.into());
            let request = CaughtRequest { method, uri, headers, body, status: 204, arrived: Instant::now() };
            read_request(&request, &subjects).pop().expect("one")
        };
        let bob = contact_of(&subjects, |contact| contact.address().ends_with("/bob")).expect("bob");
        let good = read(bob.secret().expect("a webhook has one").reveal());
        assert_eq!((good.problem, good.contact), (None, Some(bob.id.clone())));
        assert_eq!(good.numbers, AlertNumbers { percent: 80, used: 80, limit: 100 });
        assert!(read("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").problem.is_some());
    }
}
