//! The stored recipients for all notifications about quotas of one lease call, read in one round trip.
//!
//! The first task that asks reads for all of them. The result is valid only for a moment: a follower that has waited
//! longer reads for itself, so that a contact that was removed meanwhile gets nothing. Read next:
//! [`super::delivery_worker`].

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, RedisResult};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::lease::LeasedDelivery;
use crate::contacts::resolver::{ContactResolver, StoredRecipients};
use crate::redis_client::RedisClient;
use crate::types::Notification;

/// How long the result is used. A request may take as long anyway.
const FRESH: Duration = Duration::from_millis(100);

/// One delivery's share of the common read.
#[derive(Debug)]
pub(super) struct LeasedRecipients {
    shared: Arc<SharedRead>,
    /// Its replies among all.
    position: Range<usize>,
}

#[derive(Debug)]
struct SharedRead {
    pipeline: Pipeline,
    replies: OnceCell<Replies>,
}

#[derive(Debug)]
struct Replies {
    asked: Instant,
    stored: RedisResult<StoredRecipients>,
}

impl LeasedRecipients {
    /// Reads nothing yet. `None` for a delivery that is not about a quota.
    pub(super) fn of_each(contacts: &ContactResolver, leased: &[LeasedDelivery]) -> Vec<Option<Self>> {
        let (mut pipeline, mut positions) = (Pipeline::new(), Vec::with_capacity(leased.len()));
        pipeline.ignore_errors();
        for LeasedDelivery { notification, .. } in leased {
            let Some(quota) = notification.as_ref().ok().and_then(Notification::quota) else {
                positions.push(None);
                continue;
            };
            let commands = contacts.recipients_commands(quota);
            positions.push(Some(pipeline.len()..pipeline.len() + commands.len()));
            for command in commands {
                pipeline.add_command(command);
            }
        }
        let shared = Arc::new(SharedRead { pipeline, replies: OnceCell::new() });
        let at = |position: Option<Range<usize>>| Some(Self { shared: Arc::clone(&shared), position: position? });
        positions.into_iter().map(at).collect()
    }

    /// The stored recipients of the notification of a delivery with this share; `None` without one, or if they were
    /// read too long ago.
    pub(super) async fn get(own: Option<Self>, client: &RedisClient) -> Option<RedisResult<StoredRecipients>> {
        let Self { shared, position } = own?;
        let SharedRead { pipeline, replies } = &*shared;
        let read = || async { Replies { asked: Instant::now(), stored: client.pipe(pipeline).await } };
        let Replies { asked, stored } = replies.get_or_init(read).await;
        if asked.elapsed() > FRESH {
            return None;
        }
        match stored {
            Ok(stored) => stored.get(position).map(|own| Ok(own.to_vec())),
            Err(error) => Some(Err(error.clone())),
        }
    }
}
