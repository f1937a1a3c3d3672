//! The cause of a mail server's refusal: the mailbox, the sender, or this email. Pure.
//!
//! Judges by the phase, by every enhanced status code in the answer (RFC 3463 and its registry at IANA), and by the
//! words of large providers, which the tests list. If the answer contradicts itself, it is not about an
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
    /// Whether its reply is about this email, and not about the sender or the server.
    pub(super) const fn is_about_this_mail(self) -> bool {
        matches!(self, Self::Mail | Self::Rcpt | Self::Data | Self::FinalDot)
    }
}

/// The cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such mailbox.
    UnknownMailbox,
    /// The mailbox exists and accepts nothing at present.
    MailboxFull,
    /// The mailbox, for an unknown reason.
    Mailbox,
    /// The sender has sent too much, or the server has no room.
    SendingLimit,
    /// This one email: its size or its encoding.
    Content,
    /// The reply names no cause.
    Unclear,
    /// The server objects to the sender: to its name in EHLO.
    HeloName,
    /// It does not relay for this sender.
    Relay,
    /// It requires a user, or does not know the given one.
    Login,
    /// It requires TLS or a user.
    LoginRequired,
    /// It does not accept the address in `email.from`.
    FromAddress,
    /// The email does not prove its domain by SPF, DKIM or DMARC.
    DomainProof,
    /// It names a block list, a missing reverse DNS name, a policy or a suspended account.
    Reputation,
}

/// Enhanced status codes of a mailbox that does not exist, without their class (RFC 3463 and RFC 7505).
const UNKNOWN_CODES: [(u16, u16); 5] = [(1, 1), (1, 2), (1, 3), (1, 6), (1, 10)];
/// Codes that fit any text: those of "other", and 2.1, which servers also send for their policies.
const NEUTRAL_CODES: [(u16, u16); 5] = [(0, 0), (1, 0), (2, 0), (2, 1), (5, 0)];
/// The code of a full mailbox.
const FULL_CODES: [(u16, u16); 1] = [(2, 2)];
/// Codes of sending limits: RFC 3463, Gmail (4.5, 7.28) and Microsoft 365 (1.90 and the others).
const LIMIT_CODES: [(u16, u16); 8] = [(4, 5), (5, 3), (1, 90), (7, 28), (7, 232), (7, 233), (7, 236), (7, 705)];

/// Words of a reply about a mailbox that does not exist. Here and below: lower case, without punctuation, matched at
/// the start of a word. A space marks the end of a word.
const UNKNOWN: &str = "user unknown|unknown user|no such user|no such mailbox|no such recipient|no such address|\
     no such account|no such person|no such local user|no mailbox here|unknown recipient|recipient unknown|\
     recipient not found|invalid recipient|unknown mailbox|mailbox unknown|mailbox not found|invalid mailbox|\
     user not found|user not known|user not local|user doesnt have a|unknown account|unknown address|\
     address unknown|unknown local part|not listed in|unrouteable address|unroutable address";
/// Nouns and predicates that mean it together: "The email account that you tried to reach does not exist".
const NOUNS: &str = "user|mailbox|recipient|account|address|inbox";
const ABSENT: &str = "does not exist|doesnt exist|not exist|is disabled|has been disabled";

/// Words about the size of this email, unless a mailbox is named or a code reports something full.
const SIZE: &str = "message size|size limit|size exceeds|too large|too big|maximum size|message length";
/// Words of a sending limit.
const LIMIT: &str = "sending limit|sending quota|sending rate|submission quota|rate limit|ratelimit|throttl|daily|hourly|\
     per day|per hour|per minute|too many|too much mail|too fast|system storage";
/// Words of a mailbox that is full or gets too many emails.
const FULL: &str = "full |over quota|overquota|quota|storage|out of space|receiving mail|has exceeded";

const HELO: &str = "helo |ehlo |fully qualified hostname";
const RELAY: &str = "relay|rcpthosts|not our customer";
const DOMAIN_PROOF: &str = "spf |dkim |dmarc ";
const LOGIN: &str = "authenticat|not authorized|unauthorized|your account";
const FROM_ADDRESS: &str = "sender address|from address|mail from|return path|envelope from|sender verif|verified sender|\
     not verified|send as|sendasdenied";
