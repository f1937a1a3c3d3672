//! What a refusal of the mail server is about: the mailbox, our way of sending, or this mail. Pure.
//!
//! Judges by the phase, by every enhanced status code in the answer (RFC 3463 and its registry at IANA), and by the
//! words of large providers, which `refusal/tests.rs` lists. If the answer contradicts itself, it is not about an
//! unknown mailbox: another attempt costs less than a customer's contact. Read next: [`super::outcomes`].

use crate::types::OutcomeClass;
use crate::types::text_form::text_enum;

text_enum! {
    /// The phase of the conversation that went wrong.
    pub enum SmtpPhase {
        /// Connection, greeting and EHLO.
        Connect = "connection",
        /// STARTTLS and its handshake.
        StartTls = "STARTTLS",
        /// AUTH.
        Auth = "AUTH",
        /// MAIL FROM.
        Mail = "MAIL",
        /// RCPT TO.
        Rcpt = "RCPT",
        /// DATA.
        Data = "DATA",
        /// The content, up to the dot that ends it.
        Content = "the content",
        /// That dot, and the answer to it.
        FinalDot = "the final dot",
    }
}

impl SmtpPhase {
    /// Whether its answer speaks of this mail, and not of us or of the server.
    pub(super) const fn is_about_this_mail(self) -> bool {
        matches!(self, Self::Mail | Self::Rcpt | Self::Data | Self::FinalDot)
    }
}

/// What a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such mailbox.
    UnknownMailbox,
    /// The mailbox exists and takes nothing now.
    MailboxFull,
    /// The mailbox, for a reason that is not known.
    Mailbox,
    /// We have sent too much, or the server has no room for anybody.
    SendingLimit,
    /// Our settings, our name or our reputation.
    Sender(SenderFault),
    /// This one mail: its size or its encoding.
    Content,
    /// Nothing that the answer names.
    Unclear,
}

/// What a server has against us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SenderFault {
    /// The name that we greet with.
    HeloName,
    /// It does not relay for us.
    Relay,
    /// It wants a user, or does not know ours.
    Login,
    /// It wants TLS, or a user.
    LoginRequired,
    /// The address in `email.from`.
    FromAddress,
    /// The mail does not prove its domain, by SPF, DKIM or DMARC.
    DomainProof,
    /// A block list, a missing reverse DNS name, a policy, a suspended account.
    Reputation,
}

/// Enhanced status codes of a mailbox that does not exist, without their class (RFC 3463 and RFC 7505).
const UNKNOWN_CODES: [(u16, u16); 5] = [(1, 1), (1, 2), (1, 3), (1, 6), (1, 10)];
/// Codes that contradict no text: those of "other", and 2.1, which servers send for their policies too.
const NEUTRAL_CODES: [(u16, u16); 5] = [(0, 0), (1, 0), (2, 0), (2, 1), (5, 0)];
/// The code of a mailbox that is full.
const FULL_CODES: [(u16, u16); 1] = [(2, 2)];
/// Codes of limits on what we send: RFC 3463, Gmail (4.5, 7.28) and Microsoft 365 (1.90 and the others).
const LIMIT_CODES: [(u16, u16); 8] = [(4, 5), (5, 3), (1, 90), (7, 28), (7, 232), (7, 233), (7, 236), (7, 705)];

/// Words of an answer about a mailbox that does not exist. Here and below: lower case, without punctuation, from the
/// beginning of a word.
const UNKNOWN: &[&str] = &[
    " user unknown",
    " unknown user",
    " no such user",
    " no such mailbox",
    " no such recipient",
    " no such address",
    " no such account",
    " no such person",
    " no such local user",
    " no mailbox here",
    " unknown recipient",
    " recipient unknown",
    " recipient not found",
    " invalid recipient",
    " unknown mailbox",
    " mailbox unknown",
    " mailbox not found",
    " invalid mailbox",
    " user not found",
    " user not known",
    " user not local",
    " user doesnt have a",
    " unknown account",
    " unknown address",
    " address unknown",
    " unknown local part",
    " not listed in",
    " unrouteable address",
    " unroutable address",
];
/// What may not exist, and that it does not: "The email account that you tried to reach does not exist".
const NOUNS: &[&str] = &[" user", " mailbox", " recipient", " account", " address", " inbox"];
const ABSENT: &[&str] = &[" does not exist", " doesnt exist", " not exist", " is disabled", " has been disabled"];

/// Words about the size of this mail, unless a mailbox is named or a code says that something is full.
const SIZE: &[&str] =
    &[" message size", " size limit", " size exceeds", " too large", " too big", " maximum size", " message length"];
/// Words of a limit on what we send.
const LIMIT: &[&str] = &[
    " sending limit",
    " sending quota",
    " sending rate",
    " submission quota",
    " rate limit",
    " ratelimit",
    " throttl",
    " daily",
    " hourly",
    " per day",
    " per hour",
    " per minute",
    " too many",
    " too much mail",
    " too fast",
    " system storage",
];
/// Words of a mailbox that is full or gets too much.
const FULL: &[&str] =
    &[" full ", " over quota", " overquota", " quota", " storage", " out of space", " receiving mail", " has exceeded"];

