//! Many outputs as one text, so that one snapshot holds them all and is reviewed in one reading.

use std::fmt::{Display, Formatter, Result};

/// Cases and what came out of each, in the order of insertion.
#[derive(Debug, Default)]
pub struct Table(String);

impl Table {
    /// Adds a case: its name or its input as the headline, then its output.
    pub fn add(&mut self, case: impl Display, output: impl Display) {
        self.0 += &format!("== {case}\n{}\n\n", output.to_string().trim_end());
    }
}

/// Cases that are at hand.
impl<C: Display, O: Display> FromIterator<(C, O)> for Table {
    fn from_iter<I: IntoIterator<Item = (C, O)>>(cases: I) -> Self {
        let mut table = Self::default();
        cases.into_iter().for_each(|(case, output)| table.add(case, output));
        table
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.0.trim_end())
    }
}
