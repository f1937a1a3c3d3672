//! Cached settings of subjects: a bounded table from subject to settings.
//!
//! The worker that reads the stream owns one without a lock: it applies invalidations between batches, and drops a
//! setting that was read before a change, because it looks at changes after reading ([`super::watch`]). For concurrent
//! callers there is [`super::lookup`].

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use redis::{FromRedisValue, Pipeline, RedisResult, Value};

use crate::redis_client::{ErrorKind, error_kind};
use crate::types::subject::LEVELS_MAX;
use crate::types::{Keys, Subject, keys};

use super::added_units::{ADDED_FIELD, AddedUnits};
use super::plans::Plans;
use super::profile::Profile;
use super::record::{FieldError, SubjectField};

/// A bounded table from subject to settings, with an `Extra` per subject for the owner of the table.
#[derive(Debug)]
pub struct SettingsCache<Extra> {
    table: HashTable<u32>,
    hasher: RandomState,
    subjects: Vec<CachedSubject<Extra>>,
    /// Free positions.
    vacant: Vec<u32>,
    entries_max: usize,
    /// One shared profile of each level for all subjects without settings in Redis, which are the majority.
    unknown: [Arc<Profile>; LEVELS_MAX],
    /// Whether any subject may be fresh.
    any_fresh: bool,
    /// Whether [`Self::ask`] also reads what grants add to the limits.
    asks_grants: bool,
}

/// One subject.
#[derive(Debug)]
pub struct CachedSubject<Extra> {
    /// The subject.
    pub subject: Subject,
    /// CRC-16 of the subject modulo 256.
    pub bucket: u8,
    /// Time of its last use, in the caller's units.
    pub used: u64,
    /// The value of the owner of the table.
    pub extra: Extra,
    profile: Held,
}

#[derive(Debug)]
enum Held {
    /// Not read yet.
    Nothing,
    /// The same as in Redis, according to the notifications so far.
    Fresh(Arc<Profile>),
    /// Changed since; kept as the last good value.
    Changed(Arc<Profile>),
}

impl<Extra> CachedSubject<Extra> {
    /// The settings, unless they must be read first.
    pub const fn profile(&self) -> Option<&Arc<Profile>> {
        match &self.profile {
            Held::Fresh(profile) => Some(profile),
            Held::Nothing | Held::Changed(_) => None,
        }
    }
}

impl<Extra: Default> SettingsCache<Extra> {
    /// An empty table for about `entries_max` subjects.
    pub fn new(entries_max: usize, plans: &Plans) -> Self {
        Self {
            table: HashTable::new(),
            hasher: RandomState::default(),
            subjects: Vec::new(),
            vacant: Vec::new(),
            entries_max: entries_max.max(1),
            unknown: unknown_of(plans),
            any_fresh: false,
            asks_grants: false,
        }
    }

    /// From now on also reads what grants add to the limits. The settings that were read without it are read again.
    pub fn ask_grants(&mut self) {
        if !std::mem::replace(&mut self.asks_grants, true) {
            self.changed_all();
        }
    }

    /// The position of a cached subject.
    pub fn find(&self, subject: &[u8]) -> Option<u32> {
        let is = |at: &u32| self.subjects[*at as usize].subject.as_str().as_bytes() == subject;
        self.table.find(self.hasher.hash_one(subject), is).copied()
    }

