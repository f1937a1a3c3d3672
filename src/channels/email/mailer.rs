//! One attempt over SMTP: sends an email with a stable Message-ID to one recipient, through the configured server.
//!
//! Owns the deadline and the outcome. It does not render emails or choose the recipient. Read next: `smtp`, the
//! conversation; `message`, the bytes.

use std::time::{Duration, Instant};

use lettre::message::Mailbox;
use lettre::message::dkim::DkimConfig;

use super::address;
use super::config::EmailConfig;
use super::dkim::{self, unaligned_warning};
use super::message::{self, Mail, parse_author};
use super::smtp::{Envelope, SmtpClient};
use super::smtp_url::{Protection, SmtpServer};
use crate::channels::channel::deadline_passed;
use crate::channels::error::ChannelError;
use crate::channels::resolver::{DnsConfig, Resolver};
use crate::channels::tls;
use crate::types::{Outcome, OutcomeClass};

/// Sends emails.
#[derive(Debug)]
pub struct Mailer {
    client: SmtpClient,
    author: Mailbox,
    signer: Option<DkimConfig>,
    pub(in crate::channels) timeout: Duration,
    unknown_mailbox_after: Duration,
    /// Host and port of the server.
    pub(super) location: String,
    warnings: Vec<String>,
}

impl Mailer {
    /// Reads the settings and prepares TLS. Does not connect.
    ///
    /// # Errors
    ///
    /// [`ChannelError`], which names the setting and what is allowed, never a password.
    pub fn new(config: &EmailConfig, dns: &DnsConfig) -> Result<Self, ChannelError> {
        let allowed = "allowed are \"alerts@example.com\" and \"Name <alerts@example.com>\"";
        let no_mailbox =
            || ChannelError::of_setting("email.from", format_args!("{:?} is not a mailbox, {allowed}", config.from));
        let server = server_of(config)?;
        let tls = tls::client_config("email.ca_file", config.ca_file.as_deref())?;
        let author = parse_author(&config.from).ok_or_else(no_mailbox)?;
        let signer = config.dkim.as_ref().map(dkim::signer).transpose()?;
        let unaligned = config.dkim.as_ref().and_then(|dkim| unaligned_warning(dkim, author.email.domain()));
        let untrusting = match server.protection {
            Protection::Plain => None,
            _ => tls::warning("email.ca_file", config.ca_file.as_deref()),
        };
        Ok(Self {
            author,
            signer,
            timeout: config.timeout,
            unknown_mailbox_after: config.unknown_mailbox_after,
            location: server.location(),
            warnings: server.warning().into_iter().chain(unaligned).chain(untrusting).collect(),
            client: SmtpClient::new(server, config.helo_name.as_deref(), tls, Resolver::new(dns, config.timeout))?,
        })
    }

    /// Warnings about settings that are allowed but unwise, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Sends one email and returns the outcome. A repeated call sends it again, with the same Message-ID.
    ///
    /// The deadline covers the whole conversation, including the wait for an idle connection.
    pub async fn send(&self, mail: Mail<'_>) -> Outcome {
        let attempt = async {
            let to = &address::read(mail.to).ok_or_else(malformed)?;
            let written = message::write(&self.author, to, &mail, self.signer.as_ref());
            let bytes = written.map_err(|_| Outcome::failed(OutcomeClass::Transient, "the email can't be written"))?;
            let sent = self.client.send(Envelope { from: &self.author.email, to }, &bytes).await;
            sent.map(Some).map_err(|failure| failure.outcome)
        };
        let disables_after = self.unknown_mailbox_after;
        Outcome { peer: Some(self.location.clone()), disables_after, ..self.timed(attempt).await }
    }

    /// Connects, authenticates and announces an email to this address without sending one; for `check-config`. Without
    /// an address, uses the sender's own, which need not accept email.
    pub async fn check(&self, to: Option<&str>) -> Outcome {
        let from = &self.author.email;
        let check = async {
            let recipient = to.map_or_else(|| Some(from.clone()), address::read).ok_or_else(malformed)?;
            match self.client.check(Envelope { from, to: &recipient }).await {
                Err(failure) if to.is_some() || !failure.outcome.is_about_contact => Err(failure.outcome),
                _ => Ok(None),
            }
        };
        self.timed(check).await
    }

    /// Applies the deadline to a conversation, which returns the code of the server's last reply.
    async fn timed(&self, conversation: impl Future<Output = Result<Option<u16>, Outcome>>) -> Outcome {
        let started = Instant::now();
        let outcome = match tokio::time::timeout(self.timeout, conversation).await {
            Ok(Ok(status)) => Outcome { status, ..Outcome::delivered() },
            Ok(Err(failed)) => failed,
            Err(_) => deadline_passed(self.timeout),
        };
        Outcome { took: started.elapsed(), ..outcome }
    }

    /// Closes idle connections when the process ends. Later emails open new ones.
    pub async fn close(&self) {
        self.client.close().await;
    }
}

/// Transient, because somebody may correct the contact, which is read again at each attempt.
fn malformed() -> Outcome {
    Outcome::failed(OutcomeClass::Transient, "malformed email address")
}

/// Whether emails stay on this machine, as with a mail server for tests.
pub(super) fn is_local(config: &EmailConfig) -> bool {
    server_of(config).is_ok_and(|server| server.is_local())
}

fn server_of(config: &EmailConfig) -> Result<SmtpServer, ChannelError> {
    let (setting, url) = match &config.smtp_url_file {
        None => ("email.smtp_url", config.smtp_url.reveal().to_owned()),
        Some(path) => {
            let setting = "email.smtp_url_file";
            let failed = |source| ChannelError::unreadable(setting, path, source);
            let text = std::fs::read_to_string(path).map_err(failed)?;
            (setting, text.lines().next().unwrap_or_default().to_owned())
        }
    };
    SmtpServer::parse(&url).map_err(|problem| ChannelError::of_setting(setting, problem))
}