const REPUTATION: &str = "rbl|dnsbl|blacklist|black list|blocklist|block list|blocked|blocking|denylist|banned|is listed|\
     listed at|listed by|listed on|reputation|spam|junk|unsolicited|suspicious|complaint|abuse|policy|\
     policies|prohibit|administrative|access denied|security|reverse dns|reverse host|rdns|ptr |client host|\
     your host|your ip|ip address|not accepted from|sending|outgoing|outbound|suspended";

impl Refusal {
    /// The cause that this reply names. `said` is its whole text, including the enhanced status codes.
    pub(super) fn judge(phase: SmtpPhase, code: u16, said: &str) -> Self {
        let answer = Answer::read(said);
        match code {
            530 => return Self::LoginRequired,
            534 | 535 | 538 => return Self::Login,
            504 if phase == SmtpPhase::Connect => return Self::HeloName,
            _ => {}
        }
        if !phase.is_about_this_mail() {
            return answer.sender_fault().unwrap_or(Self::Unclear);
        }
        if answer.is_about_the_content() {
            return Self::Content;
        }
        match answer.limit() {
            // In this phase the server does not know the mailbox yet.
            Some(_) if phase == SmtpPhase::Mail => return Self::SendingLimit,
            Some(limit) => return limit,
            None => {}
        }
        if let Some(fault) = answer.sender_fault() {
            return fault;
        }
        match phase {
            SmtpPhase::Mail if code >= 500 => Self::FromAddress,
            SmtpPhase::Rcpt if answer.names_an_unknown_mailbox() => Self::UnknownMailbox,
            SmtpPhase::Rcpt if answer.codes.iter().all(|(subject, _)| *subject <= 2) => Self::Mailbox,
            _ => Self::Unclear,
        }
    }

    /// The class of the attempt. Permanent refusals are retried for a day, unless they are about this one email:
    /// somebody may fix the objection to the sender, and until then the server may refuse every alert.
    ///
    /// Source of the codes: RFC 5321; RFC 4954 for AUTH codes, with which a server may reply to any command.
    pub(super) fn class(self, phase: SmtpPhase, code: u16) -> OutcomeClass {
        let passes = matches!(self, Self::SendingLimit | Self::MailboxFull)
            || matches!(self, Self::Login | Self::LoginRequired if matches!(code, 530..=538));
        match code {
            500..=599 if !phase.is_about_this_mail() || passes => OutcomeClass::Transient,
            500..=599 if self == Self::Content => OutcomeClass::Permanent,
            500..=599 => OutcomeClass::Rejected,
            _ => OutcomeClass::Transient,
        }
    }

    /// Whether the refusal is about this one contact.
    pub(super) const fn is_about_the_contact(self) -> bool {
        matches!(self, Self::UnknownMailbox | Self::MailboxFull | Self::Mailbox)
    }

    /// The hint; `None` if nothing is known beyond the server's reply.
    pub(super) fn hint(self, phase: SmtpPhase, code: u16) -> Option<&'static str> {
        Some(match self {
            Self::UnknownMailbox => "the server knows no such mailbox: check the address",
            Self::MailboxFull => "the mailbox is full, or gets too many emails: only its owner can fix that",
            Self::SendingLimit => {
                "the server accepts no more mail from us for now: set email.per_minute below its limit"
            }
            Self::Content => "the server refuses this email: its answer says why",
            Self::Mailbox | Self::Unclear if code < 500 => return None,
            Self::Mailbox | Self::Unclear => match phase {
                SmtpPhase::Rcpt => return Self::Relay.hint(phase, code),
                SmtpPhase::Data | SmtpPhase::FinalDot => return Self::Content.hint(phase, code),
                _ => return None,
            },
            Self::HeloName => {
                "the server refuses our name in EHLO: set email.helo_name to a host name that resolves to this machine"
            }
            Self::Relay => {
                "the server does not accept mail to this address from here: it may require a user in email.smtp_url, or has to be \
                 allowed to relay for this machine"
            }
            Self::LoginRequired => {
                "the server requires a user, or TLS first: set user and password in email.smtp_url, with smtps:// or tls=required"
            }
            Self::Login => "check user and password in email.smtp_url",
            Self::FromAddress => {
                "the server refuses the sender: check email.from, and whether the user of email.smtp_url may send for it"
            }
            Self::DomainProof => {
                "the server wants proof of the domain in email.from: publish SPF and DMARC, and sign with email.dkim or on the mail server"
            }
            Self::Reputation => {
                "the server refuses mail from here by a block list or a policy; if its answer says no more, ask its operator, or \
                 name another mail server in email.smtp_url"
            }
        })
    }
}

