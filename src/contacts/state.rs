//! Changes to a stored contact beside its endpoint: whether it is disabled, and its filter. Pure.

use std::fmt::Display;
use std::str::FromStr;

use super::array::{ContactArray, StoredContact};
use super::contact::Contact;
use crate::types::contact_filter::ALL;
use crate::types::{
    ContactFilter, ContactFilterError, ContactId, DigestInterval, DisabledState, Metric, QuietTime, Threshold, Window,
};

const DISABLED: &str = "disabled";
const THRESHOLDS: &str = "thresholds";
const METRICS: &str = "metrics";
const WINDOWS: &str = "windows";
const QUIET: &str = "quiet";
const QUIET_ALL: &str = "quiet_all";
const DIGEST: &str = "digest";
const DIGEST_ALL: &str = "digest_all";
const SUBTREE: &str = "subtree";
const RESOLVED: &str = "resolved";
/// The text that removes the quiet time or the digest.
const NONE: &str = "none";

/// A change to the filter of a contact. `None` leaves a part as it is; an empty list means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterChange {
    /// The thresholds.
    pub thresholds: Option<Vec<Threshold>>,
    /// The metrics.
    pub metrics: Option<Vec<Metric>>,
    /// The windows.
    pub windows: Option<Vec<Window>>,
    /// The quiet time; `Some(None)` removes it.
    pub quiet: Option<Option<QuietTime>>,
    /// Whether alerts of a used up limit wait too.
    pub quiet_all: Option<bool>,
    /// For how long notifications are gathered; `Some(None)`: no more.
    pub digest: Option<Option<DigestInterval>>,
    /// Whether alerts of a used up limit are gathered too.
    pub digest_all: Option<bool>,
    /// Whether it also gets the alerts of all levels below.
    pub subtree: Option<bool>,
    /// Whether it hears that its alerts have ended; `Some(None)` for the default of its format.
    pub resolved: Option<Option<bool>>,
}

impl FilterChange {
    /// Reads the text of each part, such as `quiet_all`; `None` for a part that is not named. Thresholds, metrics and
    /// windows are separated by commas, or `all`; a quiet time and the interval of a digest may be `none`; the others
    /// are `true` or `false`.
    ///
    /// # Errors
    ///
    /// A value is not a threshold, metric, window, quiet time or interval, occurs twice, or is combined with `all`; or
    /// is neither true nor false.
    pub fn parse(text_of: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let thresholds: Option<Vec<_>> = parse_list("threshold", text_of(THRESHOLDS))?;
        let metrics: Option<Vec<_>> = parse_list("metric", text_of(METRICS))?;
        let windows: Option<Vec<_>> = parse_list("window", text_of(WINDOWS))?;
        // An empty list is `all` here.
        let filter = ContactFilter::new(
            thresholds.clone().filter(|list| !list.is_empty()),
            metrics.clone().filter(|list| !list.is_empty()),
            windows.clone().filter(|list| !list.is_empty()),
        );
        let filter = filter.map_err(|error: ContactFilterError| error.to_string())?;
        let flag = |name: &str| {
            let read = |text: String| text.parse().map_err(|_| format!("{name} {text:?} is neither true nor false"));
            text_of(name).map(read).transpose()
        };
        Ok(Self {
            thresholds: thresholds.map(|_| filter.thresholds),
            metrics: metrics.map(|_| filter.metrics),
            windows: windows.map(|_| filter.windows),
            quiet: parse_unless_none(QUIET, text_of(QUIET))?,
            quiet_all: flag(QUIET_ALL)?,
            digest: parse_unless_none(DIGEST, text_of(DIGEST))?,
            digest_all: flag(DIGEST_ALL)?,
            subtree: flag(SUBTREE)?,
            resolved: flag(RESOLVED)?.map(Some),
        })
    }

    /// The filter of a new contact.
    pub fn of_new(&self) -> ContactFilter {
        let Self { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved } =
            self.clone();
        ContactFilter {
            thresholds: thresholds.unwrap_or_default(),
            metrics: metrics.unwrap_or_default(),
            windows: windows.unwrap_or_default(),
            quiet: quiet.flatten(),
            quiet_all: quiet_all.unwrap_or_default(),
            digest: digest.flatten(),
            digest_all: digest_all.unwrap_or_default(),
            subtree: subtree.unwrap_or_default(),
            resolved: resolved.flatten(),
        }
    }
}

/// The values; empty for all.
fn parse_list<T: FromStr<Err: Display>>(what: &str, text: Option<String>) -> Result<Option<Vec<T>>, String> {
    let parse = |part: &str| match part {
        ALL => Err(format!("{what} {ALL} can't be combined with others")),
        part => part.parse().map_err(|error| format!("{part:?}: {error}")),
    };
    match text.as_deref() {
        None => Ok(None),
        Some(ALL) => Ok(Some(Vec::new())),
        Some(text) => text.split(',').map(str::trim).map(parse).collect::<Result<_, _>>().map(Some),
    }
}

fn parse_unless_none<T: FromStr<Err: Display>>(name: &str, text: Option<String>) -> Result<Option<Option<T>>, String> {
    match text.as_deref() {
        None => Ok(None),
        Some(NONE) => Ok(Some(None)),
        Some(text) => text.parse().map(|value| Some(Some(value))).map_err(|error| format!("{name}: {error}")),
    }
}

