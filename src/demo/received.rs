//! The receiving side: a mailbox and two webhook receivers, which read and check everything that arrives.
//!
//! Acts as the customer does: it checks signatures with the public crate and reads nothing that the daemon wrote in Redis.

use std::time::Instant;

use serde::Deserialize;
use standardwebhooks::Webhook;

use super::mail;
use super::scenario::SimulatedSubject;
use crate::contacts::{Contact, Endpoint};
use crate::demo::receivers::{Answer, CaughtMail, CaughtRequest, HttpCatcher, SmtpCatcher, SmtpSetup};
use crate::types::{AlertId, Channel, ContactId, DeliveryId};

/// How often the flaky receiver fails.
pub(super) const FAILURES: usize = 2;
/// What it says then.
pub(super) const FAILURE: u16 = 503;
/// What the mail server says when it took a mail.
const MAIL_ACCEPTED: u16 = 250;

/// The receivers.
#[derive(Debug)]
pub(super) struct LocalReceivers {
    /// Takes mail.
    pub(super) mail: SmtpCatcher,
    /// Takes webhooks.
    pub(super) steady: HttpCatcher,
    /// Takes webhooks after it has failed.
    pub(super) flaky: HttpCatcher,
}

/// Something that arrived, as it was.
#[derive(Debug)]
pub(super) enum Received {
    /// A mail.
    Mail(Box<CaughtMail>),
    /// A request.
    Request(Box<CaughtRequest>),
}

/// What a message says about its alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AlertNumbers {
    /// The threshold.
    pub(super) percent: u64,
    /// Units used.
    pub(super) used: u64,
    /// Of how many.
    pub(super) limit: u64,
}

/// One attempt as its receiver saw it.
#[derive(Debug, Clone)]
pub(super) struct ReceivedAttempt {
    /// How it came.
    pub(super) channel: Channel,
    /// The contact that it was sent to; `None`: to no known one.
    pub(super) contact: Option<ContactId>,
    /// The alert that it bears.
    pub(super) alert: AlertId,
    /// What it was answered.
    pub(super) status: u16,
    /// What it says.
    pub(super) facts: Option<AlertNumbers>,
    /// What is wrong with it.
    pub(super) problem: Option<String>,
    /// When.
    pub(super) at: Instant,
}

impl ReceivedAttempt {
    /// Whether the receiver took it.
    pub(super) const fn is_accepted(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

impl LocalReceivers {
    /// Starts the receivers on free ports.
    pub(super) async fn start() -> std::io::Result<Self> {
        Ok(Self {
            mail: SmtpCatcher::start(SmtpSetup::default()).await?,
            steady: HttpCatcher::start([]).await?,
            flaky: HttpCatcher::start(vec![Answer::status(FAILURE); FAILURES]).await?,
        })
    }

    /// The next thing that arrives. Safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Received {
        tokio::select! {
            mail = self.mail.next() => Received::Mail(Box::new(mail)),
            request = self.steady.next() => Received::Request(Box::new(request)),
            request = self.flaky.next() => Received::Request(Box::new(request)),
        }
    }

    /// The next thing that has arrived already.
    pub(super) fn try_next(&mut self) -> Option<Received> {
        let mail = self.mail.try_next().map(|mail| Received::Mail(Box::new(mail)));
        let mut request = || self.steady.try_next().or_else(|| self.flaky.try_next());
        mail.or_else(|| request().map(|request| Received::Request(Box::new(request))))
    }
}

/// Reads what arrived, as the one to whom it was sent: signature, ids, numbers.
pub(super) fn read(caught: &Received, subjects: &[SimulatedSubject]) -> ReceivedAttempt {
    match caught {
        Received::Mail(mail) => read_mail(mail, subjects),
        Received::Request(request) => read_request(request, subjects),
    }
}

fn contact_of(subjects: &[SimulatedSubject], is_meant: impl Fn(&Contact) -> bool) -> Option<&Contact> {
    subjects.iter().flat_map(|simulated| &simulated.contacts).find(|contact| is_meant(contact))
}

fn read_mail(caught: &CaughtMail, subjects: &[SimulatedSubject]) -> ReceivedAttempt {
    let contact = contact_of(subjects, |contact| {
        contact.channel() == Channel::Email && caught.to.first().is_some_and(|to| to == contact.address())
    });
    let mut arrival = ReceivedAttempt {
        channel: Channel::Email,
        contact: contact.map(|contact| contact.id.clone()),
        alert: AlertId::from_stored(""),
        status: MAIL_ACCEPTED,
        facts: None,
        problem: None,
        at: caught.arrived,
    };
    match mail::read(&caught.text()) {
        Err(error) => arrival.problem = Some(error.to_string()),
        Ok(mail) => {
            arrival.alert = AlertId::from_stored(&mail.alert);
            arrival.facts = facts_of_text(&mail.text);
            let delivery = contact.map(|contact| DeliveryId::of(&arrival.alert, &contact.id));
            let stem = mail.message_id.split('@').next().unwrap_or_default();
            if delivery.is_none_or(|delivery| delivery.as_str() != stem) {
                arrival.problem = Some(format!("its Message-ID {} is not of this delivery", mail.message_id));
            } else if arrival.facts.is_none() {
                arrival.problem = Some("its text has no numbers".to_owned());
            }
        }
    }
    arrival
}

/// The numbers of a mail's text: `Used  4,000 of 5,000 requests (80.0%)` and `Threshold  80%`.
fn facts_of_text(text: &str) -> Option<AlertNumbers> {
    let words_after = |name: &str| {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().skip(1).collect::<Vec<_>>())
    };
    let number = |word: &str| word.replace(',', "").trim_end_matches('%').parse().ok();
    let used = words_after("Used ")?;
    let threshold = words_after("Threshold ")?;
    Some(AlertNumbers {
        percent: number(threshold.first()?)?,
        used: number(used.first()?)?,
        limit: number(used.get(2)?)?,
    })
}

