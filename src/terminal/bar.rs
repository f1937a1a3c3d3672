//! A bar for the used part of a limit, with marks at the thresholds. Pure.

use crate::types::{Threshold, Units};

/// Width of a bar inside its end marks, characters.
const CELLS: u32 = 20;

/// `▕████████████████┊██ ▏`: full cells are used, and each `┊` is a threshold. Empty without a limit, or if it is 0. A
/// cell is full only if all of it is used, and a bar beyond the limit ends with `▶`.
pub fn bar(used: u64, limit: Option<u64>, thresholds: &[Threshold]) -> String {
    let Some(limit) = limit.and_then(Units::new) else { return String::new() };
    let scaled = |units: u128| units.saturating_mul(CELLS.into()) / u128::from(limit.get());
    let full = scaled(used.into());
    // The last cell has no mark: the end of the bar is the limit.
    let marks = thresholds.iter().filter_map(|threshold| threshold.units_of(limit));
    let marks: Vec<u128> = marks.map(scaled).collect();
    let cell = |cell: u128| match (marks.contains(&cell), cell < full) {
        (true, _) => '┊',
        (false, true) => '█',
        (false, false) => ' ',
    };
    let cells: String = (0..CELLS.into()).map(cell).collect();
    let end = if used > limit.get() { '▶' } else { '▏' };
    format!("▕{cells}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full bar below the limit, or a gap at the limit, would say the opposite of the number beside it.
    #[test]
    fn a_bar_is_full_at_the_limit_and_not_before() {
        let thresholds = ["80", "100", "used:150", "remaining:50"].map(|text| text.parse().expect("legal"));
        for (used, limit, expected) in [
            (0, Some(1000), "▕   ┊            ┊  ┊▏"),
            (500, Some(1000), "▕███┊██████      ┊  ┊▏"),
            (999, Some(1000), "▕███┊████████████┊██┊▏"),
            (1000, Some(1000), "▕███┊████████████┊██┊▏"),
        ] {
            assert_eq!(bar(used, limit, &thresholds), expected, "{used}");
        }
        assert_eq!(bar(999, Some(1000), &[]), "▕███████████████████ ▏");
        assert_eq!(bar(1000, Some(1000), &[]), "▕████████████████████▏");
        assert_eq!(bar(u64::MAX, Some(1), &[]), "▕████████████████████▶");
        assert_eq!((bar(5, None, &[]), bar(5, Some(0), &[])), (String::new(), String::new()));
    }
}
