//! The flags and columns with the filter for the addresses of a channel.

/// The filter flags of a channel.
#[derive(Debug, Clone, Copy)]
pub struct FilterFlags {
    /// Percentages of a limit.
    pub threshold: FilterFlag,
    /// Metrics.
    pub metric: FilterFlag,
}

/// One of these flags.
#[derive(Debug, Clone, Copy)]
pub struct FilterFlag {
    /// Its name, such as `email-threshold`.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
}

impl FilterFlags {
    /// Their names as columns of a file.
    pub fn columns(self) -> [String; 2] {
        [self.threshold.column(), self.metric.column()]
    }
}

impl FilterFlag {
    /// Its name as a column of a file and in JSON, such as `email_thresholds`.
    pub fn column(self) -> String {
        format!("{}s", self.name.replace('-', "_"))
    }
}
