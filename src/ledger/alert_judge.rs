//! Judges which alerts of a quota have ended, by its present count and limit. Pure.
//!
//! The state of an alert is a function of the count, the limit and the time. What is stored beside the records keeps
//! the first sight of each end, and which ends were told.

use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, AlertEnd, AlertEnds, EndReason, LimitUnits, RaisedRecord, UnixMs};

/// What decides whether the alerts of one subject, metric and period have ended.
#[derive(Debug, Clone, Copy)]
pub struct QuotaState {
    /// Units used.
    pub used: u64,
    /// The limit in force.
    pub limit: KnownLimit,
    /// When the period ends in the subject's zone; `None` for a total.
    pub ends_at: Option<UnixMs>,
    /// Server time.
    pub now: UnixMs,
}

/// The limit in force, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownLimit {
    /// The settings can't be read: alerts stay as they are.
    Unknown,
    /// There is none.
    None,
    /// With what grants add.
    Units(LimitUnits),
}

/// What has changed since the ends that were stored before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndsVerdict<'a> {
    /// The ends to store.
    pub ends: AlertEnds,
    /// The alerts that have ended since, the oldest first.
    pub ended: Vec<&'a Alert>,
    /// Those among them that had never ended before, or whose end was withdrawn.
    pub first_ended: Vec<&'a Alert>,
    /// The alerts that a new crossing has opened again.
    pub reopened: Vec<&'a Alert>,
    /// The alerts whose end is told now: all have ended, and some of them are not told yet.
    pub resolved: Vec<&'a Alert>,
    /// Whether all alerts have ended.
    pub is_over: bool,
    /// The count from which an alert would be open that has ended before its period; `None` without one.
    pub open_from: Option<u64>,
}

impl EndsVerdict<'_> {
    /// Whether anything is to be stored.
    pub const fn has_changes(&self) -> bool {
        !self.ended.is_empty() || !self.reopened.is_empty() || !self.resolved.is_empty()
    }

    /// The last of the ends of these alerts.
    pub fn last_end(&self, alerts: &[&Alert]) -> Option<AlertEnd> {
        alerts.iter().filter_map(|alert| self.ends.end_of(&alert.id)).max_by_key(|end| end.at)
    }
}

impl QuotaState {
    /// Judges all alerts of the quota, given the ends that are stored.
    pub fn judge<'a>(&self, before: &AlertEnds, records: &'a [RaisedRecord]) -> EndsVerdict<'a> {
        let mut judged = EndsVerdict {
            ends: before.clone(),
            ended: Vec::new(),
            first_ended: Vec::new(),
            reopened: Vec::new(),
            resolved: Vec::new(),
            is_over: true,
            open_from: None,
        };
        for record in records {
            let later = record.earlier.iter().skip(1).chain([&record.alert]);
            for (alert, later) in record.earlier.iter().zip(later) {
                judged.note(alert, Some(later.end_of_earlier()), self.now);
            }
            // A clock that was ahead noticed an end that has not come.
            let before = before.end_of(&record.alert.id).filter(|end| end.at.0 <= self.now);
            let end = self.end_of(&record.alert, before);
            judged.note(&record.alert, end, self.now);
            let needed = self.needed(&record.alert).filter(|_| end.is_some());
            judged.open_from = judged.open_from.into_iter().chain(needed).min();
        }
        if judged.is_over {
            let end = judged.ends.next();
            let all = records.iter().flat_map(|record| record.earlier.iter().chain([&record.alert]));
            for alert in all {
                let noted = judged.ends.ends.entry(alert.id.clone()).or_default();
                if noted.told_in.is_none() {
                    noted.told_in = Some(end);
                    judged.resolved.push(alert);
                }
            }
        }
        judged
    }

    /// The end of the newest alert of a threshold, given that which was noticed before; `None` if it is open.
    fn end_of(&self, alert: &Alert, before: Option<AlertEnd>) -> Option<AlertEnd> {
        let end = match (self.ends_at.filter(|end| *end <= self.now), self.needed(alert)) {
            (Some(end), _) => AlertEnd { reason: EndReason::Reset, at: Rfc3339(end.max(alert.raised_at_ms)) },
            (None, None) => return before,
            (None, Some(needed)) if self.used >= needed => return None,
            (None, Some(_)) => {
                let is_credited = self.used < alert.threshold_units;
                let reason = if is_credited { EndReason::Credited } else { EndReason::LimitRaised };
                AlertEnd { reason, at: Rfc3339(self.now) }
            }
        };
        Some(before.unwrap_or(end))
    }

    /// The count from which an alert is open; `None` if the period is over, or nobody knows the limit.
    fn needed(&self, alert: &Alert) -> Option<u64> {
        if self.ends_at.is_some_and(|end| end <= self.now) {
            return None;
        }
        match self.limit {
            KnownLimit::Unknown => None,
            KnownLimit::None => Some(u64::MAX),
            // A threshold that is not due under a lower limit ends only by a credit.
            KnownLimit::Units(limit) => match alert.threshold.units_of(limit) {
                Some(units) => Some(u64::try_from(units).unwrap_or(u64::MAX)),
                None => Some(alert.threshold_units),
            },
        }
    }
}

