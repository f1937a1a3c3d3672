//! How numbers and times are written. Pure.

use std::time::Duration;

/// 1234567 as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Seconds since the beginning, one decimal, right-aligned.
pub(super) fn clock(elapsed: Duration) -> String {
    format!("{:5.1}s", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts are compared as they are shown, so two different numbers must never look the same.
    #[test]
    fn numbers_are_grouped_and_times_aligned() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(clock(Duration::from_millis(2_340)), "  2.3s");
    }
}
