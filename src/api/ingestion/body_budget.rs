//! The memory that bodies of events may use together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum length of all bodies in flight, received and decompressed, bytes.
pub const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Counts the bytes of all bodies in flight. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct BodyBudget(Arc<AtomicUsize>);

/// The bytes of one body. Dropping it returns them.
#[derive(Debug)]
pub(super) struct BodyReservation {
    budget: BodyBudget,
    bytes: usize,
}

/// Other bodies use all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bodies of {BODIES_BYTES_MAX} bytes are in flight: try again")]
pub struct BudgetExhausted;

impl BodyBudget {
    /// A reservation of nothing yet.
    pub(super) fn reservation(&self) -> BodyReservation {
        BodyReservation { budget: self.clone(), bytes: 0 }
    }
}

impl BodyReservation {
    /// Reserves more bytes. A body reserves what has arrived, so a slow client does not keep others out.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= BODIES_BYTES_MAX);
        self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| BudgetExhausted)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns all bytes.
    pub(super) fn release(&mut self) {
        self.budget.0.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are not returned would refuse every request after some days.
    #[test]
    fn a_dropped_reservation_returns_its_bytes() {
        let budget = BodyBudget::default();
        let mut first = budget.reservation();
        first.grow(BODIES_BYTES_MAX - 1).expect("room");
        let mut second = budget.reservation();
        assert_eq!((second.grow(1), second.grow(1)), (Ok(()), Err(BudgetExhausted)));
        drop(first);
        assert_eq!(second.grow(BODIES_BYTES_MAX - 1), Ok(()));
        drop(second);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