impl ContactArray {
    /// Marks a contact as disabled if it still exists with the same address, and returns the stored mark. A disabled
    /// contact keeps its first mark, so the call may be repeated. `None`: the contact was removed or has another
    /// address.
    pub fn disable(&mut self, failed: &Contact, state: &DisabledState) -> Option<DisabledState> {
        let is_meant = |stored: &StoredContact| {
            let StoredContact { contact, .. } = stored;
            contact.verified && contact.id == failed.id && contact.has_same_address(failed)
        };
        let StoredContact { contact, position, .. } = self.contacts().into_iter().find(is_meant)?;
        if contact.disabled.is_some() {
            return contact.disabled;
        }
        self.set(position, DISABLED, Some(state));
        Some(state.clone())
    }

    /// Enables every contact with this id, and returns those that were disabled.
    pub fn enable(&mut self, id: &ContactId) -> Vec<Contact> {
        let mut disabled = self.with_id(id);
        disabled.retain(|stored| stored.contact.disabled.is_some());
        disabled.iter().for_each(|stored| self.set_enabled(stored.position));
        disabled.into_iter().map(|stored| stored.contact).collect()
    }

    /// Changes the filter of every contact with this id.
    pub fn set_filter(&mut self, id: &ContactId, change: &FilterChange) {
        self.with_id(id).iter().for_each(|stored| self.change_filter(stored.position, change));
    }

    pub(super) fn set_enabled(&mut self, position: usize) {
        self.set(position, DISABLED, None::<()>);
    }

    pub(super) fn change_filter(&mut self, position: usize, change: &FilterChange) {
        let FilterChange { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved } =
            change;
        if let Some(list) = thresholds {
            self.set(position, THRESHOLDS, (!list.is_empty()).then_some(list));
        }
        if let Some(list) = metrics {
            self.set(position, METRICS, (!list.is_empty()).then_some(list));
        }
        if let Some(list) = windows {
            self.set(position, WINDOWS, (!list.is_empty()).then_some(list));
        }
        if let Some(quiet) = quiet {
            self.set(position, QUIET, quiet.as_ref());
        }
        if let Some(quiet_all) = quiet_all {
            self.set(position, QUIET_ALL, quiet_all.then_some(true));
        }
        if let Some(digest) = digest {
            self.set(position, DIGEST, digest.as_ref());
        }
        if let Some(digest_all) = digest_all {
            self.set(position, DIGEST_ALL, digest_all.then_some(true));
        }
        if let Some(subtree) = subtree {
            self.set(position, SUBTREE, subtree.then_some(true));
        }
        if let Some(resolved) = resolved {
            self.set(position, RESOLVED, *resolved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DisableReason, UnixMs};

    const STORED: &str = r#"[{"id":"c_1","channel":"email","address":"a@b.test","note":1e999}]"#;

    fn array(stored: &str) -> ContactArray {
        ContactArray::parse(stored.as_bytes()).expect("an array")
    }

    fn contact(address: &str) -> Contact {
        Contact { id: ContactId::from_stored("c_1"), ..Contact::email(address) }
    }

    fn state(at: i64) -> DisabledState {
        DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(at) }
    }

    /// An address that is corrected while an attempt runs must not be disabled; and the first reason must stay.
    #[test]
    fn the_contact_is_disabled_once_and_only_at_the_address_that_failed() {
        let mut stored = array(STORED);
        assert_eq!(stored.disable(&contact("other@b.test"), &state(1)), None);
        assert_eq!(stored.disable(&Contact::email("a@b.test"), &state(1)), None, "another id");
        assert_eq!(stored.to_stored(), STORED);
        assert_eq!(stored.disable(&contact("a@B.test"), &state(1)), Some(state(1)));
        assert_eq!(stored.disable(&contact("a@b.test"), &state(2)), Some(state(1)));
        assert_eq!(stored.contacts()[0].contact.disabled, Some(state(1)));
        let enabled = stored.enable(&ContactId::from_stored("c_1"));
        assert_eq!((enabled.len(), stored.to_stored().as_str()), (1, STORED));
        assert_eq!(stored.enable(&ContactId::from_stored("c_1")), Vec::new());
    }

    /// Changing one list of the filter must not clear the other.
    #[test]
    fn a_filter_changes_what_it_names() {
        let (mut stored, id) = (array(STORED), ContactId::from_stored("c_1"));
        let change = |thresholds: Option<&[&str]>, metrics: Option<&[&str]>| FilterChange {
            thresholds: thresholds.map(|list| list.iter().map(|one| one.parse().expect("legal")).collect()),
            metrics: metrics.map(|list| list.iter().map(|metric| metric.parse().expect("legal")).collect()),
            ..FilterChange::default()
        };
        stored.set_filter(&id, &change(Some(&["used:100"]), Some(&["tokens"])));
        stored.set_filter(&id, &change(Some(&[]), None));
        let filter = stored.contacts().remove(0).contact.filter;
        assert_eq!(filter, change(None, Some(&["tokens"])).of_new());
        stored.set_filter(&id, &change(None, Some(&[])));
        assert_eq!(stored.to_stored(), STORED);
    }
}
