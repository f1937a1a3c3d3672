//! What can be asked for: add a contact, take it away, send its verification again, show a password, open a confirm link.
//!
//! Asks Redis as often for a contact that is there as for one that is not, and leaves everything that takes longer to the
//! [`super::Messenger`]. Whatever is cut off on the way leaves at most an unverified contact or a request that counts; whoever tries
//! again is asked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::mpsc;

use super::array::{self, Consent, Refused};
use super::pace::{Asks, Pace};
use super::password;
use super::{Candidate, Event, VerificationConfig, Wanted, confirm_link, element};
use crate::contacts::Contact;
use crate::contacts::store::{Stored, change_contacts, read_contacts};
use crate::throttle::{ExpiringSet, ExpiringSetDecision, TooManyMembers};
use crate::types::{Keys, Subject, nonce};
use crate::wire::{ErrorKind, RedisClient, error_kind};

/// Messages that wait to be sent. More than that are asked for only when something is wrong.
const WAITING_MAX: usize = 256;
/// Guesses at one password: one in 200,000 is found so.
const GUESSES_MAX: u32 = 5;
/// A caller must not hang where Redis does.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long somebody waits who came when too much was waiting.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// Takes what is asked for. Cheap to share.
#[derive(Debug)]
pub struct Desk {
    parts: DeskParts,
    pace: Pace,
    guesses: ExpiringSet,
    messages: mpsc::Sender<Wanted>,
}

/// What the desk needs.
#[derive(Debug)]
pub struct DeskParts {
    /// Redis, once it has been reached.
    pub client: Arc<OnceLock<Arc<RedisClient>>>,
    /// The partition.
    pub keys: Keys,
    /// How often and how long.
    pub config: VerificationConfig,
}

/// Why something was not done. Nothing was, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// Redis failed. A contact may have been added; no message was sent.
    #[error("redis")]
    Redis(#[from] RedisError),
    /// Redis has not been reached yet, or does not answer.
    #[error("redis does not answer")]
    Away,
    /// Asked too often.
    #[error("asked too often")]
    Throttled {
        /// When to ask again.
        retry_after: Duration,
    },
    /// Too many messages wait, or the daemon is ending.
    #[error("too many messages wait to be sent")]
    Busy {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The subject has as many contacts as may be.
    #[error("the subject has too many contacts")]
    Full,
    /// The subject's contacts can't be read, so nothing is changed about them.
    #[error("the subject's contacts can't be read")]
    Unreadable,
    /// Others change the subject's contacts all the time.
    #[error("others change the subject's contacts all the time")]
    Contended,
}

/// What became of a password that was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guessed {
    /// It was the right one: the contact is verified.
    Verified,
    /// It was not, or there was none, or too many had been shown.
    Refused,
}

/// What became of a confirm link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmed {
    /// The contact of this subject is verified, by this.
    Verified(Subject),
    /// It was verified before: by another who pressed at the same moment, or by a press whose answer was lost.
    Before(Subject),
    /// The link was used before, has run out, or never was.
    Gone,
}

impl Desk {
    /// A desk, and what the [`super::Messenger`] takes its work from.
    ///
    /// # Errors
    ///
    /// [`TooManyMembers`] for more requests than can be counted.
    pub fn new(parts: DeskParts) -> Result<(Self, mpsc::Receiver<Wanted>), TooManyMembers> {
        let (messages, waiting) = mpsc::channel(WAITING_MAX);
        let pace = Pace::new(&parts.keys, &parts.config)?;
        let guesses = ExpiringSet::new(GUESSES_MAX)?;
        Ok((Self { parts, pace, guesses, messages }, waiting))
    }

    /// Adds a contact, unverified whatever it says, and has its address asked, unless a message left for it within the last minute.
    /// Repeatable: one that is there is not added again, but asked again, where it is not verified.
    ///
    /// # Errors
    ///
    /// [`DeskError`]
    pub async fn add(&self, subject: Subject, contact: Contact) -> Result<(), DeskError> {
        let contact = Contact { verified: false, ..contact };
        let candidate = Candidate { subject, contact: contact.id.clone() };
        let place = self.place()?;
        let request = within_deadline(async {
            let client = self.client()?;
            let request = self.pace.count_added(client, &candidate, &contact).await?;
            store(client, &self.parts.keys, &candidate.subject, &contact).await?;
            Ok(request)
        })
        .await?;
        place.send(Wanted { candidate, request });
        Ok(())
    }

