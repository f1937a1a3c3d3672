//! The subjects that are near to a limit, ranked: what several requests have read. Each examines some slices of the
//! records, so that no request costs the server much, however many subjects there are. Read next: [`super::near`],
//! which reads the slices.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::forecast::ForecastView;
use crate::forecast::ForecastState;
use crate::ledger::batch::MetricPeriod;
use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::raised_scan::RaisedPosition;
use crate::outbox::CountingLag;
use crate::types::{Alert, DisplayName, Metric, Percent, Period, Subject, UnixMs, Window};

/// Maximum number of limits in a ranking that are not reached, and of those that are: 10 MB at most.
pub const RANKED_MAX: usize = 5_000;
/// Maximum number of filters with a ranking.
const FILTERS_MAX: usize = 4;
/// How long a ranking is kept if nobody asks for it.
const KEPT_FOR: Duration = Duration::from_secs(15 * 60);
/// Shortest pause before a ranking of several slices is renewed by one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Length of that pause, in lengths of the last slice: counting needs the same server.
const PAUSE: u32 = 10;
/// The same while counting lags.
const BEHIND_PAUSE: u32 = 300;
/// The share from which a limit without a forecast is as urgent as one that will probably be reached.
const ALMOST_USED_UP_PERMILLE: u64 = 950;
/// The share from which a subject is near to a limit.
const NEAR_PERMILLE: u64 = 800;

/// Which subjects are listed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NearFilter {
    pub metric: Option<Metric>,
    pub window: Option<Window>,
    /// Only those that have used at least this part of the limit.
    pub percent: Option<Percent>,
}

/// The position of a list: its last row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearCursor(pub NearPlace);

/// The order of a ranking: by urgency, then by name.
pub type NearPlace = (Urgency, Subject, Metric, Period);

/// The expected time of reaching the limit, and permille of the limit, highest first.
type Urgency = (NearState, UnixMs, Reverse<u64>);

/// In the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NearState {
    /// Little is left of its limit, and nobody knows when it is reached.
    AlmostUsedUp,
    /// It will probably reach its limit.
    RunsOut,
    /// It is below its limit.
    Below,
    /// It has reached its limit.
    UsedUp,
}

/// A subject and a limit.
#[derive(Debug, Clone)]
pub struct NearRow {
    pub count: SubjectCount,
    pub of: MetricPeriod,
    pub name: Option<DisplayName>,
    pub plan: String,
    pub limit: u64,
    /// Ascending by the count that reaches them; at least one.
    pub alerts: Vec<Alert>,
    pub forecast: Option<ForecastView>,
}

impl NearRow {
    pub fn permille(&self) -> u64 {
        permille(self.count.used, self.limit)
    }

    pub fn is_below(&self) -> bool {
        self.count.used < self.limit
    }

    pub fn place(&self) -> NearPlace {
        let urgency = urgency(self.count.used, self.limit, self.forecast.as_ref());
        (urgency, self.count.subject.clone(), self.of.metric.clone(), self.of.period)
    }

    /// Whether its period has not ended.
    fn is_current(&self, now: UnixMs) -> bool {
        self.alerts.last().and_then(|alert| alert.resets_at).is_none_or(|end| now < end.0)
    }
}

fn permille(used: u64, limit: u64) -> u64 {
    u64::try_from(u128::from(used) * 1000 / u128::from(limit)).unwrap_or(u64::MAX)
}

fn urgency(used: u64, limit: u64, forecast: Option<&ForecastView>) -> Urgency {
    let permille = permille(used, limit);
    let state = match forecast.map_or(ForecastState::Unknown, |of| of.state) {
        _ if limit <= used => NearState::UsedUp,
        ForecastState::Possible | ForecastState::Likely => NearState::RunsOut,
        ForecastState::Unknown if permille >= ALMOST_USED_UP_PERMILLE => NearState::AlmostUsedUp,
        _ => NearState::Below,
    };
    let expected_at = forecast.and_then(|of| of.expected_at).filter(|_| state == NearState::RunsOut);
    (state, expected_at.map_or(UnixMs::MAX, |at| at.0), Reverse(permille))
}

/// A slice of the records.
#[derive(Debug)]
pub struct NearSlice {
    pub rows: Vec<NearRow>,
    pub examined: usize,
    pub next: Option<RaisedPosition>,
}