/// The part of a webhook's body that is checked.
#[derive(Deserialize)]
struct Body {
    r#type: String,
    data: BodyData,
}

#[derive(Deserialize)]
struct BodyData {
    threshold_percent: u64,
    used: u64,
    limit: u64,
}

fn read_request(caught: &CaughtRequest, subjects: &[SimulatedSubject]) -> ReceivedAttempt {
    let path = caught.uri.path();
    let contact = contact_of(subjects, |contact| {
        contact.channel() == Channel::Webhook && contact.address().ends_with(path) && path.len() > 1
    });
    let id = caught.headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let body = serde_json::from_slice::<Body>(&caught.body).ok();
    let facts = body.as_ref().map(|Body { data, .. }| AlertNumbers {
        percent: data.threshold_percent,
        used: data.used,
        limit: data.limit,
    });
    let problem = match (contact, body) {
        (None, _) => Some(format!("{path} belongs to no contact")),
        (_, None) => Some("its body is not the JSON of an alert".to_owned()),
        (_, Some(body)) if body.r#type != "quota.threshold_reached" => Some(format!("it is a {}", body.r#type)),
        (Some(contact), Some(_)) => forged(contact, caught),
    };
    ReceivedAttempt {
        channel: Channel::Webhook,
        contact: contact.map(|contact| contact.id.clone()),
        alert: AlertId::from_stored(id),
        status: caught.status,
        facts,
        problem,
        at: caught.arrived,
    }
}

/// What is wrong with the signature.
fn forged(contact: &Contact, caught: &CaughtRequest) -> Option<String> {
    let Endpoint::Webhook { secret, .. } = &contact.endpoint else { return None };
    let verified = Webhook::new(secret.reveal()).and_then(|webhook| webhook.verify(&caught.body, &caught.headers));
    verified.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::scenario::{ReceiverUrls, subjects};
    use crate::types::UnixMs;

    /// A demonstration that takes any signature for a good one shows nothing.
    #[test]
    fn a_signature_by_another_secret_is_noticed() {
        let receivers = ReceiverUrls { steady: "http://127.0.0.1:1", flaky: "http://127.0.0.1:2" };
        let subjects = subjects(UnixMs(1_795_250_000_000), receivers).expect("a scenario");
        let body = r#"{"type":"quota.threshold_reached","data":{"threshold_percent":80,"used":80,"limit":100}}"#;
        // The crate's own clock judges the time, so the signature must be of now.
        let now_s = chrono::Local::now().timestamp();
        let request = |secret: &str| {
            let signature = Webhook::new(secret).expect("base64").sign("alert_1", now_s, body.as_bytes());
            let headers = [
                ("webhook-id", "alert_1".to_owned()),
                ("webhook-timestamp", now_s.to_string()),
                ("webhook-signature", signature.expect("UTF-8")),
            ];
            let headers = headers
                .into_iter()
                .map(|(name, value)| (axum::http::HeaderName::from_static(name), value.parse().expect("printable")));
            Received::Request(Box::new(CaughtRequest {
                method: axum::http::Method::POST,
                uri: "/bob".parse().expect("a path"),
                headers: headers.collect(),
                body: body.into(),
                status: 204,
                arrived: Instant::now(),
            }))
        };
        let bob = contact_of(&subjects, |contact| contact.address().ends_with("/bob")).expect("bob");
        let Endpoint::Webhook { secret, .. } = &bob.endpoint else { panic!("bob has a webhook") };
        let good = read(&request(secret.reveal()), &subjects);
        assert_eq!((good.problem, good.contact), (None, Some(bob.id.clone())));
        assert_eq!(good.facts, Some(AlertNumbers { percent: 80, used: 80, limit: 100 }));
        assert!(read(&request("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), &subjects).problem.is_some());
    }

    /// The mail's text is made for people; its numbers must be found all the same.
    #[test]
    fn numbers_are_found_in_the_text_of_a_mail() {
        let text = "alice has used 80.0%.\n\n  Used       4,000 of 5,000 requests (80.0%)\n  Threshold  80%\n";
        assert_eq!(facts_of_text(text), Some(AlertNumbers { percent: 80, used: 4000, limit: 5000 }));
        assert_eq!(facts_of_text("Used up"), None);
    }
}
