//! The levels of a subject in the cache: an event counts at each of them.

use std::sync::Arc;

use crate::subjects::Profile;
use crate::types::subject::LEVELS_MAX;
use crate::types::text::pluralize;
use crate::types::units::UNITS_MAX;
use crate::types::{RefusalReason, Separator, Subject, Units};

use super::parse::InvalidEvent;
use super::worker_cache::{Parent, WorkerCache};

/// The indexes of a subject and of all levels above it, from the top.
#[derive(Debug, Clone, Copy)]
pub(super) struct Levels {
    indexes: [u32; LEVELS_MAX],
    count: u8,
}

impl Levels {
    /// From the top to the subject of the event.
    pub(super) fn as_slice(&self) -> &[u32] {
        &self.indexes[..usize::from(self.count)]
    }
}

impl WorkerCache {
    /// The levels of a subject. `None` if a level above it is not in the cache, unless `adds` lets it be added.
    pub(super) fn levels(&mut self, separator: Separator, subject_index: u32, adds: bool) -> Option<Levels> {
        let mut levels = Levels { indexes: [subject_index; LEVELS_MAX], count: 1 };
        if separator.is_none() {
            return Some(levels);
        }
        let mut at = subject_index;
        while let Some(parent) = self.parent(separator, at, adds)? {
            levels.indexes.copy_within(..LEVELS_MAX - 1, 1);
            levels.indexes[0] = parent;
            levels.count += 1;
            at = parent;
        }
        Some(levels)
    }

    /// The index of the level above; `None` if it is not in the cache.
    fn parent(&mut self, separator: Separator, at: u32, adds: bool) -> Option<Option<u32>> {
        match self.cache.subject(at).extra.parent {
            Parent::At(parent) => return Some(Some(parent)),
            Parent::Missing => return Some(None),
            Parent::Unknown => {}
        }
        let name = self.cache.subject(at).subject.clone();
        let parent = match separator.parent(name.as_str()) {
            None => Parent::Missing,
            Some(above) => match self.cache.find(above.as_bytes()) {
                Some(parent) => Parent::At(parent),
                None if adds => {
                    Parent::At(self.cache.add(Subject::parse(above.as_bytes()).expect("a part of a subject is one")))
                }
                None => return None,
            },
        };
        self.cache.subject_mut(at).extra.parent = parent;
        // The subject may have been used before anybody looked for its level above.
        self.used_by(at, self.cache.subject(at).used);
        Some(if let Parent::At(parent) = parent { Some(parent) } else { None })
    }

    /// The settings of a subject, with what they inherit from the level above. If they have changed, its rows must be
    /// judged again.
    pub(super) fn inherit(&mut self, subject_index: u32, own: &Arc<Profile>, above: Option<u32>) -> Arc<Profile> {
        let of_above = above.and_then(|above| self.cache.subject(above).extra.profile.clone());
        let rows = &mut self.cache.subject_mut(subject_index).extra;
        if let (Some(profile), true) = (&rows.profile, rows.is_made_from(own, of_above.as_ref())) {
            return Arc::clone(profile);
        }
        (rows.own, rows.above) = (Some(Arc::clone(own)), of_above.clone());
        rows.settings = rows.settings.wrapping_add(1);
        // Both were made from the settings before.
        rows.below = None;
        rows.clear();
        let profile = match (above, of_above) {
            (Some(above), Some(of_above)) => {
                let below = &mut self.cache.subject_mut(above).extra.below;
                match below {
                    Some([same, profile]) if Arc::ptr_eq(same, own) => Arc::clone(profile),
                    _ => {
                        let profile = Arc::new(own.below(&of_above));
                        *below = Some([Arc::clone(own), Arc::clone(&profile)]);
                        profile
                    }
                }
            }
            _ => Arc::clone(own),
        };
        self.cache.subject_mut(subject_index).extra.profile = Some(Arc::clone(&profile));
        profile
    }

    /// Keeps a subject and the levels above it in the cache: batch `number` uses them.
    pub(super) fn used_by(&mut self, subject_index: u32, number: u64) {
        let mut at = Parent::At(subject_index);
        while let Parent::At(index) = at {
            let subject = self.cache.subject_mut(index);
            subject.used = subject.used.max(number);
            at = subject.extra.parent;
        }
    }
    /// Checks that an event of `units` fits in all counters of a subject.
    ///
    /// # Errors
    ///
    /// A counter would pass 2^53 - 1.
    pub(super) fn check_fits(&self, subject_index: u32, units: Units) -> Result<(), InvalidEvent> {
        let rows = self.cache.subject(subject_index).extra.rows();
        let left = |row: &u32| UNITS_MAX - self.totals.row(*row).total;
        let Some(left) = rows.iter().map(left).find(|left| *left < units.get()) else { return Ok(()) };
        let left = pluralize(left, "unit fits", "units fit");
        let detail = format!("the counter would pass {UNITS_MAX}, {left}");
        Err(InvalidEvent::new(RefusalReason::CounterOverflow, detail))
    }
}
