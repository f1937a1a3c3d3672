//! The meaning of the mail server's refusals: the table of `docs/delivery.md`. Pure.

use std::time::Duration;

use lettre::transport::smtp::response::{Response, Severity};

use super::refusal::{Refusal, SmtpPhase};
use super::smtp_connection::SmtpError;
use crate::channels::connection_error;
use crate::types::outcome::printable_reply;
use crate::types::{DisableReason, Outcome, OutcomeClass};

/// The hint for a server that uses the certificate of an authority.
const AUTHORITYS_OWN: &str = "the mail server needs a certificate that the authority has signed; if the authority is your \
                              own, set email.ca_file to its PEM file";

/// The other side does not speak SMTP.
const NO_SMTP: &str = "connect: the mail server does not speak SMTP";

/// Why an email was not accepted.
#[derive(Debug)]
pub(super) struct SmtpFailure {
    /// The outcome of the attempt.
    pub(super) outcome: Outcome,
    phase: SmtpPhase,
    /// Whether no other email can use the connection: the server closed it, or the next reply can't be assigned to a
    /// command.
    pub(super) broke_the_connection: bool,
}

impl SmtpFailure {
    /// Whether only the connection has failed: it was closed at the first command.
    pub(super) fn is_of_a_dead_connection(&self) -> bool {
        self.phase == SmtpPhase::Mail && self.broke_the_connection
    }
}

/// The server lacks a feature. This is transient, because the operator may configure another server before the next
/// attempt. The connection stays usable for other emails.
pub(super) fn unsupported(phase: SmtpPhase, error: &'static str) -> SmtpFailure {
    SmtpFailure { outcome: Outcome::failed(OutcomeClass::Transient, error), phase, broke_the_connection: false }
}

/// The failure of this phase.
pub(super) fn failure_of(phase: SmtpPhase, error: SmtpError) -> SmtpFailure {
    match error {
        SmtpError::Refused(answer) => failure_of_answer(phase, &answer),
        failed => {
            let found = failed_text(phase, &failed);
            let outcome = Outcome {
                hint: hint_of_connection(&found),
                may_have_arrived: phase == SmtpPhase::FinalDot,
                ..Outcome::failed(OutcomeClass::Transient, found)
            };
            SmtpFailure { outcome, phase, broke_the_connection: true }
        }
    }
}

fn failure_of_answer(phase: SmtpPhase, answer: &Response) -> SmtpFailure {
    let code = u16::from(answer.code());
    let negative =
        matches!(answer.code().severity, Severity::TransientNegativeCompletion | Severity::PermanentNegativeCompletion);
    // 421: the server is about to close the connection. After a positive reply of the wrong kind, the server's next
    // step is unknown.
    let broke_the_connection = !phase.is_about_this_mail() || !negative || code == 421;
    let status = answer.message().next().filter(|_| negative).and_then(enhanced_status);
    let said = answer.message().map(|line| without(status, line)).collect::<Vec<_>>().join(" ");
    let detail = status.map(|status| format!(" {status}")).unwrap_or_default();
    let error = format!("SMTP {code}{detail} to {phase}");
    let answered = Outcome {
        status: Some(code),
        reply: printable_reply(said.as_bytes()),
        may_have_arrived: phase == SmtpPhase::FinalDot && !negative,
        ..Outcome::failed(OutcomeClass::Transient, error)
    };
    if !negative {
        return SmtpFailure { outcome: answered, phase, broke_the_connection };
    }
    let refusal = Refusal::judge(phase, code, &answer.message().collect::<Vec<_>>().join(" "));
    let is_unknown = refusal == Refusal::UnknownMailbox && code >= 500;
    let outcome = Outcome {
        class: refusal.class(phase, code),
        hint: refusal.hint(phase, code),
        is_about_contact: code != 421 && refusal.is_about_the_contact(),
        disables: is_unknown.then_some(DisableReason::NoMailbox),
        // Each email to an unknown mailbox damages the sender's reputation, so the next attempt is as late as possible.
        retry_after: is_unknown.then_some(Duration::MAX),
        ..answered
    };
    SmtpFailure { outcome, phase, broke_the_connection }
}

