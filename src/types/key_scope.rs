//! Whose keys they are: which partition, which streams, which subjects.

use super::{Keys, PartitionNumber};

impl Keys {
    /// The same keys with another prefix of subjects.
    #[must_use]
    pub fn with_subject_prefix(self, prefix: &str) -> Self {
        Self { subject_prefix: prefix.into(), ..self }
    }

    /// Which partition it is.
    pub const fn partition(&self) -> PartitionNumber {
        self.partition
    }

    /// What the streams are called, without the number of a partition: `stream.key`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The usage stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// What the keys of subjects begin with: `quota_subject:` by default.
    pub fn subject_prefix(&self) -> &str {
        &self.subject_prefix
    }
}
