//! What is muted: subjects, metrics of them, and contacts.

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::subject_list::{self, SubjectCursor};
use super::{Cursor, Observer, SubjectSlice, SubjectView};
use crate::types::{ContactId, Metric, Mute};

/// Number of subjects whose settings are read for one slice.
const SUBJECTS_READ: usize = 1_000;

/// The mutes among one slice of the subjects with settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "MuteList")]
pub struct MutesView {
    /// The earliest end first, within the slice; those without an end last.
    pub mutes: Vec<MuteView>,
    /// Number of subjects in the slice.
    pub examined: usize,
    /// What `after` takes to get the next slice; null at the end.
    pub next: Option<String>,
}

/// A mute, and what it mutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ListedMute")]
pub struct MuteView {
    pub subject: String,
    /// The only muted metric of the subject; null if the mute is of all, or of a contact.
    pub metric: Option<Metric>,
    /// The muted contact of the subject; null if the mute is of the subject or of a metric.
    pub contact_id: Option<ContactId>,
    #[serde(flatten)]
    pub mute: Mute,
}

impl Observer {
    /// Reads the mutes in the next slice of subjects, which may have none.
    pub async fn mutes(&self, from: SubjectCursor) -> RedisResult<MutesView> {
        let SubjectSlice { subjects, next } =
            subject_list::read(self.partitions.first(), &self.plans, from, SUBJECTS_READ).await?;
        let mutes = in_order_of_end(subjects.iter().flat_map(mutes_of).collect());
        Ok(MutesView { mutes, examined: subjects.len(), next: next.map(|next| Cursor(next).to_string()) })
    }
}

/// The earliest end first; those without an end last.
pub(super) fn in_order_of_end(mut mutes: Vec<MuteView>) -> Vec<MuteView> {
    mutes.sort_by_cached_key(|muted| (muted.mute.until.is_none(), muted.mute.until, muted.subject.clone()));
    mutes
}

/// The mutes of a subject, its metrics and its contacts.
pub(super) fn mutes_of(view: &SubjectView) -> Vec<MuteView> {
    let of = |metric, contact_id, mute: &Mute| MuteView {
        subject: view.subject.clone(),
        metric,
        contact_id,
        mute: mute.clone(),
    };
    let subject = view.mute.iter().map(|mute| of(None, None, mute));
    let metrics = view.metric_mutes.iter().map(|(metric, mute)| of(Some(metric.clone()), None, mute));
    let contacts = view.contacts.iter().filter_map(|contact| Some((contact, contact.mute.as_ref()?)));
    let contacts = contacts.map(|(contact, mute)| of(None, Some(contact.id.clone()), mute));
    subject.chain(metrics).chain(contacts).collect()
}