/// The first rows of all slices that were examined.
#[derive(Debug, Clone, Default)]
pub struct NearRanking {
    /// In the order of the list.
    rows: Vec<NearRow>,
    /// Subjects that have used at least 80 % of a limit, without those of `reached`.
    pub above_80: usize,
    /// Subjects that have used all of a limit, or more.
    pub reached: usize,
    /// Number of recorded alerts that were examined.
    pub examined: usize,
    /// Number of slices that they were read in.
    slices: usize,
    /// Whether these are all.
    pub is_complete: bool,
    /// Whether limits were left out because there are too many.
    pub is_cut: bool,
    /// When the first of them was read.
    pub began: UnixMs,
}

impl NearRanking {
    /// The rows after a place whose period has not ended.
    pub fn rows_after<'a>(
        &'a self,
        after: Option<&NearPlace>,
        now: UnixMs,
    ) -> impl Iterator<Item = &'a NearRow> + Clone {
        let from = after.map_or(0, |after| self.rows.partition_point(|row| row.place() <= *after));
        self.rows[from..].iter().filter(move |row| row.is_current(now))
    }

    fn add(&mut self, rows: Vec<NearRow>) {
        self.rows.extend(rows);
        self.rows.sort_by_cached_key(NearRow::place);
        let mut reached = self.rows.split_off(self.rows.partition_point(NearRow::is_below));
        self.is_cut |= self.rows.len() > RANKED_MAX || reached.len() > RANKED_MAX;
        self.rows.truncate(RANKED_MAX);
        reached.truncate(RANKED_MAX);
        self.rows.append(&mut reached);
    }
}

/// Walks through all records again and again.
#[derive(Debug, Default)]
pub struct NearWalk {
    /// What the last walk has found, until this one has examined everything; in the first walk, what it has found.
    best: Arc<NearRanking>,
    partial: NearRanking,
    /// The position of the next slice.
    next: Option<RaisedPosition>,
    /// When the newest slice was added, and how long it took.
    newest: Option<(Instant, Duration)>,
    /// Whether each subject near to a limit has reached one, by the hash of its name: a million take some 40 MB.
    has_reached: HashMap<u64, bool>,
}

impl NearWalk {
    pub fn position(&self) -> Option<RaisedPosition> {
        self.next.clone()
    }

    /// Whether another slice is to be examined. A ranking of several slices is renewed by one after each pause, however
    /// many people look at it; while counting lags, one of a single slice too.
    pub fn is_due(&self, lag: CountingLag) -> bool {
        let NearRanking { is_complete, slices, .. } = *self.best;
        let is_short = slices <= 1 && lag == CountingLag::None;
        !is_complete || is_short || self.newest.is_none_or(|(at, took)| pause_after(took, lag) <= at.elapsed())
    }

    /// Adds the slice that begins at the position, which was read in this time. After the last one, the next is the
    /// first again.
    pub fn add(&mut self, NearSlice { rows, examined, next }: NearSlice, took: Duration, now: UnixMs) {
        if self.next.is_none() {
            self.partial.began = now;
        }
        for row in rows.iter().filter(|row| row.permille() >= NEAR_PERMILLE) {
            let mut hasher = DefaultHasher::new();
            row.count.subject.hash(&mut hasher);
            *self.has_reached.entry(hasher.finish()).or_default() |= !row.is_below();
        }
        self.partial.add(rows);
        self.partial.examined += examined;
        self.partial.slices += 1;
        self.newest = Some((Instant::now(), took));
        self.partial.reached = self.has_reached.values().filter(|has_reached| **has_reached).count();
        self.partial.above_80 = self.has_reached.len() - self.partial.reached;
        self.next = next;
        self.partial.is_complete = self.next.is_none();
        if self.partial.is_complete {
            self.best = Arc::new(std::mem::take(&mut self.partial));
            self.has_reached = HashMap::new();
        } else if !self.best.is_complete {
            self.best = Arc::new(self.partial.clone());
        }
    }
}

fn pause_after(took: Duration, lag: CountingLag) -> Duration {
    PAUSE_MIN.max(took * if lag == CountingLag::Behind { BEHIND_PAUSE } else { PAUSE })
}

/// A ranking for each of the last filters. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct NearRankings(Arc<Mutex<Vec<KeptRanking>>>);

#[derive(Debug)]
struct KeptRanking {
    filter: NearFilter,
    asked: Instant,
    ranking: Arc<SharedRanking>,
}