    /// Adds a subject that is not cached; its settings are still to be read.
    pub fn add(&mut self, subject: Subject) -> u32 {
        let bucket = keys::bucket(subject.as_str());
        let cached = CachedSubject { subject, bucket, used: 0, extra: Extra::default(), profile: Held::Nothing };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.subjects[at as usize] = cached;
                at
            }
            None => {
                self.subjects.push(cached);
                u32::try_from(self.subjects.len() - 1).expect("fewer subjects than u32 counts")
            }
        };
        self.index(at);
        at
    }

    fn index(&mut self, at: u32) {
        let (hasher, subjects) = (&self.hasher, &self.subjects);
        let hash_of = |at: &u32| hasher.hash_one(subjects[*at as usize].subject.as_str().as_bytes());
        self.table.insert_unique(hash_of(&at), at, hash_of);
    }

    /// The subject at a position from [`Self::find`] or [`Self::add`].
    pub fn subject(&self, at: u32) -> &CachedSubject<Extra> {
        &self.subjects[at as usize]
    }

    /// The same, to change its extra value.
    pub fn subject_mut(&mut self, at: u32) -> &mut CachedSubject<Extra> {
        &mut self.subjects[at as usize]
    }

    /// Number of cached subjects.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Marks a subject as changed: its settings are read again before their next use.
    pub fn changed(&mut self, subject: &[u8]) {
        if let Some(at) = self.find(subject) {
            change(&mut self.subjects[at as usize].profile);
        }
    }

    /// Marks all subjects as changed. Walks through the table only if a subject became fresh since the last call,
    /// because this is called on every lookup while nobody listens for changes.
    pub fn changed_all(&mut self) {
        if !std::mem::take(&mut self.any_fresh) {
            return;
        }
        self.subjects.iter_mut().for_each(|cached| change(&mut cached.profile));
    }

    /// Adds the commands that read the settings of these subjects.
    pub fn ask(&self, pipeline: &mut Pipeline, keys: &Keys, which: &[u32]) {
        for at in which {
            let subject = &self.subject(*at).subject;
            pipeline.cmd("HGETALL").arg(keys.subject(subject));
            if self.asks_grants {
                ask_added(pipeline, keys, subject);
            }
        }
    }

    /// Stores the settings of these subjects from the replies to [`Self::ask`]. Returns the unreadable fields, for the
    /// log.
    ///
    /// # Errors
    ///
    /// The error of Redis; a subject's key of another type is reported as unreadable instead.
    pub fn apply_replies(
        &mut self,
        plans: &Plans,
        which: &[u32],
        replies: &mut impl Iterator<Item = RedisResult<Value>>,
    ) -> RedisResult<Vec<(Subject, FieldError)>> {
        self.follow(plans);
        let mut unreadable = Vec::new();
        for at in which {
            let Some(fields) = replies.next() else { break };
            let fields = fields.and_then(|value| Ok(Vec::<SubjectField>::from_redis_value(value)?));
            let added = if self.asks_grants { added_from(replies.next())? } else { Ok(AddedUnits::default()) };
            let subject = &self.subject(*at).subject;
            let (profile, errors) = self.interpret(plans, subject, Some(*at), StoredSettings { fields, added })?;
            unreadable.extend(errors.into_iter().map(|bad| (subject.clone(), bad)));
            self.keep(*at, profile);
        }
        Ok(unreadable)
    }

    /// Call it before replies are interpreted, because the plans may have been replaced.
    pub fn follow(&mut self, plans: &Plans) {
        if (0..).zip(&self.unknown).any(|(depth, unknown)| !unknown.has_plan(&plans.default_plan(depth))) {
            self.unknown = unknown_of(plans);
        }
    }

    /// Stores these settings as fresh.
    pub fn keep(&mut self, at: u32, profile: Arc<Profile>) {
        self.subjects[at as usize].profile = Held::Fresh(profile);
        self.any_fresh = true;
    }

    /// Stores these settings as the last good ones, unless fresh ones are cached; they are read again before their next
    /// use.
    pub fn remember(&mut self, at: u32, profile: Arc<Profile>) {
        let held = &mut self.subjects[at as usize].profile;
        if !matches!(held, Held::Fresh(_)) {
            *held = Held::Changed(profile);
        }
    }

    /// The stored settings of a subject, with those at `at` as the last good ones, and the unreadable fields. Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The error of the reply, except that the key has another type.
    pub fn interpret(
        &self,
        plans: &Plans,
        subject: &Subject,
        at: Option<u32>,
        StoredSettings { fields, added }: StoredSettings,
    ) -> RedisResult<(Arc<Profile>, Vec<FieldError>)> {
        let last = match at.map(|at| &self.subjects[at as usize].profile) {
            Some(Held::Fresh(profile) | Held::Changed(profile)) => Some(Arc::clone(profile)),
            Some(Held::Nothing) | None => None,
        };
        let depth = plans.separator().depth(subject.as_str()).min(LEVELS_MAX - 1);
        let has_grants = !matches!(&added, Ok(added) if added.is_empty());
        let (profile, mut unreadable) = match fields {
            Ok(fields) if fields.is_empty() && !has_grants => {
                return Ok((Arc::clone(&self.unknown[depth]), Vec::new()));
            }
            Ok(fields) => Profile::read(&fields, plans, depth, last.as_deref()),
            Err(error) if error_kind(&error) == ErrorKind::WrongType => {
                let why = FieldError { field: "key".into(), why: "is not a hash".into() };
                let last = last.as_deref().cloned();
                (last.unwrap_or_else(|| Profile::unreadable(plans, depth)), vec![why])
            }
            Err(error) => return Err(error),
        };
        let mut profile = profile;
        unreadable.extend(profile.set_added(added, last.as_deref()).err());
        Ok((Arc::new(profile), unreadable))
    }

    /// Approximate maximum number of cached subjects.
    pub const fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Forgets everything but the settings: what the reader kept beside them, and when it used them.
    pub fn forget_extras(&mut self) {
        self.subjects.iter_mut().for_each(|cached| (cached.used, cached.extra) = (0, Extra::default()));
    }

    /// If the table exceeds its bound, evicts the least recently used half, except subjects used since
    /// `keep_used_since`. Returns the freed positions; other positions stay valid.
    pub fn shrink(&mut self, keep_used_since: u64) -> Vec<u32> {
        if self.len() <= self.entries_max {
            return Vec::new();
        }
        let positions = 0..u32::try_from(self.subjects.len()).expect("fewer subjects than u32 counts");
        let free: std::collections::HashSet<u32, RandomState> = self.vacant.iter().copied().collect();
        let held: Vec<u32> = positions.filter(|at| !free.contains(at)).collect();
        let mut ages: Vec<u64> = held.iter().map(|at| self.subjects[*at as usize].used).collect();
        let keep = self.entries_max / 2;
        let (_, oldest_kept, _) = ages.select_nth_unstable_by(keep, |a, b| b.cmp(a));
        // Only strictly younger ones are kept, so that subjects of the same age can't keep the table above its bound.
        let oldest_kept = (*oldest_kept).min(keep_used_since.saturating_sub(1));
        let gone: Vec<u32> = held.into_iter().filter(|at| self.subjects[*at as usize].used <= oldest_kept).collect();
        for at in &gone {
            self.vacate(*at);
        }
        gone
    }

    fn vacate(&mut self, at: u32) {
        let cached = &mut self.subjects[at as usize];
        let hash = self.hasher.hash_one(cached.subject.as_str().as_bytes());
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        cached.extra = Extra::default();
        cached.profile = Held::Nothing;
        self.vacant.push(at);
    }
}