    /// Takes a contact away that was added here, verified or not; for any other does nothing, and answers the same. What was sent to
    /// its address verifies nothing afterwards, not even if it is added again, and its deliveries that are pending are cancelled at
    /// their next attempt. Repeatable.
    ///
    /// # Errors
    ///
    /// [`DeskError`]. Where it is Redis that failed, the contact may be gone.
    pub async fn remove(&self, candidate: &Candidate) -> Result<(), DeskError> {
        let removed = within_deadline(async {
            let client = self.client()?;
            let stored = read_contacts(client, &self.parts.keys, &candidate.subject).await?;
            let without = array::remove(&stored, &candidate.contact)?;
            let found = without.map(|without| without.contacts).unwrap_or_default();
            // Before they are gone: should this fail, whoever tries again still finds what is to be forgotten.
            self.pace.forget(client, candidate, &found).await?;
            let mut removed = Vec::new();
            let stored = change_contacts(client, &self.parts.keys, &candidate.subject, |stored| {
                let without = array::remove(stored, &candidate.contact)?;
                removed = without.as_ref().map(|without| without.contacts.clone()).unwrap_or_default();
                Ok::<_, DeskError>(without.map(|without| without.remaining))
            });
            if stored.await? == Stored::Changed {
                return Err(DeskError::Contended);
            }
            // And after: who added it in between has begun another minute, of a message that is void now.
            self.pace.forget(client, candidate, &removed).await?;
            Ok(removed)
        })
        .await?;
        if !removed.is_empty() {
            let Candidate { subject, contact } = candidate;
            tracing::info!(%subject, contact = ?contact.as_str(), "contact is removed");
        }
        Ok(())
    }

    /// Has the address of an unverified contact asked again; for any other does nothing, and answers the same.
    ///
    /// # Errors
    ///
    /// [`DeskError`]
    pub async fn resend(&self, candidate: Candidate) -> Result<(), DeskError> {
        let place = self.place()?;
        let asks = within_deadline(async {
            let client = self.client()?;
            self.pace.again(client, &candidate).await?;
            let stored = unless_unreadable(read_contacts(client, &self.parts.keys, &candidate.subject).await)?;
            let found = array::unverified(&stored, &candidate.contact);
            self.pace.count_again(client, &candidate, found.as_ref().map(|found| &found.contact)).await
        })
        .await?;
        match asks {
            Asks::Now(request) => place.send(Wanted { candidate, request }),
            Asks::Never => Event::Throttled.count(),
        }
        Ok(())
    }

    /// Holds a password against the contact's. The right one is used up and verifies the contact.
    ///
    /// # Errors
    ///
    /// [`DeskError`]. Where it is Redis that failed, the password may be used up and the contact not verified: it needs another. Where
    /// the contacts can't be read nothing is used up, and no guess counted.
    pub async fn verify(&self, candidate: &Candidate, guess: &str) -> Result<Guessed, DeskError> {
        let guessed = within_deadline(self.judge(candidate, guess)).await?;
        self.note(candidate, if guessed == Guessed::Verified { Event::Verified } else { Event::Rejected });
        Ok(guessed)
    }

    async fn judge(&self, candidate: &Candidate, guess: &str) -> Result<Guessed, DeskError> {
        let (client, keys) = (self.client()?, &self.parts.keys);
        let contacts = read_contacts(client, &self.parts.keys, &candidate.subject).await?;
        let asked = array::asked_of(&contacts, &candidate.contact)?;
        let holder = &asked.map_or_else(|| candidate.digest(), |asked| element(&candidate.subject, &asked));
        let stored = password::read(client, keys, holder).await?;
        let stored = stored.unwrap_or_else(|| password::Stored::of_nobody(holder));
        let this = nonce();
        let guesses = keys.verify_guesses(&stored.nonce);
        let counted = self.guesses.add(client, &guesses, &this, self.parts.config.lifetime).await?;
        let may_guess = matches!(counted, ExpiringSetDecision::Added { .. });
        if !(stored.is(holder, guess) && may_guess) {
            return Ok(Guessed::Refused);
        }
        if !password::consume(client, keys, holder, &stored).await? {
            return Ok(Guessed::Refused);
        }
        Ok(match consent(client, &self.parts.keys, candidate, &stored.endpoint).await? {
            Consented::Verified | Consented::Before => Guessed::Verified,
            Consented::Void => Guessed::Refused,
        })
    }