const HELO: &[&str] = &[" helo ", " ehlo ", " fully qualified hostname"];
const RELAY: &[&str] = &[" relay", " rcpthosts", " not our customer"];
const DOMAIN_PROOF: &[&str] = &[" spf ", " dkim ", " dmarc "];
const LOGIN: &[&str] = &[" authenticat", " not authorized", " unauthorized", " your account"];
const FROM_ADDRESS: &[&str] = &[
    " sender address",
    " from address",
    " mail from",
    " return path",
    " envelope from",
    " sender verif",
    " verified sender",
    " not verified",
    " send as",
    " sendasdenied",
];
const REPUTATION: &[&str] = &[
    " rbl",
    " dnsbl",
    " blacklist",
    " black list",
    " blocklist",
    " block list",
    " blocked",
    " blocking",
    " denylist",
    " banned",
    " is listed",
    " listed at",
    " listed by",
    " listed on",
    " reputation",
    " spam",
    " junk",
    " unsolicited",
    " suspicious",
    " complaint",
    " abuse",
    " policy",
    " policies",
    " prohibit",
    " administrative",
    " access denied",
    " security",
    " reverse dns",
    " reverse host",
    " rdns",
    " ptr ",
    " client host",
    " your host",
    " your ip",
    " ip address",
    " not accepted from",
    " sending",
    " outgoing",
    " outbound",
    " suspended",
];

impl Refusal {
    /// What this answer is about. `said` is all of its text, the enhanced status codes included.
    pub(super) fn judge(phase: SmtpPhase, code: u16, said: &str) -> Self {
        let answer = Answer::read(said);
        match code {
            530 => return Self::Sender(SenderFault::LoginRequired),
            534 | 535 | 538 => return Self::Sender(SenderFault::Login),
            504 if phase == SmtpPhase::Connect => return Self::Sender(SenderFault::HeloName),
            _ => {}
        }
        if !phase.is_about_this_mail() {
            return answer.sender_fault().map_or(Self::Unclear, Self::Sender);
        }
        if answer.is_about_the_content() {
            return Self::Content;
        }
        match answer.limit() {
            // The server has not heard yet which mailbox.
            Some(_) if phase == SmtpPhase::Mail => return Self::SendingLimit,
            Some(limit) => return limit,
            None => {}
        }
        if let Some(fault) = answer.sender_fault() {
            return Self::Sender(fault);
        }
        match phase {
            SmtpPhase::Mail if code >= 500 => Self::Sender(SenderFault::FromAddress),
            SmtpPhase::Rcpt if answer.names_an_unknown_mailbox() => Self::UnknownMailbox,
            SmtpPhase::Rcpt if answer.codes.iter().all(|(subject, _)| *subject <= 2) => Self::Mailbox,
            _ => Self::Unclear,
        }
    }

    /// The class of the attempt. Refusals for good are tried again for a day, unless they are about this one mail:
    /// somebody may mend what the server has against us, and until then it may refuse every alert.
    ///
    /// Source of the codes: RFC 5321; RFC 4954 for those about AUTH, which may answer any command.
    pub(super) fn class(self, phase: SmtpPhase, code: u16) -> OutcomeClass {
        let passes = matches!(self, Self::SendingLimit | Self::MailboxFull)
            || matches!(self, Self::Sender(SenderFault::Login | SenderFault::LoginRequired) if matches!(code, 530..=538));
        match code {
            500..=599 if !phase.is_about_this_mail() || passes => OutcomeClass::Transient,
            500..=599 if self == Self::Content => OutcomeClass::Permanent,
            500..=599 => OutcomeClass::Rejected,
            _ => OutcomeClass::Transient,
        }
    }

    /// Whether it says something of this one contact.
    pub(super) const fn is_about_the_contact(self) -> bool {
        matches!(self, Self::UnknownMailbox | Self::MailboxFull | Self::Mailbox)
    }

    /// What to do about it; `None` if what the server said is all that is known.
    pub(super) fn hint(self, phase: SmtpPhase, code: u16) -> Option<&'static str> {
        Some(match self {
            Self::UnknownMailbox => "the server knows no such mailbox: check the address",
            Self::MailboxFull => "the mailbox is full, or gets too much mail: only its owner can mend that",
            Self::SendingLimit => {
                "the server takes no more mail from us for now: email.per_minute keeps below its limit"
            }
            Self::Sender(fault) => fault.hint(),
            Self::Content => "the server refuses the mail itself: what it answered says why",
            Self::Mailbox | Self::Unclear if code < 500 => return None,
            Self::Mailbox | Self::Unclear => match phase {
                SmtpPhase::Rcpt => SenderFault::Relay.hint(),
                SmtpPhase::Data | SmtpPhase::FinalDot => {
                    "the server refuses the mail itself: what it answered says why"
                }
                _ => return None,
            },
        })
    }
}

