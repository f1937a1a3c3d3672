//! Medians, percentiles and their formats.

/// Repeated measurements of one figure.
#[derive(Debug, Clone, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds a figure.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The figure below which this share of all figures is; 0.5 is the median, 1.0 the maximum.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return f64::NAN;
        }
        // The nearest rank.
        let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1]
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The average.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Rates of this series beside those of another, and their ratio.
    pub fn compared_with(&self, alone: &Self) -> String {
        let shown = |rates: &Self| format!("{} ({})", thousands(rates.median()), rates.spread(thousands));
        format!("{} events/s beside {}: {:.2}", shown(self), shown(alone), self.median() / alone.median())
    }

    /// The minimum and the maximum, as `a .. b`.
    pub fn spread(&self, print: impl Fn(f64) -> String) -> String {
        format!("{} .. {}", print(self.quantile(0.0)), print(self.quantile(1.0)))
    }
}

/// `1234567` as `1,235 k`; small numbers with one decimal.
pub fn thousands(number: f64) -> String {
    let k = number / 1000.0;
    if k < 100.0 {
        return format!("{k:.1} k");
    }
    let whole = format!("{k:.0}");
    let (head, tail) = whole.split_at(whole.len() - 3);
    if head.is_empty() { format!("{tail} k") } else { format!("{head},{tail} k") }
}

/// Microseconds per event.
pub fn micros(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}

/// Milliseconds.
pub fn millis(number: f64) -> String {
    format!("{number:.1} ms")
}

/// Bytes as MiB.
pub fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1024.0 / 1024.0)
}