    /// Uses a confirm link up, which verifies its contact.
    ///
    /// # Errors
    ///
    /// [`DeskError`]. The link is then as good as before: whoever presses again is answered anew.
    pub async fn confirm(&self, token: &str) -> Result<Confirmed, DeskError> {
        let confirmed = within_deadline(self.consent_by(token)).await?;
        // Whether it can be ended or not: somebody is told now, and what happens when it is pressed again changes nothing any more.
        let ended =
            within_deadline(async { Ok(confirm_link::end(self.client()?, &self.parts.keys, token).await?) }).await;
        if let Err(error) = ended {
            tracing::debug!(%error, "a confirm link that was used could not be ended");
        }
        Ok(confirmed)
    }

    async fn consent_by(&self, token: &str) -> Result<Confirmed, DeskError> {
        let client = self.client()?;
        let Some(meant) = confirm_link::consume(client, &self.parts.keys, token).await? else {
            Event::Rejected.count();
            return Ok(Confirmed::Gone);
        };
        let candidate = Candidate { subject: meant.subject, contact: meant.contact };
        Ok(match consent(client, &self.parts.keys, &candidate, &meant.endpoint).await? {
            Consented::Verified => {
                self.note(&candidate, Event::Verified);
                Confirmed::Verified(candidate.subject)
            }
            Consented::Before => Confirmed::Before(candidate.subject),
            Consented::Void => {
                self.note(&candidate, Event::Rejected);
                Confirmed::Gone
            }
        })
    }

    fn client(&self) -> Result<&RedisClient, DeskError> {
        self.parts.client.get().map(Arc::as_ref).ok_or(DeskError::Away)
    }

    /// A place among what waits, taken before anything is written.
    fn place(&self) -> Result<mpsc::Permit<'_, Wanted>, DeskError> {
        self.messages.try_reserve().map_err(|_| DeskError::Busy { retry_after: BUSY_FOR })
    }

    fn note(&self, candidate: &Candidate, event: Event) {
        event.count();
        let Candidate { subject, contact } = candidate;
        match event {
            Event::Verified => tracing::info!(%subject, %contact, "contact is verified"),
            _ => tracing::info!(%subject, contact = ?contact.as_str(), "verification refused"),
        }
    }
}

/// Stores a contact where it is not there yet. Also one that is about to be asked already: it may have been removed since, and a
/// webhook's secret is the one that was named last.
async fn store(client: &RedisClient, keys: &Keys, subject: &Subject, contact: &Contact) -> Result<(), DeskError> {
    let nonce = nonce();
    let stored =
        change_contacts(client, keys, subject, |stored| array::add(stored, contact, &nonce).map_err(DeskError::from));
    match stored.await? {
        Stored::Changed => Err(DeskError::Contended),
        Stored::Written | Stored::Kept => Ok(()),
    }
}

/// What became of a consent in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consented {
    /// The contact is verified now.
    Verified,
    /// It was before.
    Before,
    /// There is no such contact any more, or another address has its id.
    Void,
}

/// Marks the contact as verified, if its endpoint is still the one that was asked. Repeatable.
pub(super) async fn consent(
    client: &RedisClient,
    keys: &Keys,
    candidate: &Candidate,
    endpoint: &str,
) -> Result<Consented, DeskError> {
    let mut consented = Consented::Verified;
    let stored = change_contacts(client, keys, &candidate.subject, |stored| {
        Ok::<_, DeskError>(match array::verify(stored, &candidate.contact, endpoint)? {
            Consent::Given(contacts) => {
                consented = Consented::Verified;
                Some(contacts)
            }
            Consent::Before => {
                consented = Consented::Before;
                None
            }
            Consent::Void => {
                consented = Consented::Void;
                None
            }
        })
    });
    match stored.await? {
        Stored::Changed => Err(DeskError::Contended),
        Stored::Written | Stored::Kept => Ok(consented),
    }
}

impl From<Refused> for DeskError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unreadable => Self::Unreadable,
            Refused::Full => Self::Full,
        }
    }
}

/// A subject whose key is of another type has no contact that can be asked, like one that does not exist.
fn unless_unreadable(stored: Result<Vec<u8>, RedisError>) -> Result<Vec<u8>, RedisError> {
    match stored {
        Err(error) if error_kind(&error) == ErrorKind::WrongType => Ok(Vec::new()),
        stored => stored,
    }
}

async fn within_deadline<T>(asked: impl Future<Output = Result<T, DeskError>>) -> Result<T, DeskError> {
    match tokio::time::timeout(DEADLINE, asked).await {
        Ok(Err(DeskError::Redis(error))) if error_kind(&error) == ErrorKind::WrongType => Err(DeskError::Unreadable),
        Ok(answered) => answered,
        Err(_) => Err(DeskError::Away),
    }
}
