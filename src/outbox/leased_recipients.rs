//! What Redis holds of who gets the alerts of one call of the lease, read in one write.
//!
//! Whichever of their tasks asks first reads for all of them. What was read serves for a moment only: a delivery that
//! has followed others for longer asks for itself, so that a contact that was removed meanwhile gets nothing. Read
//! next: [`super::delivery_worker`].

use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, RedisResult};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::lease::LeasedDelivery;
use crate::contacts::resolver::{ContactResolver, StoredRecipients};
use crate::redis_client::RedisClient;
use crate::types::Notification;

/// How long what was read is taken for what is stored: no longer than a request may be on its way anyway.
const FRESH: Duration = Duration::from_millis(100);

/// What one delivery gets of a reading for all that were leased together.
#[derive(Debug)]
pub(super) struct LeasedRecipients {
    shared: Arc<SharedRead>,
    position: usize,
}

#[derive(Debug)]
struct SharedRead {
    pipeline: Pipeline,
    replies: OnceCell<Replies>,
}

#[derive(Debug)]
struct Replies {
    asked: Instant,
    stored: RedisResult<Vec<RedisResult<StoredRecipients>>>,
}

impl LeasedRecipients {
    /// Reads nothing yet. `None` for a delivery that is about no alert.
    pub(super) fn of_each(contacts: &ContactResolver, leased: &[LeasedDelivery]) -> Vec<Option<Self>> {
        let (mut pipeline, mut positions) = (Pipeline::new(), Vec::with_capacity(leased.len()));
        pipeline.ignore_errors();
        for LeasedDelivery { notification, .. } in leased {
            let Ok(Notification::Alert(alert)) = notification else {
                positions.push(None);
                continue;
            };
            positions.push(Some(pipeline.len()));
            pipeline.add_command(contacts.recipients_command(alert));
        }
        let shared = Arc::new(SharedRead { pipeline, replies: OnceCell::new() });
        let at = |position: Option<usize>| Some(Self { shared: Arc::clone(&shared), position: position? });
        positions.into_iter().map(at).collect()
    }

    /// What is stored of who gets this delivery's alert; `None` where that was read too long ago.
    pub(super) async fn get(&self, client: &RedisClient) -> Option<RedisResult<StoredRecipients>> {
        let SharedRead { pipeline, replies } = &*self.shared;
        let read = || async { Replies { asked: Instant::now(), stored: client.pipe(pipeline).await } };
        let Replies { asked, stored } = replies.get_or_init(read).await;
        if asked.elapsed() > FRESH {
            return None;
        }
        match stored {
            Ok(stored) => stored.get(self.position).cloned(),
            Err(error) => Some(Err(error.clone())),
        }
    }
}
