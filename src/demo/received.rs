//! The receivers: a mailbox and two webhook receivers, which check everything that arrives.
//!
//! They act like a customer: they check signatures with the public crate and read nothing from Redis.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use serde::Deserialize;
use standardwebhooks::Webhook;

use super::mail;
use super::scenario::SimulatedSubject;
use crate::contacts::Contact;
use crate::demo::receivers::{CaughtMail, CaughtRequest, HttpCatcher, SmtpCatcher};
use crate::types::{AlertId, Channel, ContactId, DeliveryId};

/// Number of failures of the flaky receiver.
pub(super) const FAILURES: usize = 2;
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
    #[serde(rename = "threshold_percent")]
    pub(super) percent: u16,
    pub(super) used: u64,
    pub(super) limit: u64,
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

    /// The next attempt, checked by its receiver. Safe to cancel.
    pub(super) async fn next(&mut self, subjects: &[SimulatedSubject]) -> ReceivedAttempt {
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

fn read_mail(caught: &CaughtMail, subjects: &[SimulatedSubject]) -> ReceivedAttempt {
    let raw = &caught.text;
    let contact = contact_of(subjects, |contact| caught.to.first().is_some_and(|to| to == contact.address()));
    let alert = AlertId::from_stored(&mail::header(raw, "X-Quotabell-Alert").unwrap_or_default());
    let message_id = mail::header(raw, "Message-ID").unwrap_or_default();
    let is_of = |contact: &Contact| message_id.starts_with(&format!("<{}@", DeliveryId::derive(&alert, &contact.id)));
    let numbers = mail::part(raw, "text/plain").and_then(|text| numbers_of_text(&text)).unwrap_or_default();
    let problem = if !contact.is_some_and(is_of) {
        Some(format!("its Message-ID {message_id} is not of this delivery"))
    } else {
        mail::part(raw, "text/html").is_none().then(|| "it has no HTML part".to_owned())
    };
    let contact = contact.map(|contact| contact.id.clone());
    let (at, sound) = (caught.arrived, format!("to {}", caught.to.join(", ")));
    ReceivedAttempt { channel: Channel::Email, contact, alert, status: MAIL_ACCEPTED, numbers, sound, problem, at }
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
    r#type: String,
    data: AlertNumbers,
}

fn read_request(caught: &CaughtRequest, subjects: &[SimulatedSubject]) -> ReceivedAttempt {
    let path = caught.uri.path();
    let contact = contact_of(subjects, |contact| contact.secret().is_some() && contact.address().ends_with(path));
    let id = caught.headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    let body = serde_json::from_slice::<Body>(&caught.body).ok();
    let numbers = body.as_ref().map_or_else(AlertNumbers::default, |body| body.data);
    let problem = match (contact.and_then(Contact::secret), body) {
        (None, _) => Some(format!("{path} belongs to no contact")),
        (_, None) => Some("its body is not the JSON of an alert".to_owned()),
        (_, Some(body)) if body.r#type != "quota.threshold_reached" => Some(format!("it is a {}", body.r#type)),
        (Some(secret), Some(_)) => {
            let webhook = Webhook::new(secret.reveal());
            let verified = webhook.and_then(|webhook| webhook.verify(&caught.body, &caught.headers));
            verified.err().map(|error| error.to_string())
        }
    };
    ReceivedAttempt {
        channel: Channel::Webhook,
        contact: contact.map(|contact| contact.id.clone()),
        alert: AlertId::from_stored(id),
        status: caught.status,
        numbers,
        sound: "signature ok".to_owned(),
        problem,
        at: caught.arrived,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, Method, Uri};

    use super::*;
    use crate::demo::scenario::tests::sample;

    /// A demonstration that accepts any signature would show nothing.
    #[test]
    fn a_signature_by_another_secret_is_noticed() {
        let subjects = sample().subjects;
        let body = r#"{"type":"quota.threshold_reached","data":{"threshold_percent":80,"used":80,"limit":100}}"#;
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
            read_request(&request, &subjects)
        };
        let bob = contact_of(&subjects, |contact| contact.address().ends_with("/bob")).expect("bob");
        let good = read(bob.secret().expect("a webhook has one").reveal());
        assert_eq!((good.problem, good.contact), (None, Some(bob.id.clone())));
        assert_eq!(good.numbers, AlertNumbers { percent: 80, used: 80, limit: 100 });
        assert!(read("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").problem.is_some());
    }
}