/// A ranking that one request renews while others list it.
#[derive(Debug, Default)]
pub struct SharedRanking {
    /// Locked by the request that examines a slice.
    pub walk: tokio::sync::Mutex<NearWalk>,
    best: Mutex<Arc<NearRanking>>,
}

impl SharedRanking {
    /// The best that is known.
    pub fn best(&self) -> Arc<NearRanking> {
        Arc::clone(&self.best.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lists what the walk has found from now on.
    pub fn publish(&self, walk: &NearWalk) {
        *self.best.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&walk.best);
    }
}

impl NearRankings {
    /// The ranking with this filter.
    pub fn get(&self, filter: &NearFilter) -> Arc<SharedRanking> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.extract_if(.., |kept| kept.filter == *filter).map(|kept| kept.ranking).next();
        kept.retain(|kept| kept.asked.elapsed() < KEPT_FOR);
        kept.truncate(FILTERS_MAX - 1);
        let ranking = known.unwrap_or_default();
        let (filter, asked) = (filter.clone(), Instant::now());
        kept.insert(0, KeptRanking { filter, asked, ranking: Arc::clone(&ranking) });
        ranking
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::timestamp::Rfc3339;

    /// Who has run out already would hide who runs out next.
    #[test]
    fn those_that_run_out_first_come_first() {
        let foreseen = |state, at: Option<i64>| Some(ForecastView::sample(state, at.map(UnixMs).map(Rfc3339)));
        let in_order = [
            ("almost", 951, None),
            ("soon", 400, foreseen(ForecastState::Possible, Some(1))),
            ("later", 700, foreseen(ForecastState::Likely, Some(2))),
            ("in this period", 800, foreseen(ForecastState::Likely, None)),
            ("unlikely", 999, foreseen(ForecastState::Unlikely, None)),
            ("no forecast", 949, None),
            ("most", 2_000, None),
            ("used up", 1_000, foreseen(ForecastState::Reached, None)),
        ];
        let mut sorted: Vec<_> = in_order.iter().rev().collect();
        sorted.sort_by_key(|(_, used, forecast)| urgency(*used, 1_000, forecast.as_ref()));
        let names = |of: &[&(&'static str, u64, Option<ForecastView>)]| of.iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(names(&sorted), names(&in_order.iter().collect::<Vec<_>>()));
    }

    fn period() -> Period {
        "2026-11-21".parse::<crate::types::Day>().expect("a date").into()
    }

    fn slice(rows: Vec<NearRow>, is_last: bool) -> NearSlice {
        let next = serde_json::json!({"partition": 0, "metric": "requests", "period": period(), "bucket": 0});
        let next = (!is_last).then(|| serde_json::from_value(next).expect("a position"));
        NearSlice { rows, examined: 1, next }
    }

    /// Ten people who look at a ranking must not cost Redis ten times as much, and one slice is always new.
    #[test]
    fn only_a_ranking_of_several_slices_waits() {
        let walked = |slices: &[bool]| {
            let mut walk = NearWalk::default();
            slices.iter().for_each(|is_last| walk.add(slice(Vec::new(), *is_last), Duration::ZERO, UnixMs(0)));
            [CountingLag::None, CountingLag::Behind].map(|lag| walk.is_due(lag))
        };
        let walks: [&[bool]; 5] = [&[], &[true], &[false], &[false, true], &[false, true, false]];
        let [anew, lagging] = [[true, true], [true, false]];
        assert_eq!(walks.map(walked), [anew, lagging, anew, [false, false], [false, false]]);
        let pauses = |lag| [1, 100].map(|ms| pause_after(Duration::from_millis(ms), lag).as_secs());
        assert_eq!([CountingLag::None, CountingLag::Behind].map(pauses), [[1, 1], [1, 30]]);
    }

    /// A list that leaves some out must not pass for all.
    #[test]
    fn a_ranking_that_is_cut_says_so() {
        let row = NearRow {
            count: SubjectCount { subject: "alice".parse().expect("legal"), used: 90 },
            of: MetricPeriod { metric: Metric::default(), period: period() },
            name: None,
            plan: "free".to_owned(),
            limit: 100,
            alerts: Vec::new(),
            forecast: None,
        };
        let is_cut = |count| {
            let mut walk = NearWalk::default();
            walk.add(slice(vec![row.clone(); count], true), Duration::ZERO, UnixMs(0));
            walk.best.is_cut
        };
        assert_eq!([RANKED_MAX, RANKED_MAX + 1].map(is_cut), [false, true]);
    }
}
