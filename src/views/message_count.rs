//! How many messages the alerts of past days would have been, with the digests of their contacts. Pure.
//!
//! Only the days of the alerts are known: a digest gathers those of whole days, and at least those of one day.

use std::collections::BTreeMap;

use crate::outbox::message_group::{ALERTS_MAX, MessageGroup};
use crate::types::{Day, PartitionNumber};

/// Length of a day, seconds.
const DAY_S: u64 = 86_400;

/// The messages of alerts.
#[derive(Debug, Default)]
pub(super) struct MessageCount {
    /// Number of alerts that leave alone.
    alone: usize,
    /// The alerts of each digest.
    gathered: BTreeMap<(PartitionNumber, String), GatheredAlerts>,
}

#[derive(Debug, Default)]
struct GatheredAlerts {
    /// Days that one message covers.
    days: u64,
    /// Number of alerts by day.
    alerts: BTreeMap<Day, usize>,
}

impl MessageCount {
    /// Adds an alert to a contact, on this day, with the digest that gathers it.
    pub(super) fn add(&mut self, partition: PartitionNumber, day: Day, digest: Option<MessageGroup>) {
        let Some(MessageGroup { name, wait }) = digest else {
            self.alone += 1;
            return;
        };
        let gathered = self.gathered.entry((partition, name)).or_default();
        gathered.days = (wait.as_secs() / DAY_S).max(1);
        *gathered.alerts.entry(day).or_default() += 1;
    }

    /// The number of messages.
    pub(super) fn messages(&self) -> usize {
        self.alone + self.gathered.values().map(GatheredAlerts::messages).sum::<usize>()
    }

    /// The number of alerts and contacts: that of the messages without digests.
    pub(super) fn alerts(&self) -> usize {
        self.alone + self.gathered.values().flat_map(|gathered| gathered.alerts.values()).sum::<usize>()
    }
}

impl GatheredAlerts {
    fn messages(&self) -> usize {
        let (mut messages, mut message): (usize, Option<(i64, usize)>) = (0, None);
        for (day, alerts) in &self.alerts {
            let day = day.since_epoch();
            // The first alert opens a message, which holds the later ones up to its end.
            let begun = message.filter(|(first, _)| day - first < i64::try_from(self.days).unwrap_or(i64::MAX));
            let (first, held) = begun.unwrap_or((day, 0));
            messages += (held + alerts).div_ceil(ALERTS_MAX) - held.div_ceil(ALERTS_MAX);
            message = Some((first, held + alerts));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The messages of a digest of this many days, with the alerts of these days of November.
    fn messages(days: u64, alerts: &[(u32, usize)]) -> usize {
        let mut count = MessageCount::default();
        for (day, alerts) in alerts {
            let day = Day::parse(&format!("2026-11-{day:02}")).expect("a day");
            for _ in 0..*alerts {
                let wait = Duration::from_secs(days * DAY_S + 3600);
                count.add(PartitionNumber::first(1), day, Some(MessageGroup { name: "group_1".to_owned(), wait }));
            }
        }
        assert_eq!(count.alerts(), alerts.iter().map(|(_, alerts)| alerts).sum::<usize>());
        count.messages()
    }

    /// A plan that looks as if it sent too many messages would not be used.
    #[test]
    fn a_digest_is_a_message_for_what_comes_within_its_days() {
        assert_eq!(messages(0, &[(1, 3), (2, 1)]), 2);
        assert_eq!(messages(7, &[(1, 3), (7, 1), (8, 1), (14, 2), (15, 1)]), 3);
        assert_eq!(messages(0, &[(1, 31)]), 2, "a message holds at most 30 alerts");
        assert_eq!(messages(7, &[(1, 20), (2, 10), (3, 1)]), 2);
        let mut alone = MessageCount::default();
        alone.add(PartitionNumber::first(1), Day::parse("2026-11-01").expect("a day"), None);
        assert_eq!((alone.messages(), alone.alerts()), (1, 1));
    }
}
