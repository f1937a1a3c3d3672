//! A change of one subject's hash: what `set` names, and what a line of an import names.

use std::collections::BTreeMap;

use clap::Args;

use crate::channels;
use crate::cli::contact_specs::{ContactSpecs, GeneratedSecret};
use crate::config::{Config, nearest};
use crate::contacts::array::{CONTACTS, ContactArrayError};
use crate::contacts::merge::{ContactSpec, MergeReport, UnlistedPolicy};
use crate::contacts::store::FieldChanges;
use crate::contacts::{Contact, ContactArray, TooManyContacts};
use crate::subjects::record::{self, limit_warnings};
use crate::types::limits::LimitsError;
use crate::types::{BillingDay, Limits, Locale, Metric, Percent, Secret, Subject};

/// What happens to one setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FieldUpdate<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is replaced.
    Set(T),
    /// It is removed, so that the plan or the default holds.
    Clear,
}

/// `--replace-all-contacts`, for commands that name contacts.
#[derive(Debug, Clone, Copy, Args)]
pub struct ReplacedContactsArgs {
    /// Where contacts are named, also replace those that the subject's side added, and those that can't be read
    #[arg(long)]
    pub replace_all_contacts: bool,
}

impl ReplacedContactsArgs {
    /// What becomes of stored contacts that are not named.
    pub const fn unnamed(&self) -> UnlistedPolicy {
        if self.replace_all_contacts { UnlistedPolicy::RemoveAll } else { UnlistedPolicy::RemoveOperators }
    }
}

/// What happens to the contacts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ContactsChange {
    /// They stay as they are.
    #[default]
    Keep,
    /// They are removed, so that the fallback contacts hold.
    Clear,
    /// They are removed, and these are written.
    Replace(ContactSpecs),
    /// These are merged into the stored ones by address, see [`ContactArray::merge`].
    Merge(ContactSpecs, UnlistedPolicy),
}

impl ContactsChange {
    /// The change that merges these into the stored contacts; naming none leaves them as they are.
    pub fn merge(named: ContactSpecs, unnamed: UnlistedPolicy) -> Self {
        if named.contacts.is_empty() { Self::Keep } else { Self::Merge(named, unnamed) }
    }
}

/// A change of one subject, checked and ready to be written.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectChange {
    pub subject: Subject,
    pub plan: FieldUpdate<String>,
    pub timezone: FieldUpdate<String>,
    /// The day of the month on which months begin.
    pub billing_day: FieldUpdate<BillingDay>,
    pub limits: BTreeMap<Metric, FieldUpdate<Limits>>,
    pub thresholds: FieldUpdate<Vec<Percent>>,
    /// The language of mails.
    pub locale: FieldUpdate<Locale>,
    pub contacts: ContactsChange,
}

/// A change whose contacts were merged into those that are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergedChange {
    /// The fields as they are written.
    pub fields: FieldChanges,
    /// The secrets that were generated and are used: nobody has seen them yet.
    pub generated: Vec<GeneratedSecret>,
    /// What was kept of the stored contacts.
    pub report: MergeReport,
}

