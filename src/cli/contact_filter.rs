//! Which alerts a contact hears, as a command line names it.

use std::fmt;
use std::str::FromStr;

use clap::Args;

use crate::contacts::state::FilterChange;
use crate::types::contact_filter::ALL;
use crate::types::{ContactFilter, ContactFilterError, Metric, Percent};

/// The flags that say which alerts a contact hears.
#[derive(Debug, Clone, Args)]
pub struct ContactFilterArgs {
    /// Send it alerts at this percentage of a limit only, or `all` again
    #[arg(long = "threshold", value_name = "PERCENT", value_delimiter = ',')]
    pub thresholds: Vec<FilterValue<Percent>>,
    /// Send it alerts of this metric only, or `all` again
    #[arg(long = "metric", value_name = "METRIC", value_delimiter = ',')]
    pub metrics: Vec<FilterValue<Metric>>,
}

/// A value, or the word for all of them.
#[derive(Debug, Clone)]
pub enum FilterValue<T> {
    All,
    One(T),
}

impl<T: FromStr> FromStr for FilterValue<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == ALL { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

impl ContactFilterArgs {
    /// What one value of each says: percentages or metrics separated by commas, or `all`.
    pub fn parse(thresholds: Option<&str>, metrics: Option<&str>) -> Result<Self, String> {
        Ok(Self { thresholds: parts(thresholds)?, metrics: parts(metrics)? })
    }

    /// What is to become of the alerts that the contact hears.
    ///
    /// # Errors
    ///
    /// A sentence: a value that is named twice, or beside `all`.
    pub fn change(self) -> Result<FilterChange, String> {
        let thresholds = listed("threshold", self.thresholds)?;
        let metrics = listed("metric", self.metrics)?;
        let named = |error: ContactFilterError| error.to_string();
        // An empty list is `all` here.
        let filter = ContactFilter::new(
            thresholds.clone().filter(|list| !list.is_empty()),
            metrics.clone().filter(|list| !list.is_empty()),
        )
        .map_err(named)?;
        Ok(FilterChange { thresholds: thresholds.map(|_| filter.thresholds), metrics: metrics.map(|_| filter.metrics) })
    }
}

fn parts<T: FromStr<Err: fmt::Display>>(text: Option<&str>) -> Result<Vec<FilterValue<T>>, String> {
    let parts = text.into_iter().flat_map(|text| text.split(',').map(str::trim));
    parts.map(|part| part.parse().map_err(|error: T::Err| format!("{part:?}: {error}"))).collect()
}

/// `None` where nothing is named, an empty list for all.
fn listed<T>(what: &str, named: Vec<FilterValue<T>>) -> Result<Option<Vec<T>>, String> {
    let count = named.len();
    let values: Vec<T> = named
        .into_iter()
        .filter_map(|one| match one {
            FilterValue::All => None,
            FilterValue::One(value) => Some(value),
        })
        .collect();
    match (count, values.len()) {
        (0, _) => Ok(None),
        (1, 0) => Ok(Some(Vec::new())),
        (all, some) if all == some => Ok(Some(values)),
        _ => Err(format!("{what} {ALL} stands alone")),
    }
}
