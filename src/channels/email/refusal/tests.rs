//! Answers of large providers and of the mail servers that most others run, and what each is about.

use super::Refusal::{Content, Mailbox, MailboxFull, Sender, SendingLimit, Unclear, UnknownMailbox};
use super::SenderFault::{DomainProof, FromAddress, HeloName, Login, LoginRequired, Relay, Reputation};
use super::*;
use SmtpPhase::{Auth, Connect, Data, FinalDot, Mail, Rcpt};

/// The phase, the answer, and what it is about.
#[rustfmt::skip]
const ANSWERS: &[(SmtpPhase, &str, Refusal)] = &[
    // Gmail.
    (Rcpt, "550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking the recipient's email address for typos or unnecessary spaces. For more information, go to https://support.google.com/mail/?p=NoSuchUser a1-20020a17.0 - gsmtp", UnknownMailbox),
    (Rcpt, "550 5.2.1 The email account that you tried to reach is disabled. For more information, go to https://support.google.com/mail/?p=DisabledUser - gsmtp", UnknownMailbox),
    (Rcpt, "550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages from being delivered.", MailboxFull),
    (Rcpt, "450 4.2.1 The user you are trying to contact is receiving mail too quickly. Please resend your message at a later time.", MailboxFull),
    (Rcpt, "552 5.2.2 The email account that you tried to reach is over quota and inactive. Please direct the recipient to https://support.google.com/mail/?p=OverQuotaPerm - gsmtp", MailboxFull),
    (Rcpt, "452 4.2.2 The recipient's inbox is out of storage space. Please direct the recipient to https://support.google.com/mail/?p=OverQuotaTemp - gsmtp", MailboxFull),
    (FinalDot, "550 5.7.26 This mail has been blocked because the sender is unauthenticated. Gmail requires all senders to authenticate with either SPF or DKIM.", Sender(DomainProof)),
    (FinalDot, "550 5.7.1 [192.0.2.1 19] Gmail has detected that this message is likely suspicious due to the very low reputation of the sending IP address.", Sender(Reputation)),
    (FinalDot, "421 4.7.28 Gmail has detected an unusual rate of unsolicited mail originating from your IP address. To protect our users from spam, mail sent from your IP address has been temporarily rate limited.", SendingLimit),
    (FinalDot, "550 5.7.25 The IP address sending this message does not have a PTR record setup.", Sender(Reputation)),
    (FinalDot, "550 5.4.5 Daily SMTP relay sending limit exceeded for customer.", SendingLimit),
    (Mail, "550 5.4.5 Daily user sending limit exceeded. For more information on Gmail sending limits go to https://support.google.com/a/answer/166852", SendingLimit),
    (Rcpt, "550 5.7.1 Invalid credentials for relay [192.0.2.1]. The IP address you've registered in your G Suite SMTP Relay service doesn't match the domain of the account this email is being sent from.", Sender(Relay)),
    (FinalDot, "552 5.3.4 Your message exceeded Google's message size limits.", Content),
    // Outlook and Exchange.
    (Rcpt, "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient bob@b.test not found by SMTP address lookup", UnknownMailbox),
    (Rcpt, "550 5.1.1 RESOLVER.ADR.ExRecipNotFound; not found", UnknownMailbox),
    (Rcpt, "550 5.4.1 Recipient address rejected: Access denied. [AM0EUR02FT012.eop-EUR02.prod.protection.outlook.com]", Sender(Reputation)),
    (Rcpt, "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).", Unclear),
    (Mail, "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service provider since part of their network is on our block list (S3140).", Sender(Reputation)),
    (Rcpt, "550 5.7.511 Access denied, banned sender[192.0.2.1]. To request removal from this list please forward this message to delist@messaging.microsoft.com", Sender(Reputation)),
    (Rcpt, "550 5.7.606 Access denied, banned sending IP [192.0.2.1].", Sender(Reputation)),
    (Rcpt, "550 5.7.64 TenantAttribution; Relay Access Denied [BN3NAM01FT064.eop-nam01.prod.protection.outlook.com]", Sender(Relay)),
    (Rcpt, "550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain", Sender(Relay)),
    (Mail, "530 5.7.57 SMTP; Client was not authenticated to send anonymous mail during MAIL FROM", Sender(LoginRequired)),
    (FinalDot, "554 5.2.252 SendAsDenied; bob@b.test not allowed to send as alerts@example.com", Sender(FromAddress)),
    (Rcpt, "550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients.", SendingLimit),
    (Rcpt, "550 5.7.233 Your message can't be sent because your tenant exceeded its daily limit for sending email to external recipients.", SendingLimit),
    (Mail, "550 5.2.2 Submission quota exceeded", SendingLimit),
    (Rcpt, "554 5.2.2 mailbox full; STOREDRV.Deliver.Exception:QuotaExceededException", MailboxFull),
    (Mail, "452 4.3.1 Insufficient system resources", Unclear),
    (Rcpt, "451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77719)", Sender(Reputation)),
    (FinalDot, "550 5.7.509 Access denied, sending domain example.com does not pass DMARC verification and has a DMARC policy of reject.", Sender(DomainProof)),
    // Yahoo and AOL.
    (Rcpt, "552 1 Requested mail action aborted, mailbox not found", UnknownMailbox),
    (Rcpt, "554 delivery error: dd This user doesn't have a yahoo.com account (bob@yahoo.com) [0] - mta1234.mail.ne1.yahoo.com", UnknownMailbox),
    (Rcpt, "554 delivery error: dd Sorry your message to bob@yahoo.com cannot be delivered. This account has been disabled or discontinued [#102].", UnknownMailbox),
    (Mail, "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user complaints - 4.16.55.1", Sender(Reputation)),
    (Mail, "553 5.7.1 [BL21] Connections will not be accepted from 192.0.2.1, because the ip is in Spamhaus's list", Sender(Reputation)),
    (FinalDot, "554 5.7.9 Message not accepted for policy reasons. See https://postmaster.yahooinc.com/error-codes", Sender(Reputation)),
    (Rcpt, "521 5.2.1 : AOL will not accept delivery of this message.", Mailbox),
    // Postfix.
    (Rcpt, "550 5.1.1 <bob@b.test>: Recipient address rejected: User unknown in local recipient table", UnknownMailbox),
    (Rcpt, "550 5.1.1 <bob@b.test>: Recipient address rejected: User unknown in relay recipient table", UnknownMailbox),
    (Rcpt, "550 5.1.1 <bob@b.test>: Recipient address rejected: undeliverable address: host mx.b.test said: 550 no", UnknownMailbox),
    (Rcpt, "450 4.1.1 <bob@b.test>: Recipient address rejected: unverified address: connect to mx.b.test timed out", UnknownMailbox),
    (Rcpt, "550 5.1.0 <alerts@example.com>: Sender address rejected: User unknown in virtual mailbox table", Sender(FromAddress)),
    (Rcpt, "550 5.1.8 <alerts@example.com>: Sender address rejected: Domain not found", Sender(FromAddress)),
    (Rcpt, "554 5.7.1 <bob@b.test>: Relay access denied", Sender(Relay)),
    (Rcpt, "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org", Sender(Reputation)),
    (Rcpt, "504 5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname", Sender(HeloName)),
    (Rcpt, "450 4.7.1 <nowhere>: Helo command rejected: Host not found", Sender(HeloName)),
    (Rcpt, "550 5.7.1 <nowhere>: Helo command rejected: Host not found", Sender(HeloName)),
    (Rcpt, "450 4.7.25 Client host rejected: cannot find your hostname, [192.0.2.1]", Sender(Reputation)),
    (Rcpt, "553 5.7.1 <alerts@example.com>: Sender address rejected: not owned by user bob", Sender(FromAddress)),
    (Rcpt, "450 4.2.0 <bob@b.test>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/b.test.html", Mailbox),
    (Rcpt, "452 4.2.2 <bob@b.test>: Recipient address rejected: Mailbox full", MailboxFull),
    (Rcpt, "452 4.3.1 Insufficient system storage", SendingLimit),
    (Rcpt, "450 4.7.1 Error: too much mail from 192.0.2.1", SendingLimit),
    (Rcpt, "451 4.3.0 <bob@b.test>: Temporary lookup failure", Unclear),
    (Rcpt, "554 5.7.1 <bob@b.test>: Recipient address rejected: Access denied", Sender(Reputation)),
    (FinalDot, "552 5.3.4 Error: message file too big", Content),
    // Exim.
    (Rcpt, "550 Unrouteable address", UnknownMailbox),
    (Rcpt, "550 No Such User Here", UnknownMailbox),
    (Rcpt, "550 Sender verify failed: No Such User Here", Sender(FromAddress)),
    (Rcpt, "550 relay not permitted", Sender(Relay)),
    (Rcpt, "550 JunkMail rejected - host [192.0.2.1] is in an RBL: https://www.spamhaus.org/query/ip/192.0.2.1", Sender(Reputation)),
    (Rcpt, "550 Access denied - Invalid HELO name (See RFC2821 4.1.1.1)", Sender(HeloName)),
    (Rcpt, "552 Mailbox is full / Blocks limit exceeded / Inode limit exceeded", MailboxFull),
    (Rcpt, "550 The mail server could not deliver mail. The account or domain may not exist, they may be blacklisted, or missing the proper dns entries.", Sender(Reputation)),
    // Sendmail.
    (Rcpt, "550 5.1.1 <bob@b.test>... User unknown", UnknownMailbox),
    (Rcpt, "550 5.1.2 <bob@b.test>... Host unknown (Name server: b.test: host not found)", UnknownMailbox),
    (Rcpt, "550 5.7.1 <bob@b.test>... Relaying denied. Proper authentication required.", Sender(Relay)),
    (Rcpt, "553 5.1.8 <alerts@example.com>... Domain of sender address alerts@example.com does not exist", Sender(FromAddress)),
    (Rcpt, "550 5.7.1 Mail from 192.0.2.1 refused by blackhole site relays.mail-abuse.org", Sender(FromAddress)),
    (Rcpt, "550 5.3.0 Rejected", Unclear),
    // qmail, IronPort, Mimecast, Domino, iCloud, Proofpoint.
    (Rcpt, "550 sorry, no mailbox here by that name. (#5.1.1)", UnknownMailbox),
    (Rcpt, "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)", Sender(Relay)),
    (Rcpt, "550 #5.1.0 Address rejected.", Mailbox),
    (Rcpt, "554 Your access to this mail system has been rejected due to the sending MTA's poor reputation.", Sender(Reputation)),
    (Rcpt, "550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550 [a1.uk123]", UnknownMailbox),
    (Rcpt, "550 Administrative prohibition - envelope blocked - https://community.mimecast.com/docs/DOC-1369#550", Sender(Reputation)),
    (Rcpt, "550 5.1.1 bob@b.test... User not listed in Domino Directory", UnknownMailbox),
    (Rcpt, "550 5.1.1 <bob@icloud.com>: user does not exist", UnknownMailbox),
    (Rcpt, "550 5.7.1 Service unavailable - blocked by Proofpoint", Sender(Reputation)),
    (Rcpt, "556 5.1.10 <bob@b.test>: Domain does not accept mail (nullMX)", UnknownMailbox),
    // relays of senders.
    (FinalDot, "554 Message rejected: Email address is not verified. The following identities failed the check in region EU-WEST-1: alerts@example.com", Sender(FromAddress)),
    (FinalDot, "550 The from address does not match a verified Sender Identity. Mail cannot be sent until this error is resolved.", Sender(FromAddress)),
    (Mail, "454 Throttling failure: Maximum sending rate exceeded.", SendingLimit),
    (FinalDot, "454 Throttling failure: Daily message quota exceeded.", SendingLimit),
    (Rcpt, "551 5.7.1 Unauthorized IP address", Sender(Login)),
    (Rcpt, "550 Sending from this account has been disabled", Sender(Reputation)),
    (Rcpt, "550 Outgoing email is disabled: account suspended", Sender(Reputation)),
    (Rcpt, "550 5.1.0 Outbound email of this user is disabled", Sender(Reputation)),
    (Auth, "535 5.7.8 Error: authentication failed", Sender(Login)),
    (Connect, "504 need a name", Sender(HeloName)),
    (Connect, "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using b.barracudacentral.org", Sender(Reputation)),
    // a code that is more exact than the words.
    (Rcpt, "552 5.2.2 over quota: message too large", MailboxFull),
    (FinalDot, "552 5.2.2 over quota: message too large", MailboxFull),
    (FinalDot, "550 5.4.5 the total message size of today exceeds what is allowed", SendingLimit),
    // no reason at all.
    (Rcpt, "550 no", Mailbox),
    (Rcpt, "554 nonsense", Mailbox),
    (Rcpt, "551 user not local", UnknownMailbox),
    (Rcpt, "550 5.4.4 <bob@b.test>: user unknown, unable to route", Unclear),
    (Rcpt, "550 <policy.spam@blocked.test>: user unknown", UnknownMailbox),
    (Rcpt, "550 5.1.1 user unknown, your IP address is listed by an RBL", Sender(Reputation)),
    (Data, "554 5.5.1 no valid recipients", Unclear),
    (FinalDot, "554 Transaction failed", Unclear),
    (FinalDot, "550 5.1.1 no such user", Unclear),
];

fn code_of(answer: &str) -> u16 {
    answer[..3].parse().expect("a reply code")
}

/// One day on a block list disabled every contact that had an alert: each row is an answer that was or might be
/// misread.
#[test]
fn answers_of_large_providers_are_understood() {
    let read = |(phase, answer, _): &(SmtpPhase, &str, Refusal)| Refusal::judge(*phase, code_of(answer), &answer[4..]);
    let wrong: Vec<String> = ANSWERS
        .iter()
        .filter(|row| read(row) != row.2)
        .map(|row| format!("{:?}, not {:?}: {:?} {}", read(row), row.2, row.0, row.1))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A wrong setting made every alert dead at its first attempt, and the hint named nothing that the operator could
/// change.
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
        if matches!(refusal, Sender(_) | SendingLimit) {
            assert!(hint.contains("email."), "{answer}: {hint}");
        }
    }
    let helo = Refusal::judge(Rcpt, 504, "5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname");
    assert_eq!(helo.class(Rcpt, 504), OutcomeClass::Rejected);
    assert!(helo.hint(Rcpt, 504).is_some_and(|hint| hint.contains("email.helo_name")));
}
