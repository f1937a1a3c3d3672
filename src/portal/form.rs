//! Forms: how they are received, bounded, finished and recorded.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use quotabell_throttle::{ExpiringSet, ExpiringSetDecision};

use super::notice::PortalNotice;
use super::state::PortalState;
use crate::actions::action_log::{Action, record};
use crate::api::body::in_time;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::html::fields::Fields;
use crate::redis_client::Partition;
use crate::types::alert::digest_of;
use crate::types::{ContactId, Subject, nonce};

/// How long a form may take. A test message takes the longest.
const FORM_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of messages of one kind that the visitors of one subject may cause in an hour: they may go to strangers.
const SENT_MAX: ExpiringSet = match ExpiringSet::new(20) {
    Ok(set) => set,
    Err(_) => panic!("few enough for a set"),
};
const HOUR: Duration = Duration::from_secs(3600);
/// Who did it, in the log of actions.
const BY: &str = "portal";

/// The fields of a form; none if its body did not arrive in time.
#[derive(Debug)]
pub(super) struct PortalForm(pub(super) Fields);

impl FromRequest<Arc<PortalState>> for PortalForm {
    type Rejection = Response;

    async fn from_request(request: Request, portal: &Arc<PortalState>) -> Result<Self, Response> {
        let body = in_time(Bytes::from_request(request, portal)).await;
        Ok(Self(Fields::parse(&body.ok().and_then(Result::ok).unwrap_or_default())))
    }
}

/// What the action returns. It is finished although the browser leaves.
pub(super) async fn finished<T: Send + 'static>(
    action: impl Future<Output = Result<T, PortalNotice>> + Send + 'static,
) -> Result<T, PortalNotice> {
    let bounded = tokio::spawn(tokio::time::timeout(FORM_TIMEOUT, action));
    bounded.await.expect("a form does not panic").unwrap_or(Err(PortalNotice::Unavailable))
}

impl PortalState {
    /// Counts a message of this kind, or refuses it.
    pub(super) async fn count_sent(&self, what: &str, subject: &Subject) -> Result<(), PortalNotice> {
        let Partition { client, keys } = self.observer.partitions.first();
        let key = keys.portal_sent(what, &digest_of(&[subject.as_str()]));
        match SENT_MAX.add(&mut client.connection(), &key, &nonce(), HOUR).await {
            Ok(ExpiringSetDecision::Added { .. }) => Ok(()),
            Ok(ExpiringSetDecision::Full { .. }) => Err(PortalNotice::Wait),
            Err(error) => {
                tracing::warn!(%error, "Redis failed during a form of the portal");
                Err(PortalNotice::Unavailable)
            }
        }
    }

    /// Records what a visitor did. It is done: that it can't be recorded is no failure.
    pub(super) async fn record(&self, operation: &str, subject: &Subject, contact: &ContactId) {
        let action = Action { by: BY, action: operation, subject: Some(subject), target: contact.as_str(), count: 1 };
        if let Err(problem) = within(CALL_TIMEOUT, record(&self.observer.partitions, &action)).await {
            tracing::warn!(error = problem.detail(), "an action is missing from the log of actions");
        }
    }
}