impl<'a> EndsVerdict<'a> {
    fn note(&mut self, alert: &'a Alert, end: Option<AlertEnd>, now: UnixMs) {
        self.is_over &= end.is_some();
        let noted = self.ends.ends.get_mut(&alert.id);
        match (noted, end) {
            (None, None) => {}
            (None, Some(_)) => {
                self.ends.ends.entry(alert.id.clone()).or_default().end = end;
                self.ended.push(alert);
                self.first_ended.push(alert);
            }
            (Some(noted), end) => match (noted.end, end) {
                (Some(_), None) => {
                    noted.end = None;
                    self.reopened.push(alert);
                }
                (None, Some(_)) => {
                    noted.end = end;
                    self.ended.push(alert);
                    if std::mem::take(&mut noted.is_incident_open) {
                        self.first_ended.push(alert);
                    }
                }
                (Some(before), Some(earlier)) if before.at.0 > now && before.at > earlier.at => {
                    noted.end = end;
                    self.ended.push(alert);
                }
                (Some(_), Some(_)) | (None, None) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::Sample;
    use crate::types::{AlertId, Threshold, Units};
    use proptest::prelude::*;

    const END: UnixMs = UnixMs(1_000_000);

    fn limit(units: u64) -> KnownLimit {
        KnownLimit::Units(Units::new(units).expect("legal").into())
    }

    /// The only alert of a threshold of a limit.
    fn record(threshold: &str, limit: u64) -> RaisedRecord {
        RaisedRecord::after(None, alert(threshold, limit))
    }

    fn alert(threshold: &str, limit: u64) -> Alert {
        let read: Threshold = threshold.parse().expect("legal");
        let units = read.units_of(Units::new(limit).expect("legal")).and_then(|units| u64::try_from(units).ok());
        let id = AlertId::from_stored(&format!("alert_{threshold}_{limit}"));
        Alert { id, threshold_units: units.expect("due"), limit, ..Sample::example().alert(read, UnixMs(1)) }
    }

    fn quota(used: u64, limit: KnownLimit, now: i64) -> QuotaState {
        QuotaState { used, limit, ends_at: Some(END), now: UnixMs(now) }
    }

    fn none() -> AlertEnds {
        AlertEnds::none(Sample::example().subject)
    }

    fn thresholds(alerts: &[&Alert]) -> Vec<String> {
        alerts.iter().map(|alert| alert.threshold.to_string()).collect()
    }

    fn reasons(judged: &EndsVerdict<'_>) -> Vec<EndReason> {
        judged.ended.iter().filter_map(|alert| judged.ends.end_of(&alert.id)).map(|end| end.reason).collect()
    }

    /// The customer would hear of one end for each threshold, or of an end while a higher threshold is still reached.
    #[test]
    fn an_end_is_told_once_when_the_last_open_alert_has_ended() {
        let records = [record("80", 100), record("100", 100)];
        let still = quota(100, limit(100), 10).judge(&none(), &records);
        assert!(!still.has_changes() && !still.is_over);
        let higher = quota(100, limit(110), 20).judge(&still.ends, &records);
        assert_eq!((thresholds(&higher.ended), thresholds(&higher.resolved)), (vec!["100".to_owned()], vec![]));
        assert_eq!(reasons(&higher), [EndReason::LimitRaised]);
        let credited = quota(79, limit(110), 30).judge(&higher.ends, &records);
        assert_eq!(reasons(&credited), [EndReason::Credited]);
        assert_eq!(thresholds(&credited.resolved), ["80", "100"]);
        let end = credited.last_end(&credited.resolved).expect("it has ended");
        assert_eq!((end.reason, end.at), (EndReason::Credited, Rfc3339(UnixMs(30))));
        assert!(!quota(79, limit(110), 40).judge(&credited.ends, &records).has_changes(), "once");
        assert_eq!(credited.ends.next(), 2);
    }

    /// A customer would hear a second time of the end of one alert.
    #[test]
    fn a_new_crossing_opens_an_alert_again_and_its_end_is_not_told_twice() {
        let records = [record("80", 100)];
        let ended = quota(79, limit(100), 10).judge(&none(), &records);
        assert_eq!((ended.first_ended.len(), ended.resolved.len()), (1, 1));
        let again = quota(80, limit(100), 20).judge(&ended.ends, &records);
        assert_eq!((thresholds(&again.reopened), again.is_over), (vec!["80".to_owned()], false));
        assert_eq!(again.ends.end_of(&records[0].alert.id), None);
        let over = quota(80, limit(100), END.0).judge(&again.ends, &records);
        assert_eq!((reasons(&over), over.first_ended.len(), over.resolved.len()), (vec![EndReason::Reset], 0, 0));
    }

    /// An alert that was raised again under a higher limit is another one, whose end is told too; and the end of the
    /// earlier one must not stay open for ever.
    #[test]
    fn a_higher_limit_ends_the_earlier_alert_of_a_threshold() {
        let newer = Alert { raised_at_ms: UnixMs(50), ..alert("80", 200) };
        let records = [RaisedRecord::after(Some(record("80", 100)), newer)];
        let open = quota(160, limit(200), 60).judge(&none(), &records);
        assert_eq!((reasons(&open), open.is_over), (vec![EndReason::LimitRaised], false));
        assert_eq!(open.ends.end_of(&records[0].earlier[0].id).map(|end| end.at), Some(Rfc3339(UnixMs(50))));
        let over = quota(160, limit(200), END.0 + 5).judge(&open.ends, &records);
        assert_eq!(over.resolved.len(), 2, "neither was told before");
        assert_eq!(over.last_end(&over.resolved).map(|end| end.at), Some(Rfc3339(END)));
        let told = quota(79, limit(100), 10).judge(&none(), &[record("80", 100)]).ends;
        assert_eq!(quota(160, limit(200), END.0).judge(&told, &records).resolved, [&records[0].alert]);
    }

    /// Settings that nobody can read, or a limit that was lowered, must not be told as the end of an alert.
    #[test]
    fn what_is_not_known_ends_nothing() {
        let records = [record("80", 100), record("remaining:10", 100)];
        let ended = |state: QuotaState| thresholds(&state.judge(&none(), &records).ended);
        assert_eq!(ended(quota(0, KnownLimit::Unknown, 10)), [""; 0]);
        assert_eq!(ended(quota(0, KnownLimit::Unknown, END.0)), ["80", "remaining:10"]);
        assert_eq!(ended(quota(95, limit(50), 10)), [""; 0]);
        assert_eq!(ended(quota(95, limit(5), 10)), [""; 0], "10 units never remain of 5");
        assert_eq!(ended(quota(49, limit(60), 10)), ["remaining:10"], "49 of 60 are above 80 %");
        assert_eq!(ended(quota(95, KnownLimit::None, 10)), ["80", "remaining:10"]);
        let used = [record("used:80", 100)];
        assert_eq!(quota(80, limit(1_000), 10).judge(&none(), &used).ended.len(), 0, "no limit changes it");
        let total = QuotaState { ends_at: None, ..quota(90, limit(100), i64::MAX) };
        assert!(total.judge(&none(), &records[..1]).ended.is_empty());
    }

    /// A clock that jumps ahead and back must leave the alert open, and a zone that moves the end too.
    #[test]
    fn an_end_that_has_not_come_after_all_opens_the_alert_again() {
        let records = [record("80", 100)];
        let over = quota(80, limit(100), END.0).judge(&none(), &records);
        let back = quota(80, limit(100), 5).judge(&over.ends, &records);
        assert_eq!((back.reopened.len(), back.is_over), (1, false));
        assert!(quota(80, limit(100), END.0).judge(&back.ends, &records).resolved.is_empty());
    }

    /// People would read that an alert ended tomorrow, for as long as the daemon has not looked again.
    #[test]
    fn an_end_that_a_clock_ahead_has_noticed_reads_as_open_and_gets_its_time() {
        let records = [record("80", 100)];
        let ahead = quota(79, limit(100), 900).judge(&none(), &records).ends;
        let state = |ends: &AlertEnds, now| {
            let shown = crate::types::alert_ends::stated(records[0].clone(), &ends.ends, UnixMs(now)).remove(0);
            shown.status.expect("it is judged").end.map(|end| end.at.0.0)
        };
        assert_eq!((state(&ahead, 899), state(&ahead, 900)), (None, Some(900)));
        let unknown = quota(79, KnownLimit::Unknown, 10).judge(&ahead, &records);
        assert_eq!((unknown.reopened.len(), unknown.is_over), (1, false));
        let back = quota(79, limit(100), 10).judge(&ahead, &records);
        assert_eq!((state(&back.ends, 10), back.resolved.len(), back.first_ended.len()), (Some(10), 0, 0));
        assert!(back.has_changes() && !quota(79, limit(100), 20).judge(&back.ends, &records).has_changes());
    }

    proptest! {
        /// Whatever happens to count, limit and clock, each alert is told at most once, only when all are over, and its
        /// state is that of the last look.
        #[test]
        fn any_order_of_looks_tells_each_end_once(
            looks in prop::collection::vec((0..400_u64, 1..400_u64, 0..2_000_000_i64), 1..40)
        ) {
            let records = [record("50", 100), record("80", 100), record("100", 100)];
            let (mut ends, mut told) = (none(), Vec::new());
            for (used, units, now) in looks {
                let state = quota(used, limit(units), now);
                let judged = state.judge(&ends, &records);
                for record in &records {
                    let is_open = now < END.0 && record.alert.threshold.units_of(Units::new(units).expect("legal"))
                        .is_some_and(|needed| u128::from(used) >= needed);
                    prop_assert_eq!(judged.ends.end_of(&record.alert.id).is_none(), is_open);
                    prop_assert!(!is_open || judged.resolved.is_empty());
                }
                told.extend(judged.resolved.iter().map(|alert| alert.id.clone()));
                prop_assert!(!state.judge(&judged.ends, &records).has_changes());
                ends = judged.ends;
            }
            let count = told.len();
            told.sort_unstable();
            told.dedup();
            prop_assert_eq!(told.len(), count);
        }
    }
}
