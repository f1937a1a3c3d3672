//! Bars for a series of numbers, as whole numbers of an SVG's own units. Pure: the template draws them, and shows the
//! same numbers as a table.

use serde::Serialize;

/// Width of a chart, in units of its SVG, as all lengths here.
pub const WIDTH: u64 = 900;
/// Height of a chart.
pub const HEIGHT: u64 = 120;
/// Number of bars that a chart has room for at least: few bars would be as wide as the page.
const SLOTS_MIN: u64 = 30;

/// A chart of bars that stand on its lower edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chart {
    /// [`WIDTH`].
    pub width: u64,
    /// [`HEIGHT`].
    pub height: u64,
    /// From left to right.
    pub bars: Vec<Bar>,
    /// The height of the limit's line from the upper edge; `None` without a limit.
    pub limit_y: Option<u64>,
}

/// A bar, with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// What the number is of, such as a day.
    pub label: String,
    /// The number.
    pub value: u64,
    /// Distance from the left edge.
    pub x: u64,
    /// Distance from the upper edge.
    pub y: u64,
    /// Width, without the gap to the next bar.
    pub width: u64,
    /// Height, in proportion to the number.
    pub height: u64,
}

impl Chart {
    /// A chart of these numbers in their order. The highest number, or the limit if it is higher, has the full height.
    pub fn new(series: impl ExactSizeIterator<Item = (String, u64)>, limit: Option<u64>) -> Self {
        let count = (series.len() as u64).max(SLOTS_MIN);
        let series: Vec<(String, u64)> = series.collect();
        let highest = series.iter().map(|(_, value)| *value).chain(limit).max().unwrap_or(0).max(1);
        let scaled = |value: u64| {
            let height = u128::from(value) * u128::from(HEIGHT) / u128::from(highest);
            u64::try_from(height).unwrap_or(HEIGHT)
        };
        let bar = |(at, (label, value)): (u64, (String, u64))| {
            let (x, end, height) = (at * WIDTH / count, (at + 1) * WIDTH / count, scaled(value));
            // A pixel between two bars.
            Bar { label, value, x, y: HEIGHT - height, width: (end - x).saturating_sub(1).max(1), height }
        };
        let bars = (0..).zip(series).map(bar).collect();
        Self { width: WIDTH, height: HEIGHT, bars, limit_y: limit.map(|limit| HEIGHT - scaled(limit)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A bar outside the box would not be seen, and bars that overlap would hide each other.
        #[test]
        fn bars_are_inside_the_box_and_have_the_numbers_of_the_series(values in proptest::collection::vec(any::<u64>(), 0..100), limit in proptest::option::of(any::<u64>())) {
            let chart = Chart::new(values.iter().map(|value| (value.to_string(), *value)), limit);
            prop_assert_eq!(chart.bars.iter().map(|bar| bar.value).collect::<Vec<_>>(), values);
            prop_assert!(chart.limit_y.is_none_or(|y| y <= HEIGHT));
            for bar in &chart.bars {
                prop_assert!(bar.x + bar.width <= WIDTH && bar.y + bar.height == HEIGHT && bar.width > 0);
            }
            prop_assert!(chart.bars.windows(2).all(|pair| pair[0].x + pair[0].width <= pair[1].x));
        }
    }
}