/// What Redis holds of the settings of a subject.
#[derive(Debug)]
pub struct StoredSettings {
    /// The reply to HGETALL of its hash.
    pub fields: RedisResult<Vec<SubjectField>>,
    /// What its grants add to the limits.
    pub added: Result<AddedUnits, FieldError>,
}

/// Asks what grants add to the limits of a subject.
pub fn ask_added(pipeline: &mut Pipeline, keys: &Keys, subject: &Subject) {
    pipeline.cmd("HGET").arg(keys.grants(subject)).arg(ADDED_FIELD);
}

/// The reply to [`ask_added`].
///
/// # Errors
///
/// The error of Redis, except that the key has another type: then the grants are unreadable.
pub fn added_from(reply: Option<RedisResult<Value>>) -> RedisResult<Result<AddedUnits, FieldError>> {
    match reply.unwrap_or(Ok(Value::Nil)) {
        Ok(value) => Ok(AddedUnits::from_stored(Option::<Vec<u8>>::from_redis_value(value)?.as_deref())),
        Err(error) if error_kind(&error) == ErrorKind::WrongType => Ok(Err(FieldError::unreadable_grants())),
        Err(error) => Err(error),
    }
}

fn unknown_of(plans: &Plans) -> [Arc<Profile>; LEVELS_MAX] {
    std::array::from_fn(|depth| Arc::new(Profile::of_unknown(plans, depth)))
}

fn change(held: &mut Held) {
    if let Held::Fresh(profile) = held {
        *held = Held::Changed(Arc::clone(profile));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries_max: usize) -> SettingsCache<()> {
        SettingsCache::new(entries_max, &Plans::without_limits())
    }

    /// Endless new subjects must not exhaust the memory.
    #[test]
    fn the_table_stays_within_its_bound_and_keeps_what_is_in_use() {
        let mut cache = cache(100);
        for n in 0..1000_u64 {
            let at = cache.add(Subject::parse(format!("s{n}").as_bytes()).expect("legal"));
            cache.subject_mut(at).used = n;
            if let Some(busy) = cache.find(b"s0") {
                cache.subject_mut(busy).used = n + 1;
            }
            cache.shrink(u64::MAX);
            assert!(cache.len() <= 100 && cache.subjects.len() <= 101);
        }
        assert!(cache.find(b"s0").is_some(), "used all the time");
        assert!(cache.find(b"s999").is_some());
        assert!(cache.find(b"s1").is_none());
    }

    /// The batch under construction refers to its subjects by position.
    #[test]
    fn subjects_in_use_are_kept_even_above_the_bound() {
        let mut cache = cache(2);
        for n in 0..10_u64 {
            let at = cache.add(Subject::parse(format!("s{n}").as_bytes()).expect("legal"));
            cache.subject_mut(at).used = n;
        }
        assert_eq!(cache.shrink(4), [0, 1, 2, 3]);
        assert_eq!((cache.len(), cache.find(b"s4")), (6, Some(4)));
        assert_eq!(cache.add(Subject::parse(b"new").expect("legal")), 3, "a position that is free again");
    }
}