/// A parsed reply.
struct Answer {
    /// Subject and detail of each enhanced status code.
    codes: Vec<(u16, u16)>,
    /// Its words in lower case, with one space before and after each, without addresses, URLs and host names: anybody
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

    fn says(&self, phrases: &str) -> bool {
        phrases.split('|').any(|phrase| self.words.contains(&format!(" {phrase}")))
    }

    fn has_any_code(&self, codes: &[(u16, u16)]) -> bool {
        self.codes.iter().any(|code| codes.contains(code))
    }

    fn is_about_the_content(&self) -> bool {
        let code = |(subject, detail): &(u16, u16)| *subject == 6 || matches!((subject, detail), (2, 3) | (3, 4));
        let is_about_size = self.says(SIZE) && !self.says("mailbox");
        self.codes.iter().any(code)
            || (is_about_size && !self.has_any_code(&FULL_CODES) && !self.has_any_code(&LIMIT_CODES))
    }

    /// The limit of the sender or of the mailbox, if the reply names one.
    fn limit(&self) -> Option<Refusal> {
        let is_full = self.has_any_code(&FULL_CODES) || self.says(FULL);
        let is_of_the_server = self.codes.iter().any(|(subject, _)| *subject == 3);
        if self.has_any_code(&LIMIT_CODES) || self.says(LIMIT) || (is_full && is_of_the_server) {
            return Some(Refusal::SendingLimit);
        }
        is_full.then_some(Refusal::MailboxFull)
    }

    /// The server's objection to the sender, if the reply names one.
    fn sender_fault(&self) -> Option<Refusal> {
        let security = |detail: &dyn Fn(u16) -> bool| self.codes.iter().any(|code| code.0 == 7 && detail(code.1));
        Some(match () {
            () if self.says(HELO) => Refusal::HeloName,
            () if self.says(RELAY) => Refusal::Relay,
            // RFC 7372.
            () if self.says(DOMAIN_PROOF) || security(&|detail| matches!(detail, 20..=24 | 26)) => Refusal::DomainProof,
            () if self.says(FROM_ADDRESS) || self.has_any_code(&[(1, 7), (1, 8)]) => Refusal::FromAddress,
            () if self.says(LOGIN) => Refusal::Login,
            () if self.says(REPUTATION) => Refusal::Reputation,
            () if self.says("sender") => Refusal::FromAddress,
            () if security(&|_| true) => Refusal::Reputation,
            () => return None,
        })
    }

    /// Whether a code or the text reports an unknown mailbox, and no code contradicts it.
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
mod tests {
    //! Answers of large providers and of the mail servers that most others run, with the cause of each.

    use super::Refusal::*;
    use super::*;
    use SmtpPhase::{Auth, Connect, Data, FinalDot, Mail, Rcpt};

