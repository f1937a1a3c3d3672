//! The levels of a subject with their settings: its own, and those of the levels above it.

use std::sync::Arc;

use redis::{FromRedisValue, RedisResult, Value};

use crate::redis_client::RedisClient;
use crate::types::{Keys, Subject};

use super::added_units::AddedUnits;
use super::cache::{added_from, ask_added};
use super::plans::Plans;
use super::profile::Profile;
use super::record::{FieldError, SubjectField};

/// A level of a subject, with its settings and what they inherit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectLevel {
    /// The level's name, which is a subject too.
    pub subject: Subject,
    /// Its settings.
    pub profile: Arc<Profile>,
}

/// The stored settings of a subject and of the levels above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLevels(Vec<StoredLevel>);

/// The stored settings of a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLevel {
    /// The level's name.
    pub subject: Subject,
    /// The fields of its hash.
    pub fields: Vec<SubjectField>,
    /// What its grants add to the limits.
    pub added: Result<AddedUnits, FieldError>,
}

/// Lets each level inherit from the one above it. `levels` are the subject and the levels above it, in this order, with
/// their own settings.
pub fn inherit(mut levels: Vec<SubjectLevel>) -> Vec<SubjectLevel> {
    let mut above: Option<Arc<Profile>> = None;
    for level in levels.iter_mut().rev() {
        if let Some(above) = &above {
            level.profile = Arc::new(level.profile.below(above));
        }
        above = Some(Arc::clone(&level.profile));
    }
    levels
}

impl StoredLevels {
    /// Reads the fields of all levels, with one request.
    ///
    /// # Errors
    ///
    /// The error of Redis; also if the key of a level is not a hash.
    pub async fn read(client: &RedisClient, keys: &Keys, subject: &Subject) -> RedisResult<Self> {
        Self::read_each(client, keys, &[subject]).await?.pop().expect("one for each subject")
    }

    /// The same for several subjects, with one request. Each has its own error if the key of a level is not a hash.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn read_each(
        client: &RedisClient,
        keys: &Keys,
        subjects: &[&Subject],
    ) -> RedisResult<Vec<RedisResult<Self>>> {
        if subjects.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        let mut levels = Vec::with_capacity(subjects.len());
        for subject in subjects {
            let mut of_subject = vec![(*subject).clone()];
            of_subject.extend(keys.separator().ancestors(subject));
            for level in &of_subject {
                pipeline.cmd("HGETALL").arg(keys.subject(level));
                ask_added(&mut pipeline, keys, level);
            }
            levels.push(of_subject);
        }
        let replies: Vec<RedisResult<Value>> = client.pipe(&pipeline).await?;
        let mut replies = replies.into_iter();
        let mut level = |subject| {
            let (fields, added) = (replies.next().unwrap_or(Ok(Value::Nil)), added_from(replies.next()));
            Ok(StoredLevel { subject, fields: Vec::from_redis_value(fields?)?, added: added? })
        };
        let mut read = |levels: Vec<Subject>| {
            // All replies are taken, also behind an error.
            let levels: Vec<RedisResult<StoredLevel>> = levels.into_iter().map(&mut level).collect();
            Ok(Self(levels.into_iter().collect::<RedisResult<_>>()?))
        };
        Ok(levels.into_iter().map(&mut read).collect())
    }

    /// The settings of the subject itself, without the levels above it.
    pub fn of_subject(stored: StoredLevel) -> Self {
        Self(vec![stored])
    }

    /// The levels with their fields: the subject, then the levels above it.
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &[SubjectField])> {
        self.0.iter().map(|level| (&level.subject, level.fields.as_slice()))
    }

    /// The subject's own fields.
    pub fn fields(&self) -> &[SubjectField] {
        self.0.first().map_or(&[], |level| &level.fields)
    }

    /// The settings of the subject itself, whose unreadable fields count as absent.
    pub fn own_profile(&self, plans: &Plans) -> Arc<Profile> {
        let (levels, _) = self.settings(plans);
        levels.into_iter().next().expect("the subject is a level of itself").profile
    }

    /// The settings of the subject and of the levels above it, in this order, and the unreadable fields of each.
    pub fn settings(&self, plans: &Plans) -> (Vec<SubjectLevel>, Vec<(Subject, FieldError)>) {
        let mut unreadable = Vec::new();
        let own = self.0.iter().map(|StoredLevel { subject, fields, added }| {
            let depth = plans.separator().depth(subject.as_str());
            let (mut profile, mut errors) = Profile::read(fields, plans, depth, None);
            errors.extend(profile.set_added(added.clone(), None).err());
            unreadable.extend(errors.into_iter().map(|error| (subject.clone(), error)));
            SubjectLevel { subject: subject.clone(), profile: Arc::new(profile) }
        });
        let own = own.collect();
        (inherit(own), unreadable)
    }
}
