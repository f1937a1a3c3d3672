//! What the read models about all subjects are read with.

use std::time::Duration;

use super::near_ranking::NearRankings;
use crate::contacts::Contact;
use crate::contacts::resolver::ContactResolver;
use crate::outbox::MultiplePolicy;
use crate::redis_client::Partitions;
use crate::subjects::Plans;

/// Reads the state of all subjects, deliveries and daemons. Each method makes a bounded number of calls.
#[derive(Debug, Clone)]
pub struct Observer {
    /// Every partition.
    pub partitions: Partitions,
    /// Finds the contacts of a subject.
    pub contacts: ContactResolver,
    /// The contacts of the configuration, with the ids that deliveries to them have.
    pub configured: Vec<Contact>,
    /// Which alerts are sent if a count passes several thresholds at once.
    pub on_multiple: MultiplePolicy,
    /// How long a delivery is retried.
    pub give_up_after: Duration,
    /// The plans in effect.
    pub plans: Plans,
    /// What was read of the subjects near to a limit.
    pub(crate) near: NearRankings,
}
