//! The requested size and parts of a run.

/// Set to anything except 0 for a quick run, as with `--quick`.
const QUICK: &str = "QUOTABELL_BENCH_QUICK";

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For the documented figures.
    Full,
    /// Only checks that everything runs; the figures are meaningless.
    Quick,
}

impl Size {
    /// The value for this size.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// The settings from the command line and the environment.
#[derive(Debug)]
pub struct Asked {
    pub size: Size,
    parts: Vec<String>,
}

impl Asked {
    /// Parses the program's arguments, without its name.
    pub fn of(arguments: Vec<String>) -> Self {
        let quick = std::env::var_os(QUICK).is_some_and(|value| value != "0" && !value.is_empty());
        let quick = quick || arguments.iter().any(|argument| argument == "--quick");
        let parts = arguments.into_iter().filter(|argument| !argument.starts_with("--")).collect();
        Self { size: if quick { Size::Quick } else { Size::Full }, parts }
    }

    /// Whether to run this part; without names all parts run.
    pub fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|named| named == part)
    }
}
