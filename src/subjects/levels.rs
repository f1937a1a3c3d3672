//! The levels of a subject with their settings: its own, and those of the levels above it.

use std::sync::Arc;

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::types::{Keys, Subject};

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

/// The stored fields of a subject and of the levels above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLevels(Vec<(Subject, Vec<SubjectField>)>);

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
        let mut levels = vec![subject.clone()];
        levels.extend(keys.separator().ancestors(subject));
        let mut pipeline = redis::pipe();
        for level in &levels {
            pipeline.cmd("HGETALL").arg(keys.subject(level));
        }
        let fields: Vec<Vec<SubjectField>> = client.pipe(&pipeline).await?;
        Ok(Self(levels.into_iter().zip(fields).collect()))
    }

    /// The fields of the subject itself, without the levels above it.
    pub fn of_subject(subject: Subject, fields: Vec<SubjectField>) -> Self {
        Self(vec![(subject, fields)])
    }

    /// The levels with their fields: the subject, then the levels above it.
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &[SubjectField])> {
        self.0.iter().map(|(subject, fields)| (subject, fields.as_slice()))
    }

    /// The subject's own fields.
    pub fn fields(&self) -> &[SubjectField] {
        self.0.first().map_or(&[], |(_, fields)| fields)
    }

    /// The settings of the subject and of the levels above it, in this order, and the unreadable fields of each.
    pub fn settings(&self, plans: &Plans) -> (Vec<SubjectLevel>, Vec<(Subject, FieldError)>) {
        let mut unreadable = Vec::new();
        let own = self.0.iter().map(|(subject, fields)| {
            let depth = plans.separator().depth(subject.as_str());
            let (profile, errors) = Profile::read(fields, plans, depth, None);
            unreadable.extend(errors.into_iter().map(|error| (subject.clone(), error)));
            SubjectLevel { subject: subject.clone(), profile: Arc::new(profile) }
        });
        let own = own.collect();
        (inherit(own), unreadable)
    }
}
