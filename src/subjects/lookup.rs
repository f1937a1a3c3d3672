//! Settings of single subjects for concurrent callers: from memory if fresh, else from Redis.
//!
//! As fresh as the settings of the counting ([`super::watch`]): a reply from before a change is never kept beyond the
//! change. The lock is held only for access to the table, never during a call to Redis. Read next: [`super::cache`],
//! the table.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use metrics::counter;
use redis::{FromRedisValue, RedisResult, Value};

use crate::redis_client::RedisClient;
use crate::types::{Keys, Subject, meters};

use super::cache::{SettingsCache, StoredSettings, added_from, ask_added};
use super::levels::{SubjectLevel, inherit};
use super::plans::Plans;
use super::profile::Profile;
use super::record::FieldError;
use super::record::SubjectField;
use super::watch::{ChangeFeed, SubjectChanges};

/// Unit of ages in the table: 32 bits of it are eight years.
const AGE_STEP_MS: u128 = 64;

/// Looks up settings.
#[derive(Debug)]
pub struct SettingsLookup {
    keys: Keys,
    plans: Plans,
    changes: ChangeFeed,
    started: Instant,
    held: Mutex<HeldSettings>,
}

#[derive(Debug)]
struct HeldSettings {
    cache: SettingsCache<Marks>,
    /// Counts changes and additions, so that each has its own number.
    moment: u64,
    /// The moment of the last change that may affect any subject.
    all_changed: u64,
}

/// Moments of a subject.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// When it was added to the table or changed last.
    changed: u64,
    /// When the read of the cached settings began.
    read: u64,
}

impl SettingsLookup {
    /// A lookup that caches about `cache_entries` subjects. A [`super::watch::ChangeListener`] fills `changes`.
    pub fn new(keys: Keys, plans: Plans, cache_entries: usize, changes: ChangeFeed) -> Self {
        let cache = SettingsCache::new(cache_entries, &plans);
        let held = Mutex::new(HeldSettings { cache, moment: 0, all_changed: 0 });
        Self { keys, plans, changes, started: Instant::now(), held }
    }

    /// The settings of a subject, at most a second old.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection. Unreadable settings are no error: see [`Profile::has_known_limits`].
    pub async fn profile(&self, client: &RedisClient, subject: &Subject) -> RedisResult<Arc<Profile>> {
        let began = match self.begin(subject) {
            Ok(fresh) => return Ok(fresh),
            Err(moment) => moment,
        };
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors().cmd("HGETALL").arg(self.keys.subject(subject));
        ask_added(&mut pipeline, &self.keys, subject);
        let replies: Vec<RedisResult<Value>> = client.pipe(&pipeline).await?;
        let mut replies = replies.into_iter();
        let fields = replies.next().unwrap_or(Ok(Value::Nil));
        let fields = fields.and_then(|value| Ok(Vec::<SubjectField>::from_redis_value(value)?));
        let added = added_from(replies.next())?;
        self.end(subject, began, StoredSettings { fields, added })
    }

    /// The settings of a subject and of the levels above it, in this order.
    ///
    /// # Errors
    ///
    /// As [`Self::profile`].
    pub async fn levels(&self, client: &RedisClient, subject: &Subject) -> RedisResult<Vec<SubjectLevel>> {
        let level = async |subject: Subject| {
            let profile = self.profile(client, &subject).await?;
            RedisResult::Ok(SubjectLevel { subject, profile })
        };
        let above = self.keys.separator().ancestors(subject);
        let levels = std::iter::once(subject.clone()).chain(above).map(level);
        Ok(inherit(futures_util::future::try_join_all(levels).await?))
    }

    /// The settings if they are fresh; otherwise the moment at which the read of them begins.
    fn begin(&self, subject: &Subject) -> Result<Arc<Profile>, u64> {
        let mut held = self.lock();
        held.apply_changes(&self.changes);
        let at = match held.cache.find(subject.as_str().as_bytes()) {
            Some(at) => at,
            None => held.add(subject),
        };
        let age = self.started.elapsed().as_millis() / AGE_STEP_MS;
        let cached = held.cache.subject_mut(at);
        cached.used = u64::try_from(age).unwrap_or(u64::MAX);
        let fresh = cached.profile().cloned();
        fresh.ok_or(held.moment)
    }

