//! What a run was asked for: how much is measured, and which parts.

/// Set to anything but 0 for a quick run, as `--quick`.
const QUICK: &str = "QUOTABELL_BENCH_QUICK";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The documented figures.
    Full,
    /// Only shows that everything runs; the figures mean nothing.
    Quick,
}

impl Size {
    /// The one or the other.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// What the command line and the environment ask for.
#[derive(Debug)]
pub struct Asked {
    pub size: Size,
    parts: Vec<String>,
}

impl Asked {
    /// Reads the program's arguments, without its name.
    pub fn of(arguments: Vec<String>) -> Self {
        let quick = std::env::var_os(QUICK).is_some_and(|value| value != "0" && !value.is_empty());
        let quick = quick || arguments.iter().any(|argument| argument == "--quick");
        let parts = arguments.into_iter().filter(|argument| !argument.starts_with("--")).collect();
        Self { size: if quick { Size::Quick } else { Size::Full }, parts }
    }

    /// Whether this part is to run. For a look at one while working on it; without names all run.
    pub fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|named| named == part)
    }
}