    /// The phase, the reply, and its cause.
    #[rustfmt::skip]
    const ANSWERS: &[(SmtpPhase, &str, Refusal)] = &[
        // Gmail.
        (Rcpt, "550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking the recipient's email address for typos or unnecessary spaces. For more information, go to https://support.google.com/mail/?p=NoSuchUser a1-20020a17.0 - gsmtp", UnknownMailbox),
        (Rcpt, "550 5.2.1 The email account that you tried to reach is disabled. For more information, go to https://support.google.com/mail/?p=DisabledUser - gsmtp", UnknownMailbox),
        (Rcpt, "550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages from being delivered.", MailboxFull),
        (Rcpt, "450 4.2.1 The user you are trying to contact is receiving mail too quickly. Please resend your message at a later time.", MailboxFull),
        (Rcpt, "552 5.2.2 The email account that you tried to reach is over quota and inactive. Please direct the recipient to https://support.google.com/mail/?p=OverQuotaPerm - gsmtp", MailboxFull),
        (Rcpt, "452 4.2.2 The recipient's inbox is out of storage space. Please direct the recipient to https://support.google.com/mail/?p=OverQuotaTemp - gsmtp", MailboxFull),
        (FinalDot, "550 5.7.26 This mail has been blocked because the sender is unauthenticated. Gmail requires all senders to authenticate with either SPF or DKIM.", DomainProof),
        (FinalDot, "550 5.7.1 [192.0.2.1 19] Gmail has detected that this message is likely suspicious due to the very low reputation of the sending IP address.", Reputation),
        (FinalDot, "421 4.7.28 Gmail has detected an unusual rate of unsolicited mail originating from your IP address. To protect our users from spam, mail sent from your IP address has been temporarily rate limited.", SendingLimit),
        (FinalDot, "550 5.7.25 The IP address sending this message does not have a PTR record setup.", Reputation),
        (FinalDot, "550 5.4.5 Daily SMTP relay sending limit exceeded for customer.", SendingLimit),
        (Mail, "550 5.4.5 Daily user sending limit exceeded. For more information on Gmail sending limits go to https://support.google.com/a/answer/166852", SendingLimit),
        (Rcpt, "550 5.7.1 Invalid credentials for relay [192.0.2.1]. The IP address you've registered in your G Suite SMTP Relay service doesn't match the domain of the account this email is being sent from.", Relay),
        (FinalDot, "552 5.3.4 Your message exceeded Google's message size limits.", Content),
        // Outlook and Exchange.
        (Rcpt, "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient bob@b.test not found by SMTP address lookup", UnknownMailbox),
        (Rcpt, "550 5.1.1 RESOLVER.ADR.ExRecipNotFound; not found", UnknownMailbox),
        (Rcpt, "550 5.4.1 Recipient address rejected: Access denied. [AM0EUR02FT012.eop-EUR02.prod.protection.outlook.com]", Reputation),
        (Rcpt, "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).", Unclear),
        (Mail, "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service provider since part of their network is on our block list (S3140).", Reputation),
        (Rcpt, "550 5.7.511 Access denied, banned sender[192.0.2.1]. To request removal from this list please forward this message to delist@messaging.microsoft.com", Reputation),
        (Rcpt, "550 5.7.606 Access denied, banned sending IP [192.0.2.1].", Reputation),
        (Rcpt, "550 5.7.64 TenantAttribution; Relay Access Denied [BN3NAM01FT064.eop-nam01.prod.protection.outlook.com]", Relay),
        (Rcpt, "550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain", Relay),
        (Mail, "530 5.7.57 SMTP; Client was not authenticated to send anonymous mail during MAIL FROM", LoginRequired),
        (FinalDot, "554 5.2.252 SendAsDenied; bob@b.test not allowed to send as alerts@example.com", FromAddress),
        (Rcpt, "550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients.", SendingLimit),
        (Rcpt, "550 5.7.233 Your message can't be sent because your tenant exceeded its daily limit for sending email to external recipients.", SendingLimit),
        (Mail, "550 5.2.2 Submission quota exceeded", SendingLimit),
        (Rcpt, "554 5.2.2 mailbox full; STOREDRV.Deliver.Exception:QuotaExceededException", MailboxFull),
        (Mail, "452 4.3.1 Insufficient system resources", Unclear),
        (Rcpt, "451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77719)", Reputation),
        (FinalDot, "550 5.7.509 Access denied, sending domain example.com does not pass DMARC verification and has a DMARC policy of reject.", DomainProof),
        // Yahoo and AOL.
        (Rcpt, "552 1 Requested mail action aborted, mailbox not found", UnknownMailbox),
        (Rcpt, "554 delivery error: dd This user doesn't have a yahoo.com account (bob@yahoo.com) [0] - mta1234.mail.ne1.yahoo.com", UnknownMailbox),
        (Rcpt, "554 delivery error: dd Sorry your message to bob@yahoo.com cannot be delivered. This account has been disabled or discontinued [#102].", UnknownMailbox),
        (Mail, "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user complaints - 4.16.55.1", Reputation),
        (Mail, "553 5.7.1 [BL21] Connections will not be accepted from 192.0.2.1, because the ip is in Spamhaus's list", Reputation),
        (FinalDot, "554 5.7.9 Message not accepted for policy reasons. See https://postmaster.yahooinc.com/error-codes", Reputation),
        (Rcpt, "521 5.2.1 : AOL will not accept delivery of this message.", Mailbox),
        // Postfix.
        (Rcpt, "550 5.1.1 <bob@b.test>: Recipient address rejected: User unknown in local recipient table", UnknownMailbox),
        (Rcpt, "550 5.1.1 <bob@b.test>: Recipient address rejected: User unknown in relay recipient table", UnknownMailbox),
        (Rcpt, "550 5.1.1 <bob@b.test>: Recipient address rejected: undeliverable address: host mx.b.test said: 550 no", UnknownMailbox),
        (Rcpt, "450 4.1.1 <bob@b.test>: Recipient address rejected: unverified address: connect to mx.b.test timed out", UnknownMailbox),
        (Rcpt, "550 5.1.0 <alerts@example.com>: Sender address rejected: User unknown in virtual mailbox table", FromAddress),
        (Rcpt, "550 5.1.8 <alerts@example.com>: Sender address rejected: Domain not found", FromAddress),
        (Rcpt, "554 5.7.1 <bob@b.test>: Relay access denied", Relay),
        (Rcpt, "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org", Reputation),
        (Rcpt, "504 5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname", HeloName),
        (Rcpt, "450 4.7.1 <nowhere>: Helo command rejected: Host not found", HeloName),
        (Rcpt, "550 5.7.1 <nowhere>: Helo command rejected: Host not found", HeloName),
        (Rcpt, "450 4.7.25 Client host rejected: cannot find your hostname, [192.0.2.1]", Reputation),
        (Rcpt, "553 5.7.1 <alerts@example.com>: Sender address rejected: not owned by user bob", FromAddress),
        (Rcpt, "450 4.2.0 <bob@b.test>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/b.test.html", Mailbox),
        (Rcpt, "452 4.2.2 <bob@b.test>: Recipient address rejected: Mailbox full", MailboxFull),
        (Rcpt, "452 4.3.1 Insufficient system storage", SendingLimit),
        (Rcpt, "450 4.7.1 Error: too much mail from 192.0.2.1", SendingLimit),
        (Rcpt, "451 4.3.0 <bob@b.test>: Temporary lookup failure", Unclear),
        (Rcpt, "554 5.7.1 <bob@b.test>: Recipient address rejected: Access denied", Reputation),
        (FinalDot, "552 5.3.4 Error: message file too big", Content),
        // Exim.
        (Rcpt, "550 Unrouteable address", UnknownMailbox),
        (Rcpt, "550 No Such User Here", UnknownMailbox),
        (Rcpt, "550 Sender verify failed: No Such User Here", FromAddress),
        (Rcpt, "550 relay not permitted", Relay),
        (Rcpt, "550 JunkMail rejected - host [192.0.2.1] is in an RBL: https://www.spamhaus.org/query/ip/192.0.2.1", Reputation),
        (Rcpt, "550 Access denied - Invalid HELO name (See RFC2821 4.1.1.1)", HeloName),
        (Rcpt, "552 Mailbox is full / Blocks limit exceeded / Inode limit exceeded", MailboxFull),
        (Rcpt, "550 The mail server could not deliver mail. The account or domain may not exist, they may be blacklisted, or missing the proper dns entries.", Reputation),
        // Sendmail.
        (Rcpt, "550 5.1.1 <bob@b.test>... User unknown", UnknownMailbox),
        (Rcpt, "550 5.1.2 <bob@b.test>... Host unknown (Name server: b.test: host not found)", UnknownMailbox),
        (Rcpt, "550 5.7.1 <bob@b.test>... Relaying denied. Proper authentication required.", Relay),
        (Rcpt, "553 5.1.8 <alerts@example.com>... Domain of sender address alerts@example.com does not exist", FromAddress),
        (Rcpt, "550 5.7.1 Mail from 192.0.2.1 refused by blackhole site relays.mail-abuse.org", FromAddress),
        (Rcpt, "550 5.3.0 Rejected", Unclear),
        // qmail, IronPort, Mimecast, Domino, iCloud, Proofpoint.
        (Rcpt, "550 sorry, no mailbox here by that name. (#5.1.1)", UnknownMailbox),
        (Rcpt, "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)", Relay),
        (Rcpt, "550 #5.1.0 Address rejected.", Mailbox),
        (Rcpt, "554 Your access to this mail system has been rejected due to the sending MTA's poor reputation.", Reputation),
        (Rcpt, "550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550 [a1.uk123]", UnknownMailbox),
        (Rcpt, "550 Administrative prohibition - envelope blocked - https://community.mimecast.com/docs/DOC-1369#550", Reputation),
        (Rcpt, "550 5.1.1 bob@b.test... User not listed in Domino Directory", UnknownMailbox),
        (Rcpt, "550 5.1.1 <bob@icloud.com>: user does not exist", UnknownMailbox),
        (Rcpt, "550 5.7.1 Service unavailable - blocked by Proofpoint", Reputation),
        (Rcpt, "556 5.1.10 <bob@b.test>: Domain does not accept mail (nullMX)", UnknownMailbox),
        // relays of senders.
        (FinalDot, "554 Message rejected: Email address is not verified. The following identities failed the check in region EU-WEST-1: alerts@example.com", FromAddress),
        (FinalDot, "550 The from address does not match a verified Sender Identity. Mail cannot be sent until this error is resolved.", FromAddress),
        (Mail, "454 Throttling failure: Maximum sending rate exceeded.", SendingLimit),
        (FinalDot, "454 Throttling failure: Daily message quota exceeded.", SendingLimit),
        (Rcpt, "551 5.7.1 Unauthorized IP address", Login),
        (Rcpt, "550 Sending from this account has been disabled", Reputation),
        (Rcpt, "550 Outgoing email is disabled: account suspended", Reputation),
        (Rcpt, "550 5.1.0 Outbound email of this user is disabled", Reputation),
        (Auth, "535 5.7.8 Error: authentication failed", Login),
        (Connect, "504 need a name", HeloName),
        (Connect, "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using b.barracudacentral.org", Reputation),
        // A code that is more exact than the words.
        (Rcpt, "552 5.2.2 over quota: message too large", MailboxFull),
        (FinalDot, "552 5.2.2 over quota: message too large", MailboxFull),
        (FinalDot, "550 5.4.5 the total message size of today exceeds what is allowed", SendingLimit),
        // No reason at all.
        (Rcpt, "550 no", Mailbox),
        (Rcpt, "554 nonsense", Mailbox),
        (Rcpt, "551 user not local", UnknownMailbox),
        (Rcpt, "550 5.4.4 <bob@b.test>: user unknown, unable to route", Unclear),
        (Rcpt, "550 <policy.spam@blocked.test>: user unknown", UnknownMailbox),
        (Rcpt, "550 5.1.1 user unknown, your IP address is listed by an RBL", Reputation),
        (Data, "554 5.5.1 no valid recipients", Unclear),
        (FinalDot, "554 Transaction failed", Unclear),
        (FinalDot, "550 5.1.1 no such user", Unclear),
    ];