    /// Stores settings that were read; if the subject has changed since the read began, only as the last good ones. The
    /// caller gets them in both cases, so the settings that it used remain the fallback if the next read fails.
    fn end(&self, subject: &Subject, began: u64, stored: StoredSettings) -> RedisResult<Arc<Profile>> {
        let mut held = self.lock();
        held.apply_changes(&self.changes);
        let at = held.cache.find(subject.as_str().as_bytes());
        held.cache.follow(&self.plans);
        let (profile, unreadable) = held.cache.interpret(&self.plans, subject, at, stored)?;
        let Some(at) = at else { return Ok(profile) };
        let Marks { changed, read } = held.cache.subject(at).extra;
        if held.all_changed <= began && changed <= began {
            warn(subject, &unreadable);
            held.cache.keep(at, Arc::clone(&profile));
        } else if read <= began {
            held.cache.remember(at, Arc::clone(&profile));
        }
        held.cache.subject_mut(at).extra.read = read.max(began);
        Ok(profile)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HeldSettings> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldSettings {
    fn apply_changes(&mut self, changes: &ChangeFeed) {
        match changes.take_changes() {
            SubjectChanges::Of(subjects) if subjects.is_empty() => {}
            SubjectChanges::Of(subjects) => {
                self.moment += 1;
                for subject in subjects {
                    self.cache.changed(&subject);
                    if let Some(at) = self.cache.find(&subject) {
                        self.cache.subject_mut(at).extra.changed = self.moment;
                    }
                }
            }
            SubjectChanges::Any => {
                self.moment += 1;
                self.all_changed = self.moment;
                self.cache.changed_all();
            }
        }
    }

    /// Adds a subject that is new or was evicted. An earlier read of it may be outdated, so it counts as changed.
    fn add(&mut self, subject: &Subject) -> u32 {
        self.cache.shrink(u64::MAX);
        self.moment += 1;
        let at = self.cache.add(subject.clone());
        self.cache.subject_mut(at).extra.changed = self.moment;
        at
    }
}

fn warn(subject: &Subject, unreadable: &[FieldError]) {
    for bad in unreadable {
        counter!(meters::SUBJECTS_UNREADABLE).increment(1);
        tracing::warn!(
            %subject, field = bad.field, why = bad.why,
            "a subject's setting can't be read: checks use the last good value; if there is none, check.on_error decides"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::AddedUnits;
    use crate::types::Metric;

    struct Held {
        lookup: SettingsLookup,
        changes: ChangeFeed,
        alice: Subject,
    }

    fn held(cache_entries: usize) -> Held {
        let changes = ChangeFeed::default();
        changes.listening(true);
        let lookup = SettingsLookup::new(Keys::new("usage"), Plans::without_limits(), cache_entries, changes.clone());
        Held { lookup, changes, alice: "alice".parse().expect("legal") }
    }

    impl Held {
        fn begin(&self) -> Option<u64> {
            self.lookup.begin(&self.alice).err()
        }

        /// Simulates a reply with this limit to a read that began then; returns the limit that the caller gets.
        fn end(&self, began: u64, limit: &str) -> Option<u64> {
            let fields = Ok(vec![(b"limit:requests".to_vec(), limit.as_bytes().to_vec())]);
            let stored = StoredSettings { fields, added: Ok(AddedUnits::default()) };
            let profile = self.lookup.end(&self.alice, began, stored).expect("no error");
            profile.has_known_limits().then(|| profile.limits_of(&Metric::default())[0].units.get())
        }

        fn fresh(&self) -> Option<u64> {
            match self.lookup.begin(&self.alice) {
                Ok(profile) => profile.limits_of(&Metric::default()).first().map(|limit| limit.units.get()),
                Err(_) => None,
            }
        }

        fn change(&self, subject: &str) {
            self.changes.note(SubjectChanges::Of(vec![subject.as_bytes().to_vec()]));
        }
    }

    /// Without the cache each check would cost another round trip.
    #[test]
    fn what_was_read_is_kept_until_the_subject_changes() {
        let held = held(10);
        let began = held.begin().expect("nothing is held");
        assert_eq!(held.end(began, "7"), Some(7));
        assert_eq!(held.fresh(), Some(7));
        held.change("bob");
        assert_eq!(held.fresh(), Some(7), "somebody else's change");
        held.change("alice");
        assert_eq!(held.fresh(), None);
    }

    /// A reply that was on its way when the subject changed must not be kept.
    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        for noticed_by_another in [false, true] {
            let held = held(10);
            let began = held.begin().expect("nothing is held");
            held.change("alice");
            if noticed_by_another {
                held.begin().expect("nothing is held");
            }
            assert_eq!(held.end(began, "7"), Some(7), "the caller gets what there was");
            assert_eq!(held.fresh(), None);
            let again = held.begin().expect("nothing is held");
            held.end(again, "8");
            assert_eq!(held.fresh(), Some(8));
        }
    }

    /// A subject that was evicted and added again has lost its changes: an earlier read may be outdated.
    #[test]
    fn what_was_read_before_a_subject_was_let_go_is_not_kept() {
        let held = held(1);
        let began = held.begin().expect("nothing is held");
        held.lookup.lock().cache.shrink(u64::MAX);
        for name in ["b", "c", "d"] {
            let _ = held.lookup.begin(&name.parse().expect("legal"));
        }
        assert!(held.lookup.lock().cache.find(b"alice").is_none(), "it was let go");
        held.change("alice");
        held.begin().expect("nothing is held");
        held.end(began, "7");
        assert_eq!(held.fresh(), None);
    }

    /// While nobody listens for changes, nothing is known to be fresh.
    #[test]
    fn nothing_is_kept_while_nobody_listens() {
        let held = held(10);
        held.changes.listening(false);
        let began = held.begin().expect("nothing is held");
        assert_eq!(held.end(began, "7"), Some(7));
        assert_eq!(held.fresh(), None);
    }

    /// A limit that was returned but never cached as fresh must remain the fallback if the next read fails.
    #[test]
    fn what_was_read_while_nobody_listened_is_a_last_good_value() {
        let held = held(10);
        held.changes.listening(false);
        let early = held.begin().expect("nothing is held");
        let late = held.begin().expect("nothing is held");
        assert_eq!(held.end(late, "8"), Some(8));
        assert_eq!(held.end(early, "7"), Some(7));
        let again = held.begin().expect("nothing is fresh");
        assert_eq!(held.end(again, "many"), Some(8), "not what an earlier reading brought later");
    }

    /// While nobody listens for changes, each check finds that all subjects may have changed: walking through the whole
    /// table under the lock would slow down thousands of checks per second.
    #[test]
    fn a_check_costs_the_same_however_many_subjects_are_held() {
        const SUBJECTS: usize = 100_000;
        const CHECKS: u32 = 2000;
        let held = held(SUBJECTS);
        let began = Instant::now();
        for n in 0..SUBJECTS {
            let _ = held.lookup.begin(&format!("s{n}").parse().expect("legal"));
        }
        let additions = began.elapsed();
        held.changes.listening(false);
        let began = Instant::now();
        for _ in 0..CHECKS {
            let began = held.begin().expect("nothing is fresh");
            held.end(began, "7");
        }
        // Fifty times fewer walks; a walk on every check would take much longer.
        let checks = began.elapsed();
        assert!(checks < additions, "{CHECKS} checks took {checks:?}, {SUBJECTS} additions {additions:?}");
    }

    /// A typing error must not raise or drop a limit: the last good limit holds.
    #[test]
    fn an_unreadable_field_keeps_its_last_good_value() {
        let held = held(10);
        let began = held.begin().expect("nothing is held");
        held.end(began, "7");
        held.change("alice");
        let again = held.begin().expect("it has changed");
        assert_eq!(held.end(again, "many"), Some(7));
    }
}
