//! Many outputs as one text, so that one snapshot holds all of them.

use std::fmt::{Display, Formatter, Result};

/// Cases and their outputs, in the order of insertion.
#[derive(Debug, Default)]
pub struct Table(String);

impl Table {
    /// Adds a case: its name or input as the headline, then its output.
    pub fn add(&mut self, case: impl Display, output: impl Display) {
        self.0 += &format!("== {case}\n{}\n\n", output.to_string().trim_end());
    }
}

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
