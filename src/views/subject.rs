//! What is set for a subject.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::channels::check_contact;
use crate::contacts::array::{CONTACTS, UnreadableContact};
use crate::contacts::{Contact, ContactArray, masked_contact};
use crate::redis_client::Partition;
use crate::subjects::record::{NAME, PLAN, ParsedRecord, SubjectField, limit_field, parse_name};
use crate::subjects::{AddedUnits, FieldError, Plans, StoredLevels, SubjectLevel, SubjectMutes, SubjectRecord};
use crate::types::text::escaped_bytes;
use crate::types::{
    BillingDay, BillingMonth, BillingStart, DisplayName, LimitUnits, Limits, Locale, Metric, Mute, Period, Subject,
    Threshold, UnixMs,
};
use crate::zones::Zone;

/// Reads the hash of a subject; no fields where nothing is set.
pub async fn read_fields(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<Vec<SubjectField>> {
    client.query(redis::cmd("HGETALL").arg(keys.subject(subject))).await
}

/// What is set for a subject itself. What is not set comes from its plan, the default plan and the fallback contacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Subject")]
pub struct SubjectView {
    /// The subject; bytes that are not text are written as `\xNN`.
    pub subject: String,
    /// The plan's name, also of one that is not configured.
    pub plan: Option<String>,
    /// An IANA time zone.
    pub timezone: Option<String>,
    /// The day of the month on which its months begin.
    pub billing_day: Option<BillingDay>,
    /// The month in which its years begin, and from which its quarters are counted.
    pub billing_month: Option<BillingMonth>,
    /// Those of a metric replace all that the plan has for it. A number is a limit a day.
    pub limits: BTreeMap<Metric, Limits>,
    /// Thresholds that replace the plan's, ascending.
    pub thresholds: Option<Vec<Threshold>>,
    /// A language tag (BCP 47): the language of its mails.
    pub locale: Option<Locale>,
    /// Its name in texts, beside the id.
    pub name: Option<DisplayName>,
    pub contacts: Vec<Contact>,
    /// The mute of the subject; absent if it is not muted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
    /// Mutes of its metrics; absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metric_mutes: BTreeMap<Metric, Mute>,
    /// The unreadable settings and unusable contacts, without a replacement; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub unreadable: Vec<FieldError>,
}

impl SubjectView {
    /// Reads the hash of a subject as it is `now`: mutes that have ended are left out.
    pub fn read(subject: &[u8], fields: &[SubjectField], plans: &Plans, now: UnixMs) -> Self {
        let ParsedRecord { record, errors: mut unreadable } =
            SubjectRecord::parse(fields.iter().map(|(name, value)| (name, value)));
        if let Some(plan) = record.plan.as_deref().filter(|plan| plans.get(plan).is_none()) {
            unreadable.push(FieldError::no_such_plan(plan));
        }
        let (mutes, unreadable_mutes) = SubjectMutes::read(fields.iter().map(|(name, value)| (name, value)), now);
        unreadable.extend(unreadable_mutes);
        let of_contacts = |why: String| FieldError { field: CONTACTS.to_owned(), why };
        let stored = fields.iter().find(|(name, _)| name == CONTACTS.as_bytes());
        let array = ContactArray::parse(stored.map_or(&[], |(_, value)| value)).unwrap_or_else(|error| {
            unreadable.push(of_contacts(error.to_string()));
            ContactArray::default()
        });
        for UnreadableContact { id, why } in array.read().filter_map(Result::err) {
            unreadable.push(of_contacts(id.map_or(why.clone(), |id| format!("{id}: {why}"))));
        }
        let contacts: Vec<Contact> = array.contacts().into_iter().map(|stored| stored.contact).collect();
        let faults = contacts.iter().filter_map(|contact| Some((contact, check_contact(contact).err()?)));
        unreadable.extend(faults.map(|(contact, fault)| of_contacts(format!("{}: {fault}", contact.id))));
        let contacts = contacts.iter().map(|contact| masked_contact(contact).shown_at(now)).collect();
        let SubjectMutes { subject: mute, metrics: metric_mutes } = mutes;
        let SubjectRecord { plan, timezone, billing_day, billing_month, limits, thresholds, locale, name } = record;
        Self {
            subject: escaped_bytes(subject),
            plan,
            timezone,
            billing_day,
            billing_month,
            limits,
            thresholds,
            locale,
            name,
            contacts,
            mute,
            metric_mutes,
            unreadable,
        }
    }

    /// A subject whose key is no hash.
    pub fn no_hash(subject: &[u8], plans: &Plans) -> Self {
        let error = FieldError { field: "*".to_owned(), why: "the key holds something that is no hash".to_owned() };
        Self { unreadable: vec![error], ..Self::read(subject, &[], plans, UnixMs::default()) }
    }

    /// Whether it is [`Self::no_hash`].
    pub fn is_no_hash(&self) -> bool {
        self.unreadable.iter().any(|error| error.field == "*")
    }
}

/// The readable settings of a subject's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectSettings {
    /// The plan's name, also of one that is not configured.
    pub plan: String,
    /// The zone of its days and longer periods.
    pub zone: Zone,
    /// The date on which its months, quarters and years begin.
    pub billing: BillingStart,
    /// The limits without grants.
    pub limits: BTreeMap<Metric, Limits>,
    /// What grants add to them.
    pub added: Arc<AddedUnits>,
    /// The display name.
    pub name: Option<DisplayName>,
    /// The thresholds of its limits.
    pub thresholds: Vec<Threshold>,
    pub unreadable: Vec<FieldError>,
}

