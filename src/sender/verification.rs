//! Messages that ask whoever is at an address whether they want our alerts: a mail with a one-time password, a webhook to be echoed.
//!
//! Owns what they say. Never decides whether an address may be asked, and never remembers what it was asked.

use std::time::Duration;

use serde::Serialize;

use super::Sender;
use super::render::{Rendered, VerifyVariables};
use crate::transport::{Challenged, Mail, Posted, WebhookRequest};
use crate::types::{Secret, Subject, UnixMs};

/// A one-time password on its way to an address.
#[derive(Clone, Copy)]
pub struct PasswordMail<'a> {
    /// The Message-ID; another for each.
    pub id: &'a str,
    /// Whose alerts are to come there.
    pub subject: &'a Subject,
    /// The address.
    pub address: &'a str,
    /// Six digits.
    pub code: &'a str,
    /// The page that does the same.
    pub link: Option<&'a str>,
    /// How long both are good.
    pub lives: Duration,
    /// Server time.
    pub now: UnixMs,
}

/// A question to a receiver: a text that it has to send back.
#[derive(Clone, Copy)]
pub struct ChallengePost<'a> {
    /// `webhook-id`; another for each, without a dot.
    pub id: &'a str,
    /// Whose alerts are to come there.
    pub subject: &'a Subject,
    /// The receiver.
    pub url: &'a str,
    /// What signs.
    pub secret: &'a Secret,
    /// What it has to send back.
    pub challenge: &'a str,
    /// Server time.
    pub now: UnixMs,
}

#[derive(Serialize)]
struct Payload<'a> {
    r#type: &'static str,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    subject: &'a str,
    challenge: &'a str,
}

impl Sender {
    /// Sends a one-time password and says how it ended, and whether it may have arrived. Leaves the machine; ends within the deadline of e-mail.
    pub async fn send_password(&self, mail: PasswordMail<'_>) -> Posted {
        let PasswordMail { id, subject, address, code, link, lives, now } = mail;
        let minutes = (lives.as_secs() / 60).max(1);
        let Rendered { subject_line, text, html } =
            self.render_verification(VerifyVariables { subject: subject.as_str(), code, link, minutes });
        let mail = Mail {
            to: address,
            delivery_id: id,
            alert_id: None,
            subject_line: &subject_line,
            text: &text,
            html: &html,
            now_s: now.0.div_euclid(1000),
        };
        self.mailer.post(mail).await
    }

    /// Sends a challenge and says whether it was echoed. Leaves the machine; ends within the deadline of webhooks.
    pub async fn send_challenge(&self, post: ChallengePost<'_>) -> Challenged {
        let ChallengePost { id, subject, url, secret, challenge, now } = post;
        let data = Data { subject: subject.as_str(), challenge };
        let payload = Payload { r#type: "contact.verification", timestamp: now.to_string(), data };
        let body = serde_json::to_string(&payload).expect("strings serialise");
        let request = WebhookRequest { id, now_s: now.0.div_euclid(1000), url, secret, body: &body };
        self.webhook.challenge(request, challenge).await
    }

    fn render_verification(&self, variables: VerifyVariables<'_>) -> Rendered {
        self.templates.render_verification(variables).unwrap_or_else(|error| {
            tracing::error!(error = %error, "template failed, the embedded one is used instead");
            self.embedded.render_verification(variables).expect("the embedded templates render every verification")
        })
    }
}
