//! One attempt over SMTP: a mail with a stable Message-ID to one recipient, through the configured server.
//!
//! Owns the deadline and the outcome. Never renders, never chooses the recipient. Read next: `smtp` for the conversation
//! and its classes, `message` for the bytes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lettre::transport::smtp::client::Certificate;

use super::address;
use super::config::EmailConfig;
use super::error::EmailError;
use super::message::{Author, Mail};
use super::smtp::{Envelope, Refusal, SmtpClient};
use super::smtp_url::SmtpServer;
use crate::channels::authorities::{self, CaFileError};
use crate::types::{Class, Outcome};

/// The setting that names a file with the URL.
const URL_FILE: &str = "email.smtp_url_file";

/// Sends mails.
#[derive(Debug)]
pub struct Mailer {
    client: SmtpClient,
    author: Author,
    timeout: Duration,
    /// Host and port of the server.
    location: String,
    url_file: Option<PathBuf>,
    warnings: Vec<String>,
}

impl Mailer {
    /// Reads the settings and prepares TLS. Connects nowhere.
    ///
    /// # Errors
    ///
    /// [`EmailError`], naming the setting and what is allowed, never a password.
    pub fn new(config: &EmailConfig) -> Result<Self, EmailError> {
        let parse =
            |setting, url: &str| SmtpServer::parse(url).map_err(|problem| EmailError::SmtpUrl { setting, problem });
        let server = match &config.smtp_url_file {
            Some(path) => parse(URL_FILE, &first_line(path)?)?,
            None => parse("email.smtp_url", &config.smtp_url)?,
        };
        let warnings = server.warning().into_iter().collect();
        let authorities = authorities_of(config)?;
        let location = server.location();
        Ok(Self {
            client: SmtpClient::new(server, authorities)?,
            author: Author::parse(&config.from)?,
            timeout: config.timeout,
            location,
            url_file: config.smtp_url_file.clone(),
            warnings,
        })
    }

    /// What an operator should know about settings that are allowed but unwise, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Host and port of the mail server, and the file that names it, if one does.
    #[must_use]
    pub fn named_location(&self) -> String {
        let file = self.url_file.as_ref().map(|path| format!(", named in {}", path.display()));
        format!("{}{}", self.location, file.unwrap_or_default())
    }

    /// Sends one mail and says how it ended. Leaves the machine; repeating it sends again, with the same Message-ID.
    ///
    /// The deadline covers the whole conversation, a wait for an idle connection included.
    pub async fn send(&self, mail: Mail<'_>) -> Outcome {
        let outcome = self.timed(async { self.attempt(mail).await.map(Some) }).await;
        Outcome { peer: Some(self.location.clone()), ..outcome }
    }

    /// Connects, protects and authenticates as for a mail to this address, announces one, sends none, and says how it ended; for
    /// `check-config`. Without an address to the sender's own, which need not take mail.
    pub async fn check(&self, to: Option<&str>) -> Outcome {
        let checked = async {
            let named =
                to.map(|to| address::read(to).ok_or(Failure::Unwritable("malformed e-mail address"))).transpose()?;
            let from = self.author.address();
            match self.client.check(Envelope { from, to: named.as_ref().unwrap_or(from) }).await {
                Err(refusal) if named.is_none() && refusal.is_of_an_unknown_mailbox() => Ok(None),
                checked => checked.map(|()| None).map_err(Failure::Refused),
            }
        };
        self.timed(checked).await
    }

    /// Puts the deadline round a conversation and makes its end an outcome.
    async fn timed(&self, conversation: impl Future<Output = Result<Option<u16>, Failure>>) -> Outcome {
        let started = Instant::now();
        let ended = tokio::time::timeout(self.timeout, conversation).await;
        let took = started.elapsed();
        match ended {
            Ok(Ok(status)) => Outcome { status, took, ..Outcome::delivered() },
            Ok(Err(Failure::Unwritable(error))) => Outcome { took, ..Outcome::failed(Class::Transient, error) },
            Ok(Err(Failure::Refused(Refusal { class, status, error, hint, reply, .. }))) => {
                Outcome { status, hint, reply, took, ..Outcome::failed(class, error) }
            }
            Err(_) => {
                let deadline = humantime::format_duration(self.timeout);
                Outcome { took, ..Outcome::failed(Class::Transient, format!("deadline of {deadline} passed")) }
            }
        }
    }

    /// Closes idle connections; for the end of the process. Later mails make new ones.
    pub async fn close(&self) {
        self.client.close().await;
    }

    async fn attempt(&self, mail: Mail<'_>) -> Result<u16, Failure> {
        let recipient = address::read(mail.to).ok_or(Failure::Unwritable("malformed e-mail address"))?;
        let written = self.author.write(&recipient, &mail);
        let bytes = written.map_err(|_| Failure::Unwritable("the mail cannot be written"))?;
        let envelope = Envelope { from: self.author.address(), to: &recipient };
        self.client.send(envelope, &bytes).await.map_err(Failure::Refused)
    }
}

enum Failure {
    /// No mail can be made of it. Somebody may mend the contact, which is read anew at each attempt.
    Unwritable(&'static str),
    /// The conversation failed.
    Refused(Refusal),
}

fn first_line(path: &Path) -> Result<String, EmailError> {
    let read = |source| EmailError::UrlFile { setting: URL_FILE, path: path.to_path_buf(), source };
    let text = std::fs::read_to_string(path).map_err(read)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn authorities_of(config: &EmailConfig) -> Result<Vec<Certificate>, CaFileError> {
    const SETTING: &str = "email.ca_file";
    let Some(path) = &config.ca_file else { return Ok(Vec::new()) };
    let broken = |_| CaFileError::Broken { setting: SETTING, path: path.clone() };
    authorities::read(SETTING, path)?
        .into_iter()
        .map(|der| Certificate::from_der(der.to_vec()).map_err(broken))
        .collect()
}