    fn code_of(answer: &str) -> u16 {
        answer[..3].parse().expect("a reply code")
    }

    /// A single day on a block list disabled every contact that had an alert: each row is a reply that was or might be
    /// misread.
    #[test]
    fn answers_of_large_providers_are_understood() {
        let read =
            |(phase, answer, _): &(SmtpPhase, &str, Refusal)| Refusal::judge(*phase, code_of(answer), &answer[4..]);
        let wrong: Vec<String> = ANSWERS
            .iter()
            .filter(|row| read(row) != row.2)
            .map(|row| format!("{:?}, not {:?}: {:?} {}", read(row), row.2, row.0, row.1))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Because of a wrong setting, every alert failed at its first attempt, and the hint named nothing that the
    /// operator could change.
    #[test]
    fn what_is_about_us_is_tried_again_and_names_a_setting() {
        for (phase, answer, refusal) in ANSWERS {
            let (class, hint) =
                (refusal.class(*phase, code_of(answer)), refusal.hint(*phase, code_of(answer)).unwrap_or_default());
            match refusal {
                Content => assert_eq!(class, OutcomeClass::Permanent, "{answer}"),
                MailboxFull | SendingLimit => assert_eq!(class, OutcomeClass::Transient, "{answer}"),
                _ => assert_ne!(class, OutcomeClass::Permanent, "{answer}"),
            }
            if !refusal.is_about_the_contact() && !matches!(refusal, Content | Unclear) {
                assert!(hint.contains("email."), "{answer}: {hint}");
            }
        }
        let helo = Refusal::judge(Rcpt, 504, "5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname");
        assert_eq!(helo.class(Rcpt, 504), OutcomeClass::Rejected);
        assert!(helo.hint(Rcpt, 504).is_some_and(|hint| hint.contains("email.helo_name")));
    }
}