impl SenderFault {
    const fn hint(self) -> &'static str {
        match self {
            Self::HeloName => {
                "the server refuses the name that we greet with: set email.helo_name to a host name that resolves to this machine"
            }
            Self::Relay => {
                "the server takes no mail to this address from here: it may want a user in email.smtp_url, or has to be \
                 allowed to relay for this machine"
            }
            Self::LoginRequired => {
                "the server wants a user, or TLS first: user and password in email.smtp_url, and smtps:// or tls=required"
            }
            Self::Login => "check user and password in email.smtp_url",
            Self::FromAddress => {
                "the server refuses the sender: check email.from, and whether its user may send for it"
            }
            Self::DomainProof => {
                "the server wants proof of the domain in email.from: publish SPF and DMARC, and sign with email.dkim or on the mail server"
            }
            Self::Reputation => {
                "the server refuses mail from here by a block list or a policy; if its answer says no more, ask its operator, or \
                 name another mail server in email.smtp_url"
            }
        }
    }
}

/// An answer, taken apart.
struct Answer {
    /// Subject and detail of each enhanced status code.
    codes: Vec<(u16, u16)>,
    /// Its words in lower case, one space before and behind each. Addresses, URLs and host names are left out: anybody
    /// may have chosen their words.
    words: String,
}

impl Answer {
    fn read(said: &str) -> Self {
        let mut answer = Self { codes: Vec::new(), words: " ".to_owned() };
        for word in said.split_whitespace().filter(|word| !word.contains('@') && !word.contains("://")) {
            if let Some(code) = enhanced_code(word) {
                answer.codes.push(code);
                continue;
            }
            let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
            if word.contains('.') {
                continue;
            }
            let word = word.to_lowercase().replace(['\'', '\u{2019}'], "");
            for part in word.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty()) {
                answer.words.push_str(part);
                answer.words.push(' ');
            }
        }
        answer.words = answer.words.replace(" relay recipient table ", " ");
        answer
    }

    fn says(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.words.contains(phrase))
    }

    fn has_any_code(&self, codes: &[(u16, u16)]) -> bool {
        self.codes.iter().any(|code| codes.contains(code))
    }

    fn is_about_the_content(&self) -> bool {
        let code = |(subject, detail): &(u16, u16)| *subject == 6 || matches!((subject, detail), (2, 3) | (3, 4));
        let is_about_size = self.says(SIZE) && !self.says(&[" mailbox"]);
        self.codes.iter().any(code)
            || (is_about_size && !self.has_any_code(&FULL_CODES) && !self.has_any_code(&LIMIT_CODES))
    }

    /// Of us or of the mailbox, if the answer names one.
    fn limit(&self) -> Option<Refusal> {
        let is_full = self.has_any_code(&FULL_CODES) || self.says(FULL);
        let is_of_the_server = self.codes.iter().any(|(subject, _)| *subject == 3);
        if self.has_any_code(&LIMIT_CODES) || self.says(LIMIT) || (is_full && is_of_the_server) {
            return Some(Refusal::SendingLimit);
        }
        is_full.then_some(Refusal::MailboxFull)
    }

    fn sender_fault(&self) -> Option<SenderFault> {
        let security = |detail: &dyn Fn(u16) -> bool| self.codes.iter().any(|code| code.0 == 7 && detail(code.1));
        Some(match () {
            () if self.says(HELO) => SenderFault::HeloName,
            () if self.says(RELAY) => SenderFault::Relay,
            // RFC 7372.
            () if self.says(DOMAIN_PROOF) || security(&|detail| matches!(detail, 20..=24 | 26)) => {
                SenderFault::DomainProof
            }
            () if self.says(FROM_ADDRESS) || self.has_any_code(&[(1, 7), (1, 8)]) => SenderFault::FromAddress,
            () if self.says(LOGIN) => SenderFault::Login,
            () if self.says(REPUTATION) => SenderFault::Reputation,
            () if self.says(&[" sender"]) => SenderFault::FromAddress,
            () if security(&|_| true) => SenderFault::Reputation,
            () => return None,
        })
    }

    /// Whether a code or the text says so, and no code says anything else.
    fn names_an_unknown_mailbox(&self) -> bool {
        let said = self.has_any_code(&UNKNOWN_CODES) || self.says(UNKNOWN) || (self.says(NOUNS) && self.says(ABSENT));
        said && self.codes.iter().all(|code| UNKNOWN_CODES.contains(code) || NEUTRAL_CODES.contains(code))
    }
}

/// Subject and detail of an enhanced status code, such as `5.1.1`, `#5.1.1` or `(#5.1.1)`.
fn enhanced_code(word: &str) -> Option<(u16, u16)> {
    let mut parts = word.trim_matches(|letter: char| !letter.is_ascii_digit()).split('.');
    let (class, subject, detail) = (parts.next()?, parts.next()?, parts.next()?);
    let number = |part: &str| (1..=3).contains(&part.len()).then(|| part.parse().ok()).flatten();
    (matches!(class, "4" | "5") && parts.next().is_none()).then_some((number(subject)?, number(detail)?))
}

#[cfg(test)]
mod tests;
