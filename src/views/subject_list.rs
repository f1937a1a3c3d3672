//! The subjects for which something is set, a part at a time.
//!
//! Their keys are found by SCAN, a slice at a time, so a page costs the server little however many keys it has. As SCAN
//! promises: who is there from the first page to the last is listed, in no order; while others are added, perhaps
//! twice.
//! A cluster is gone through primary by primary; a subject that moves from one to another meanwhile may be left out.

use std::collections::BTreeSet;

use redis::RedisResult;
use serde::{Deserialize, Serialize};

use super::SubjectView;
use crate::redis_client::{ErrorKind, Partition, RedisClient, error_kind};
use crate::subjects::Plans;
use crate::subjects::record::SubjectField;
use crate::types::{Keys, Subject};

/// Keys that one SCAN looks at, at least and at most. It may find as many subjects more than there is room for on the
/// page, which then stand in the cursor: a few, so that the cursor fits into a URL.
const SCAN_COUNT_MIN: usize = 10;
const SCAN_COUNT_MAX: usize = 1000;
/// Looks for one page. A page of a server with many other keys may be short, and even empty.
const SCANS_MAX: usize = 1000;

/// A part of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct SubjectSlice {
    pub subjects: Vec<SubjectView>,
    /// Where to go on; `None` at the end.
    pub next: Option<SubjectCursor>,
}

/// The position of a list. [`SubjectCursor::default`] is its start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubjectCursor {
    /// The position of SCAN, or its end.
    scan: ScanPosition,
    /// Subjects that were found and not listed yet.
    found: Vec<Subject>,
}

/// How far SCAN is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ScanPosition {
    At {
        /// Which of the primaries, from 0.
        primary: usize,
        cursor: u64,
    },
    Ended,
}

/// Reads at most `limit` subjects from the cursor on. A key that names no legal subject is left out: no event can have
/// it.
pub async fn read(
    partition: &Partition,
    plans: &Plans,
    after: SubjectCursor,
    limit: usize,
) -> RedisResult<SubjectSlice> {
    let SubjectCursor { scan: mut position, found } = after;
    let mut found: BTreeSet<Subject> = found.into_iter().collect();
    for _ in 0..SCANS_MAX {
        if position == ScanPosition::Ended || found.len() >= limit {
            break;
        }
        let count = (limit - found.len()).clamp(SCAN_COUNT_MIN, SCAN_COUNT_MAX);
        let (slice, next) = scan(partition, position, count).await?;
        found.extend(slice);
        position = next;
    }
    let mut listed: Vec<Subject> = found.into_iter().collect();
    let found = listed.split_off(limit.min(listed.len()));
    let ended = position == ScanPosition::Ended && found.is_empty();
    let next = (!ended).then_some(SubjectCursor { scan: position, found });
    let Partition { client, keys } = partition;
    Ok(SubjectSlice { subjects: read_subjects(client, keys, plans, &listed).await?, next })
}

/// The subjects among about `count` keys from a position on, and the position after them.
pub(super) async fn scan(
    Partition { client, keys }: &Partition,
    position: ScanPosition,
    count: usize,
) -> RedisResult<(Vec<Subject>, ScanPosition)> {
    let primaries = client.primaries().await?;
    let ScanPosition::At { primary, cursor } = position else { return Ok((Vec::new(), ScanPosition::Ended)) };
    let Some(server) = primaries.get(primary) else { return Ok((Vec::new(), ScanPosition::Ended)) };
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(keys.subject_pattern()).arg("COUNT").arg(count);
    let (next, slice): (u64, Vec<Vec<u8>>) = server.query(&command).await?;
    let prefix = keys.subject_prefix().len();
    let found = slice.iter().filter_map(|key| Subject::parse(key.get(prefix..)?).ok()).collect();
    let next = match next {
        0 if primary + 1 == primaries.len() => ScanPosition::Ended,
        0 => ScanPosition::At { primary: primary + 1, cursor: 0 },
        cursor => ScanPosition::At { primary, cursor },
    };
    Ok((found, next))
}

/// These subjects, without those that are gone meanwhile.
pub async fn read_subjects(
    client: &RedisClient,
    keys: &Keys,
    plans: &Plans,
    subjects: &[Subject],
) -> RedisResult<Vec<SubjectView>> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for subject in subjects {
        pipeline.cmd("HGETALL").arg(keys.subject(subject));
    }
    let hashes: Vec<RedisResult<Vec<SubjectField>>> = client.pipe(&pipeline).await?;
    let now = client.server_time().await?;
    let mut views = Vec::with_capacity(subjects.len());
    for (subject, fields) in subjects.iter().zip(hashes) {
        let name = subject.as_str().as_bytes();
        match fields {
            Err(error) if error_kind(&error) == ErrorKind::WrongType => views.push(SubjectView::no_hash(name, plans)),
            fields => {
                let fields = fields?;
                if !fields.is_empty() {
                    views.push(SubjectView::read(name, &fields, plans, now));
                }
            }
        }
    }
    Ok(views)
}

impl Default for ScanPosition {
    fn default() -> Self {
        Self::At { primary: 0, cursor: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Cursor;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    proptest! {
        /// A cursor that comes back as another one would skip subjects.
        #[test]
        fn cursors_read_back(position in proptest::option::of(any::<(usize, u64)>()), found in proptest::collection::vec("[^\\p{Cc}]{1,20}", 0..5)) {
            let at = |(primary, cursor)| ScanPosition::At { primary, cursor };
            let scan = position.map_or(ScanPosition::Ended, at);
            let cursor = SubjectCursor { scan, found: found.iter().map(|name| name.parse().expect("legal")).collect() };
            prop_assert_eq!(Cursor(cursor.clone()).to_string().parse(), Ok(Cursor(cursor)));
        }

        /// Callers may send anything.
        #[test]
        fn other_texts_never_panic(json in "([{}\"a-z0-9:,\\[\\]]|\"(scan|At|found|Ended)\"){0,20}") {
            let _ = URL_SAFE_NO_PAD.encode(json).parse::<Cursor<SubjectCursor>>();
        }
    }
}