/// The hint for an email that was not accepted, if the outcome itself has none.
pub(in crate::channels) fn hint(outcome: &Outcome) -> &'static str {
    match (outcome.class, outcome.status) {
        (OutcomeClass::Permanent, _) => {
            "the mail server refuses this email permanently; an alert would be dead at once"
        }
        (OutcomeClass::Rejected, _) => "the mail server's answer says why; an alert would be tried again for a day",
        (_, Some(_)) => "the mail server's answer says why; an alert would be tried again",
        (_, None) => {
            "check email.smtp_url and the mail server, with `quotabell check-config`; an alert would be tried again"
        }
    }
}

/// The hint for a failed connection; `None` if there is none.
fn hint_of_connection(found: &str) -> Option<&'static str> {
    Some(match found {
        connection_error::REFUSED => {
            "nothing listens there: is the mail server running, and is this the port that it listens on?"
        }
        connection_error::UNTRUSTED => "if the certificate authority is your own, set email.ca_file to its PEM file",
        connection_error::AUTHORITYS_OWN => AUTHORITYS_OWN,
        connection_error::EXPIRED => "the operator of the mail server has to renew its certificate",
        connection_error::OTHER_NAME => "write the host in email.smtp_url as its certificate names it",
        connection_error::NO_TLS => {
            "smtps:// is for servers that start with TLS, usually at port 465; use smtp:// with tls=required for others"
        }
        NO_SMTP => {
            "something other than a mail server answers there: is the port right? Mail servers use 25, 465 and 587"
        }
        _ => return connection_error::hint(found),
    })
}

/// The text of a failure without a reply. Contains no text of the server.
fn failed_text(phase: SmtpPhase, error: &SmtpError) -> String {
    match (phase, error) {
        (_, SmtpError::Network(_)) => {
            let fallback = if phase == SmtpPhase::StartTls { "STARTTLS failed" } else { "connection lost" };
            let found = connection_error::find(error, fallback);
            match phase {
                SmtpPhase::Content => format!("{found} before the final dot"),
                SmtpPhase::FinalDot => format!("{found} after the final dot: the email may have been accepted"),
                _ => found.to_owned(),
            }
        }
        (SmtpPhase::StartTls, SmtpError::Unasked) => {
            "STARTTLS: the mail server sent plain text before the TLS handshake".to_owned()
        }
        (SmtpPhase::Connect, SmtpError::Malformed) => NO_SMTP.to_owned(),
        (SmtpPhase::Auth, SmtpError::Malformed) => "AUTH failed".to_owned(),
        (SmtpPhase::Auth, SmtpError::NoMechanism) => format!("AUTH: {error}"),
        _ => error.to_string(),
    }
}

/// The enhanced status code (RFC 3463, such as `5.1.1`) at the start of a refusal. The rest of the text may contain
/// addresses.
fn enhanced_status(said: &str) -> Option<&str> {
    let word = said.split_whitespace().next()?;
    let parts: Vec<&str> = word.split('.').collect();
    let digits = |part: &&str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    (parts.len() == 3 && parts.iter().all(digits)).then_some(word)
}

/// A line of a reply without its enhanced status code, which each line may start with. The error already names it.
fn without<'a>(status: Option<&str>, line: &'a str) -> &'a str {
    let rest = status.and_then(|status| line.trim_start().strip_prefix(status));
    rest.filter(|rest| rest.is_empty() || rest.starts_with(' ')).map_or(line, str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Check the certificate" does not help with a misspelled name.
    #[test]
    fn each_cause_of_a_failed_connection_has_a_hint() {
        assert!(connection_error::WITH_HINT.iter().all(|cause| hint_of_connection(cause).is_some()));
        assert_eq!(hint_of_connection("connection reset"), None);
    }
}