impl SubjectSettings {
    /// The limit of a period, with what grants add to it.
    pub fn limit_of(&self, metric: &Metric, period: Period) -> Option<LimitUnits> {
        let base = self.limits.get(metric)?.limit_of(period.window())?;
        Some(base.plus(self.added.units_of(metric, period)))
    }

    /// Reads the hash. A limit that can't be known is left out: neither the default plan's nor the plan's own stands
    /// in for it.
    pub fn read(stored: &StoredLevels, plans: &Plans) -> Self {
        let (levels, unreadable) = stored.settings(plans);
        let SubjectLevel { subject, profile } = levels.into_iter().next().expect("the subject is a level of itself");
        let own = unreadable.into_iter().filter(|(level, _)| *level == subject);
        let (fields, unreadable) = (stored.fields(), own.map(|(_, error)| error).collect::<Vec<_>>());
        let (mut plan, mut limits) = (profile.plan().to_string(), profile.limits());
        let is_unreadable = |field: &str| unreadable.iter().any(|error| error.field == field);
        if is_unreadable(PLAN) {
            let stored = fields.iter().find(|(name, _)| name == PLAN.as_bytes());
            plan = stored.map(|(_, value)| escaped_bytes(value)).unwrap_or_default();
            limits = SubjectRecord::parse(fields.iter().map(|(name, value)| (name, value))).record.limits;
        }
        limits.retain(|metric, _| !is_unreadable(&limit_field(metric)));
        let added = Arc::clone(profile.added());
        let name = fields.iter().find(|(field, _)| field == NAME.as_bytes());
        let name = name.and_then(|(_, name)| parse_name(name).ok());
        let (zone, billing, thresholds) = (profile.zone(), profile.billing(), profile.thresholds().to_vec());
        Self { plan, zone, billing, limits, added, name, thresholds, unreadable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::StoredLevel;
    use crate::subjects::config::PlanConfig;

    fn settings(pairs: &[(&str, &str)]) -> (SubjectSettings, usize) {
        let limits = [("requests", "600/hour 5000"), ("tokens", "9")];
        let limits = limits.map(|(metric, limits)| (metric.parse().expect("legal"), limits.parse().expect("legal")));
        let plan = PlanConfig { limits: limits.into(), thresholds: Vec::new(), ..PlanConfig::default() };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("free is there");
        let fields: Vec<SubjectField> =
            pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let (subject, added) = ("alice".parse().expect("legal"), Ok(AddedUnits::default()));
        let stored = StoredLevels::of_subject(StoredLevel { subject, fields, added });
        let settings = SubjectSettings::read(&stored, &plans);
        let errors = settings.unreadable.len();
        (settings, errors)
    }

    fn limits(settings: &SubjectSettings) -> Vec<String> {
        settings.limits.iter().map(|(metric, limit)| format!("{metric}={limit}")).collect()
    }

    /// A percentage of a limit that does not hold would calm or alarm somebody for nothing.
    #[test]
    fn a_limit_that_cannot_be_read_is_not_replaced_by_another() {
        let (own, errors) = settings(&[("limit:requests", "7")]);
        assert_eq!((limits(&own), errors), (vec!["requests=7".to_owned(), "tokens=9".to_owned()], 0));
        let (broken, errors) = settings(&[("limit:requests", "lots")]);
        assert_eq!((limits(&broken), errors), (vec!["tokens=9".to_owned()], 1));
        let (windows, errors) = settings(&[("limit:tokens", "7/day 9/day")]);
        assert_eq!((limits(&windows), errors), (vec!["requests=600/hour 5000/day".to_owned()], 1));
        let (gold, errors) = settings(&[("plan", "gold"), ("limit:tokens", "3"), ("limit:requests", "0")]);
        assert_eq!((gold.plan.as_str(), limits(&gold), errors), ("gold", vec!["tokens=3".to_owned()], 2));
    }
}
