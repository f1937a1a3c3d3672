//! Whole numbers on the command line.

use std::str::FromStr;

/// Reads a number that is not 0.
pub fn from_one<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, &'static str> {
    let number = text.parse().ok().filter(|number| *number != N::default());
    number.ok_or("write a whole number from 1 on")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error for 0 that names the largest number of the machine would not help.
    #[test]
    fn a_number_that_is_none_is_told_the_rule() {
        assert_eq!((from_one::<u64>("1"), from_one::<u32>("4294967295")), (Ok(1), Ok(u32::MAX)));
        for wrong in ["0", "", "-1", "1.5", "x", "18446744073709551616"] {
            assert_eq!(from_one::<u64>(wrong), Err("write a whole number from 1 on"), "{wrong}");
        }
    }
}