/// Why the contacts of a change can't be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The stored contacts can be neither merged nor kept.
    #[error("its field {0}")]
    NotAnArray(#[from] ContactArrayError),
    /// The subject would have too many.
    #[error(transparent)]
    TooMany(#[from] TooManyContacts),
}

impl SubjectChange {
    /// A change of nothing so far.
    pub const fn for_subject(subject: Subject) -> Self {
        Self {
            subject,
            plan: FieldUpdate::Keep,
            timezone: FieldUpdate::Keep,
            billing_day: FieldUpdate::Keep,
            limits: BTreeMap::new(),
            thresholds: FieldUpdate::Keep,
            locale: FieldUpdate::Keep,
            contacts: ContactsChange::Keep,
        }
    }

    /// Whether it depends on the stored contacts.
    pub const fn depends_on_stored(&self) -> bool {
        matches!(self.contacts, ContactsChange::Merge(..))
    }

    /// The contacts that it names.
    pub fn contact_specs(&self) -> &[ContactSpec] {
        match &self.contacts {
            ContactsChange::Keep | ContactsChange::Clear => &[],
            ContactsChange::Replace(named) | ContactsChange::Merge(named, _) => &named.contacts,
        }
    }

    /// The fields that it writes where `stored` is the field of contacts (empty where there is none, or where the
    /// change does not depend on it). Pure.
    ///
    /// # Errors
    ///
    /// [`MergeError`]; nothing is to be written then.
    pub fn merged(&self, stored: &[u8], contacts_max: usize) -> Result<MergedChange, MergeError> {
        let mut merged = MergedChange { fields: self.settings(), ..MergedChange::default() };
        let (named, unnamed, stored) = match &self.contacts {
            ContactsChange::Keep => return Ok(merged),
            ContactsChange::Clear => {
                merged.fields.cleared.push(CONTACTS.to_owned());
                return Ok(merged);
            }
            ContactsChange::Replace(named) => (named, UnlistedPolicy::RemoveAll, &[][..]),
            // What is removed need not be readable.
            ContactsChange::Merge(named, UnlistedPolicy::RemoveAll) if ContactArray::parse(stored).is_err() => {
                (named, UnlistedPolicy::RemoveAll, &[][..])
            }
            ContactsChange::Merge(named, unnamed) => (named, *unnamed, stored),
        };
        let mut array = ContactArray::parse(stored)?;
        let is_sound = |contact: &Contact| channels::check_contact(contact).is_ok();
        merged.report = array.merge(&named.contacts, unnamed, contacts_max, is_sound)?;
        merged.fields.set.push((CONTACTS.to_owned(), array.to_stored()));
        // One that is stored already is our own, from a try whose answer was lost: nobody has seen it yet.
        let is_replaced = |generated: &GeneratedSecret| {
            let kept = merged.report.kept_secrets.iter().filter(|kept| kept.address() == generated.address);
            kept.map(Contact::secret).any(|kept| kept.map(Secret::reveal) != Some(generated.secret.as_str()))
        };
        merged.generated = named.generated.iter().filter(|generated| !is_replaced(generated)).cloned().collect();
        Ok(merged)
    }

    /// What an operator should know about limits that are legal.
    pub fn limit_warnings(&self) -> Vec<String> {
        let set = self.limits.iter().filter_map(|(metric, limits)| match limits {
            FieldUpdate::Set(limits) => Some((metric, limits)),
            FieldUpdate::Keep | FieldUpdate::Clear => None,
        });
        limit_warnings(set)
    }

    /// The names of the fields that change, in words for people.
    pub fn field_names(&self) -> Vec<String> {
        let FieldChanges { set, cleared } = self.settings();
        let contacts = (self.contacts != ContactsChange::Keep).then(|| CONTACTS.to_owned());
        set.into_iter().map(|(name, _)| name).chain(cleared).chain(contacts).collect()
    }

    fn settings(&self) -> FieldChanges {
        let mut fields = FieldChanges::default();
        take(&mut fields, record::PLAN, &self.plan, Clone::clone);
        take(&mut fields, record::TIMEZONE, &self.timezone, Clone::clone);
        take(&mut fields, record::BILLING_DAY, &self.billing_day, ToString::to_string);
        for (metric, limits) in &self.limits {
            take(&mut fields, &record::limit_field(metric), limits, ToString::to_string);
        }
        take(&mut fields, record::THRESHOLDS, &self.thresholds, |thresholds| record::write_thresholds(thresholds));
        take(&mut fields, record::LOCALE, &self.locale, ToString::to_string);
        fields
    }
}

/// Adds one setting to the fields that are written.
fn take<T>(fields: &mut FieldChanges, name: &str, setting: &FieldUpdate<T>, write: impl Fn(&T) -> String) {
    match setting {
        FieldUpdate::Keep => {}
        FieldUpdate::Set(value) => fields.set.push((name.to_owned(), write(value))),
        FieldUpdate::Clear => fields.cleared.push(name.to_owned()),
    }
}

/// Judges a plan's name.
pub fn plan(config: &Config, name: &str) -> Result<String, String> {
    if config.plans.contains_key(name) {
        return Ok(name.to_owned());
    }
    let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
    let near = nearest(name, &known).map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"));
    Err(format!("there is no plan {name:?} in the configuration{near}, only {}", known.join(", ")))
}

/// Judges the limits of a metric as written: `5000`, `600/hour 5000/day`, or `none` for no limit of the subject's own.
pub fn limits(text: &str) -> Result<FieldUpdate<Limits>, String> {
    if text == "none" {
        return Ok(FieldUpdate::Clear);
    }
    text.parse().map(FieldUpdate::Set).map_err(|error: LimitsError| format!("{error}; none removes the limits"))
}
