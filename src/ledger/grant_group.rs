//! The grants of one metric and period, and how its usage is divided among them. Pure.

use serde::{Deserialize, Serialize};

use super::totals::COUNTER_TTL_S;
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{GrantId, LimitUnits, Metric, Period, Units, UnixMs};

/// Maximum number of grants of a metric and period that are listed. Of the oldest ones without units left only the sum
/// of what they paid for is kept; their ids may then be used again.
pub const LISTED_MAX: usize = 1_000;
/// How long the grants of an ended period are kept, and their ids are known.
const KEPT_AFTER_PERIOD_MS: i64 = COUNTER_TTL_S as i64 * 1_000;

text_enum! {
    /// Whether a grant still adds all of its units.
    pub enum GrantState {
        /// It adds all of its units.
        Active = "active",
        /// It adds the units that it had paid for when it expired.
        Expired = "expired",
        /// It adds the units that it had paid for when it was revoked.
        Revoked = "revoked",
    }
}

/// A grant. Also its JSON form in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id: a grant is given once by it.
    pub id: GrantId,
    /// The metric of the limit that it raises.
    pub metric: Metric,
    /// The period of that limit.
    pub period: Period,
    /// The units that it adds.
    pub units: Units,
    /// The units that it has paid for, at the last settlement.
    pub spent: u64,
    /// Whether it has ended.
    pub state: GrantState,
    /// When what is left is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
    /// When to send a notice that it expires soon; none if that was done or is not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice_at: Option<Rfc3339>,
    /// A text of whoever gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was added, server time.
    pub added_at: Rfc3339,
    /// When it expired or was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Rfc3339>,
}

impl Grant {
    /// The units that are left; none after its end.
    pub fn remaining(&self) -> u64 {
        if self.state == GrantState::Active { self.units.get().saturating_sub(self.spent) } else { 0 }
    }

    /// Whether somebody asks for the same grant again.
    pub(super) fn has_content_of(&self, other: &Self) -> bool {
        // A repetition in the next day or month asks for the same grant, which is given once.
        let content = |grant: &Self| (grant.metric.clone(), grant.period.window(), grant.units, grant.expires_at);
        content(self) == content(other) && self.note == other.note
    }

    /// The units that it adds to the limit.
    pub(super) fn added(&self) -> u64 {
        if self.state == GrantState::Active { self.units.get() } else { self.spent }
    }

    pub(super) fn end(&mut self, state: GrantState, at: UnixMs) {
        (self.state, self.ended_at, self.notice_at) = (state, Some(Rfc3339(at)), None);
    }
}

/// The grants of one metric and period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantGroup {
    /// The counter at the last settlement.
    pub(super) settled: u64,
    /// What grants have paid for that are not listed any more.
    pub(super) paid: u64,
    /// Whether the period is over: its counter may be gone, and nothing is divided any more.
    pub(super) is_closed: bool,
    /// In the order in which they were added.
    pub(super) grants: Vec<Grant>,
}

/// The JSON form of a group in Redis; each of its grants has a field of its own.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredGroup {
    pub(super) settled: u64,
    #[serde(default)]
    pub(super) paid: u64,
    #[serde(default, rename = "closed", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_closed: bool,
}

impl GrantGroup {
    /// Divides the usage since the last settlement: among the active grants in the order of their expiry, those without
    /// expiry last; what they can't pay for is paid by the limit of the plan. `base` is that limit, if it is known.
    ///
    /// Units that were given back by a credit are returned in the opposite order, and never to a grant that has ended.
    pub(super) fn settle(&mut self, total: u64, base: Option<LimitUnits>) {
        if self.is_closed {
            return;
        }
        let spent = self.spent();
        if total >= self.settled {
            self.take(total - self.settled);
        } else {
            let paid_by_limit = self.settled.saturating_sub(spent);
            self.give_back((self.settled - total).saturating_sub(paid_by_limit));
        }
        self.settled = total;
        // Usage above the limit waits for the next grant.
        if let Some(base) = base {
            self.take(total.saturating_sub(self.spent().saturating_add(base.get())));
        }
    }

    fn spent(&self) -> u64 {
        self.grants.iter().fold(self.paid, |sum, grant| sum.saturating_add(grant.spent))
    }

    fn take(&mut self, mut units: u64) {
        for grant in self.active() {
            let taken = grant.remaining().min(units);
            grant.spent += taken;
            units -= taken;
        }
    }

    fn give_back(&mut self, mut units: u64) {
        for grant in self.active().into_iter().rev() {
            let given = grant.spent.min(units);
            grant.spent -= given;
            units -= given;
        }
    }

    /// The active grants in the order in which they pay.
    fn active(&mut self) -> Vec<&mut Grant> {
        let is_active = |grant: &&mut Grant| grant.state == GrantState::Active;
        let mut active: Vec<&mut Grant> = self.grants.iter_mut().filter(is_active).collect();
        active.sort_by_key(|grant| grant.expires_at.map_or(i64::MAX, |at| at.0.0));
        active
    }

    pub(super) fn added(&self) -> u64 {
        self.grants.iter().fold(self.paid, |sum, grant| sum.saturating_add(grant.added()))
    }

    /// Keeps only the sum of the oldest grants without units left.
    pub(super) fn shorten(&mut self) {
        let mut surplus = self.grants.len().saturating_sub(LISTED_MAX);
        let paid = &mut self.paid;
        self.grants.retain(|grant| {
            let goes = surplus > 0 && grant.remaining() == 0;
            if goes {
                (surplus, *paid) = (surplus - 1, paid.saturating_add(grant.spent));
            }
            !goes
        });
    }

    /// When something of this group is due next.
    pub(super) fn due(&self, period: Period) -> Option<UnixMs> {
        let active = self.grants.iter().filter(|grant| grant.state == GrantState::Active);
        let times = active.flat_map(|grant| [grant.expires_at, grant.notice_at]).flatten().map(|at| at.0);
        let closes_at = period.has_end().then(|| period.ends_everywhere()).filter(|_| !self.is_closed);
        times.chain(closes_at).chain(kept_until(period)).min()
    }

    /// Divides the usage of a period that is over for the last time. Its grants keep raising its limit, because events
    /// of it may still arrive.
    pub(super) fn close(&mut self, total: u64, base: Option<LimitUnits>) {
        // After a long absence the counter may be gone, which is no credit.
        if total >= self.settled {
            self.settle(total, base);
        }
        self.is_closed = true;
    }
}

/// When the grants of a period are removed; never those of a total.
pub(super) fn kept_until(period: Period) -> Option<UnixMs> {
    period.has_end().then(|| period.ends_everywhere().plus(KEPT_AFTER_PERIOD_MS))
}
