//! What an edit changes about a stored contact beside its endpoint: whether it is disabled, and which alerts it hears.
//! Pure.

use super::array::{ContactArray, StoredContact};
use super::contact::Contact;
use crate::types::{ContactFilter, ContactId, DisabledState, Metric, Percent};

const DISABLED: &str = "disabled";
const THRESHOLDS: &str = "thresholds";
const METRICS: &str = "metrics";

/// What is to become of the alerts that a contact hears. `None` leaves a part as it is; an empty list means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterChange {
    /// The percentages.
    pub thresholds: Option<Vec<Percent>>,
    /// The metrics.
    pub metrics: Option<Vec<Metric>>,
}

impl FilterChange {
    /// The filter of a new contact.
    pub fn of_new(&self) -> ContactFilter {
        let Self { thresholds, metrics } = self.clone();
        ContactFilter { thresholds: thresholds.unwrap_or_default(), metrics: metrics.unwrap_or_default() }
    }
}

impl ContactArray {
    /// Marks a contact as disabled, if it is still there at the same address; returns the mark as it is stored. One
    /// that is disabled already keeps its first mark, so this may be repeated. `None`: it was removed or has another
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
        self.set(position, DISABLED, state);
        Some(state.clone())
    }

    /// Enables every contact of this id, and returns those that were disabled; `None` where there is none of this id.
    pub fn enable(&mut self, id: &ContactId) -> Option<Vec<Contact>> {
        let mut with_id = self.contacts();
        with_id.retain(|stored| stored.contact.id == *id);
        if with_id.is_empty() {
            return None;
        }
        with_id.retain(|stored| stored.contact.disabled.is_some());
        with_id.iter().for_each(|stored| self.set_enabled(stored.position));
        Some(with_id.into_iter().map(|stored| stored.contact).collect())
    }

    /// Changes which alerts every contact of this id hears; returns how many there are.
    pub fn set_filter(&mut self, id: &ContactId, change: &FilterChange) -> usize {
        let mut with_id = self.contacts();
        with_id.retain(|stored| stored.contact.id == *id);
        with_id.iter().for_each(|stored| self.change_filter(stored.position, change));
        with_id.len()
    }

    pub(super) fn set_enabled(&mut self, position: usize) {
        self.unset(position, DISABLED);
    }

    pub(super) fn change_filter(&mut self, position: usize, FilterChange { thresholds, metrics }: &FilterChange) {
        self.edit(position, |fields| {
            if let Some(list) = thresholds {
                fields.set_or_remove(THRESHOLDS, (!list.is_empty()).then_some(list));
            }
            if let Some(list) = metrics {
                fields.set_or_remove(METRICS, (!list.is_empty()).then_some(list));
            }
        });
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

    /// Whoever corrects an address while its attempt runs must not find the new one disabled; and the first reason must
    /// stay.
    #[test]
    fn the_contact_is_disabled_once_and_only_at_the_address_that_failed() {
        let mut stored = array(STORED);
        assert_eq!(stored.disable(&contact("other@b.test"), &state(1)), None);
        assert_eq!(stored.disable(&Contact::email("a@b.test"), &state(1)), None, "another id");
        assert!(!stored.is_changed());
        assert_eq!(stored.disable(&contact("a@B.test"), &state(1)), Some(state(1)));
        assert_eq!(stored.disable(&contact("a@b.test"), &state(2)), Some(state(1)));
        assert_eq!(stored.contacts()[0].contact.disabled, Some(state(1)));
        let enabled = stored.enable(&ContactId::from_stored("c_1")).expect("it is there");
        assert_eq!((enabled.len(), stored.to_stored().as_str()), (1, STORED));
        assert_eq!(stored.enable(&ContactId::from_stored("c_1")), Some(Vec::new()));
        assert_eq!(stored.enable(&ContactId::from_stored("c_2")), None);
    }

    /// Somebody who is asked for one list must not lose the other.
    #[test]
    fn a_filter_changes_what_it_names() {
        let (mut stored, id) = (array(STORED), ContactId::from_stored("c_1"));
        let change = |percents: Option<&[u16]>, metrics: Option<&[&str]>| FilterChange {
            thresholds: percents.map(|list| list.iter().filter_map(|percent| Percent::new(*percent)).collect()),
            metrics: metrics.map(|list| list.iter().map(|metric| metric.parse().expect("legal")).collect()),
        };
        assert_eq!(stored.set_filter(&id, &change(Some(&[100]), Some(&["tokens"]))), 1);
        stored.set_filter(&id, &change(Some(&[]), None));
        let filter = stored.contacts().remove(0).contact.filter;
        assert_eq!(filter, change(None, Some(&["tokens"])).of_new());
        stored.set_filter(&id, &change(None, Some(&[])));
        assert_eq!(stored.to_stored(), STORED);
    }
}
