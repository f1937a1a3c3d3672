//! What the scenario expects: alerts, forecasts and ends, each with the id that the daemon derives. Pure.

use anyhow::Context as _;

use crate::types::{
    AlertId, AlertKey, BillingDay, DeploymentId, Limits, Metric, Percent, Period, PeriodSpan, ResolvedNotice,
    ResolvedScope, Subject, UnixMs, UsageNotice, UsageNoticeKind, WindowLimit,
};
use crate::zones::Zone;

/// The deployment id that the daemon finds, so that the ids of its alerts are known in advance.
pub(super) const INSTANCE: &str = "demo";

/// What happens to the count of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimulatedKind {
    Alert,
    Forecast,
    /// The end of the alerts of a limit.
    End,
}

pub(super) struct SimulatedAlert {
    /// As in the file.
    pub(super) what: String,
    pub(super) kind: SimulatedKind,
    /// The id, of a notice too.
    pub(super) id: AlertId,
    pub(super) period: Period,
}

impl SimulatedAlert {
    /// Reads `80 % of 5000/day`, `forecast of 5000/day` or `end of 5000/day`, of the period at `now`. The end is that
    /// of the alerts of its limit among those `before` it.
    pub(super) fn parse(
        what: &str,
        (subject, metric): (&Subject, &Metric),
        (zone, now): (Zone, UnixMs),
        before: &[Self],
    ) -> anyhow::Result<Self> {
        let form = || format!("{what:?} is not of the form \"80 % of 5000/day\"");
        let (point, limit) = what.split_once(" of ").with_context(form)?;
        let WindowLimit { window, units } = limit.parse::<Limits>()?.as_slice()[0];
        let span = PeriodSpan::containing(window, zone, BillingDay::FIRST, now).with_context(form)?;
        let units = units.nonzero().with_context(form)?;
        let period = span.period;
        let instance = DeploymentId::from_stored(INSTANCE);
        let (kind, id) = match point {
            "forecast" => {
                let of = (subject, metric, period);
                let id = UsageNotice::id_of(&instance, UsageNoticeKind::Forecast, of, Some(units.get()));
                (SimulatedKind::Forecast, AlertId::from_stored(&id))
            }
            "end" => {
                let of_limit = before.iter().filter(|alert| alert.what.ends_with(&format!("% of {limit}")));
                let mut ended: Vec<AlertId> = of_limit.map(|alert| alert.id.clone()).collect();
                ended.sort_unstable();
                let id = ResolvedNotice::id_of(ResolvedScope::Quota, &ended, &std::collections::BTreeSet::new());
                (SimulatedKind::End, AlertId::from_stored(&id))
            }
            _ => {
                let percent = point.strip_suffix(" %").with_context(form)?.parse()?;
                let percent = Percent::new(percent).with_context(form)?;
                let units = u64::try_from(percent.threshold_units(units)).unwrap_or(u64::MAX);
                let key = AlertKey { subject, metric, period, threshold: percent.into(), units };
                (SimulatedKind::Alert, AlertId::derive(&instance, &key))
            }
        };
        Ok(Self { what: what.to_owned(), kind, id, period })
    }
}
