//! One attempt over SMTP: a mail with a stable Message-ID to one recipient, through the configured server.
//!
//! Owns the deadline and the outcome. Never renders, never chooses the recipient. Read next: `smtp` for the conversation
//! and its classes, `message` for the bytes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lettre::transport::smtp::client::Certificate;

use super::config::EmailConfig;
use super::message::Author;
use super::recipient;
use super::smtp::{Parcel, Refusal, SmtpClient};
use super::smtp_url::SmtpServer;
use super::{TransportError, authorities};
use crate::types::{Class, Outcome};

/// The setting that names a file with the URL.
const URL_FILE: &str = "email.smtp_url_file";

/// One mail to send.
#[derive(Debug, Clone, Copy)]
pub struct Mail<'a> {
    /// The recipient, `local@domain`, as the subject gave it; judged here.
    pub to: &'a str,
    /// The delivery's id, or that of what else the mail is: the Message-ID, the same on every attempt.
    pub delivery_id: &'a str,
    /// The alert's id: the header `X-Quotabell-Alert`, for filters and support. `None` where the mail is about none.
    pub alert_id: Option<&'a str>,
    /// The Subject header. Control characters become spaces.
    pub subject_line: &'a str,
    /// The plain text part.
    pub text: &'a str,
    /// The HTML part.
    pub html: &'a str,
    /// The Date header: when this attempt starts, Unix seconds.
    pub now_s: i64,
}

/// Whether a message may have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The other side never saw what it says.
    Never,
    /// It was taken, or may have been: nobody knows.
    Possible,
}

/// How an attempt ended that is not made again.
#[derive(Debug)]
pub struct Posted {
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the message may have arrived.
    pub arrival: Arrival,
}

/// Sends mails.
#[derive(Debug)]
pub struct Mailer {
    client: SmtpClient,
    author: Author,
    timeout: Duration,
    warnings: Vec<String>,
}

impl Mailer {
    /// Reads the settings and prepares TLS. Connects nowhere.
    ///
    /// # Errors
    ///
    /// [`TransportError`], naming the setting and what is allowed, never a password.
    pub fn new(config: &EmailConfig) -> Result<Self, TransportError> {
        let parse =
            |setting, url: &str| SmtpServer::parse(url).map_err(|problem| TransportError::SmtpUrl { setting, problem });
        let server = match &config.smtp_url_file {
            Some(path) => parse(URL_FILE, &first_line(path)?)?,
            None => parse("email.smtp_url", &config.smtp_url)?,
        };
        let warnings = server.warning().into_iter().collect();
        let authorities = authorities_of(config)?;
        Ok(Self {
            client: SmtpClient::new(server, authorities)?,
            author: Author::parse(&config.from)?,
            timeout: config.timeout,
            warnings,
        })
    }

    /// What an operator should know about settings that are allowed but unwise, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Sends one mail and says how it ended. Leaves the machine; repeating it sends again, with the same Message-ID.
    ///
    /// The deadline covers the whole conversation, a wait for an idle connection included.
    pub async fn send(&self, mail: Mail<'_>) -> Outcome {
        self.post(mail).await.outcome
    }

    /// The same for a mail that is not sent again: says too whether it may have arrived, which it can't before its content was sent.
    pub async fn post(&self, mail: Mail<'_>) -> Posted {
        let shown = AtomicBool::new(false);
        let outcome = self.timed(async { self.attempt(mail, &shown).await.map(Some) }).await;
        let arrival = if shown.load(Ordering::Relaxed) { Arrival::Possible } else { Arrival::Never };
        Posted { outcome, arrival }
    }

    /// Connects, protects and authenticates as for a mail, sends none, and says how it ended; for `check-config`.
    pub async fn check(&self) -> Outcome {
        self.timed(async { self.client.check().await.map(|()| None).map_err(Failure::Refused) }).await
    }

    /// Puts the deadline round a conversation and makes its end an outcome.
    async fn timed(&self, conversation: impl Future<Output = Result<Option<u16>, Failure>>) -> Outcome {
        let started = Instant::now();
        let ended = tokio::time::timeout(self.timeout, conversation).await;
        let took = started.elapsed();
        let failed = |class, status, error| Outcome { class, status, error: Some(error), retry_after: None, took };
        match ended {
            Ok(Ok(status)) => Outcome { class: Class::Delivered, status, error: None, retry_after: None, took },
            Ok(Err(Failure::Unwritable(error))) => failed(Class::Transient, None, error.to_owned()),
            Ok(Err(Failure::Refused(Refusal { class, status, error, .. }))) => failed(class, status, error),
            Err(_) => {
                let deadline = humantime::format_duration(self.timeout);
                failed(Class::Transient, None, format!("deadline of {deadline} passed"))
            }
        }
    }

    /// Parts from idle connections; for the end of the process. Later mails make new ones.
    pub async fn close(&self) {
        self.client.close().await;
    }

    async fn attempt(&self, mail: Mail<'_>, shown: &AtomicBool) -> Result<u16, Failure> {
        let recipient = recipient::read(mail.to).ok_or(Failure::Unwritable("malformed e-mail address"))?;
        let written = self.author.write(&recipient, &mail);
        let bytes = written.map_err(|_| Failure::Unwritable("the mail cannot be written"))?;
        let parcel = Parcel { from: self.author.address(), to: &recipient, bytes: &bytes, shown };
        self.client.send(parcel).await.map_err(Failure::Refused)
    }
}

enum Failure {
    /// No mail can be made of it. Somebody may mend the contact, which is read anew at each attempt.
    Unwritable(&'static str),
    /// The conversation failed.
    Refused(Refusal),
}

fn first_line(path: &Path) -> Result<String, TransportError> {
    let read = |source| TransportError::Read { setting: URL_FILE, path: path.to_path_buf(), source };
    let text = std::fs::read_to_string(path).map_err(read)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn authorities_of(config: &EmailConfig) -> Result<Vec<Certificate>, TransportError> {
    const SETTING: &str = "email.ca_file";
    let Some(path) = &config.ca_file else { return Ok(Vec::new()) };
    let broken = |_| TransportError::BadCertificate { setting: SETTING, path: path.clone() };
    authorities::read(SETTING, path)?
        .into_iter()
        .map(|der| Certificate::from_der(der.to_vec()).map_err(broken))
        .collect()
}
