//! Answers of name servers. They are kept as long as the server allows, and no longer than a minute.
//!
//! Bounds are needed because subjects choose the names, and the owner of a zone chooses the answers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::lookup::Lookup;
use hickory_resolver::proto::rr::Name;

/// Maximum age of an answer, whatever its name server says: a receiver that moves is found after this time.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of answers. They take less than a megabyte.
const ANSWERS_MAX: usize = 1024;
/// Maximum number of addresses of one family that are used. A DNS message has room for 4,000.
const ADDRESSES_MAX: usize = 16;

/// The addresses of a name, and how long they are valid.
#[derive(Debug, Clone)]
pub(super) struct DnsReply {
    pub(super) addresses: Vec<IpAddr>,
    until: Option<Instant>,
}

impl DnsReply {
    /// The addresses of these lookups, one for each answered family.
    pub(super) fn from_lookups<'a>(lookups: impl Iterator<Item = &'a Lookup>) -> Self {
        let (mut addresses, mut until) = (Vec::new(), None::<Instant>);
        for lookup in lookups {
            let found = lookup.answers().iter().filter_map(|record| record.data.ip_addr());
            addresses.extend(found.take(ADDRESSES_MAX));
            until = Some(until.map_or(lookup.valid_until(), |until| until.min(lookup.valid_until())));
        }
        Self { addresses, until }
    }
}

/// Answers by name.
#[derive(Debug, Default)]
pub(super) struct DnsReplies(Mutex<HashMap<Name, DnsReply>>);

impl DnsReplies {
    /// The addresses of a name with a valid answer.
    pub(super) fn get(&self, name: &Name, now: Instant) -> Option<Vec<IpAddr>> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(name).filter(|answer| answer.until > Some(now)).map(|answer| answer.addresses.clone())
    }

    /// Stores an answer. If there are too many, all are dropped, and each name must be asked again.
    pub(super) fn keep(&self, name: Name, answer: DnsReply, now: Instant) {
        let until = answer.until.map(|until| until.min(now + AGE_MAX));
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(name, DnsReply { until, ..answer });
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::Query;
    use hickory_resolver::proto::rr::{RData, Record, RecordType};

    use super::*;

    /// A zone with 4,000 addresses for each of a thousand names filled two gigabytes.
    #[test]
    fn names_addresses_and_ages_are_bounded() {
        let name = |number: usize| Name::from_ascii(format!("n{number}.test.")).expect("a name");
        let record =
            |number: u32| Record::from_rdata(name(0), 86_400, RData::A(std::net::Ipv4Addr::from(number).into()));
        let lookup = Lookup::new_with_max_ttl(Query::query(name(0), RecordType::A), (0..4_000).map(record));
        let (answers, answer, now) =
            (DnsReplies::default(), DnsReply::from_lookups([&lookup].into_iter()), Instant::now());
        assert_eq!(answer.addresses.len(), ADDRESSES_MAX);
        (0..=ANSWERS_MAX).for_each(|number| answers.keep(name(number), answer.clone(), now));
        assert!(answers.0.lock().expect("free").len() <= ANSWERS_MAX);
        let last = name(ANSWERS_MAX);
        assert_eq!(answers.get(&last, now), Some(answer.addresses));
        assert_eq!(answers.get(&last, now + AGE_MAX), None);
    }
}
