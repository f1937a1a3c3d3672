//! The temporary folder: made for its owner only, removed at the end unless it is to be kept.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::terminal::hint::with_hint;

/// What happens to the folder at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderCleanup {
    /// It is removed.
    Remove,
    /// It stays, to be looked at.
    Keep,
}

/// The folder. Removed when dropped, too, so that no error leaves it behind.
#[derive(Debug)]
pub(super) struct TempFolder {
    path: PathBuf,
    cleanup: FolderCleanup,
}

impl TempFolder {
    /// Makes a folder of its own in the system's place for temporary files.
    pub(super) fn make(cleanup: FolderCleanup) -> anyhow::Result<Self> {
        let place = std::env::temp_dir();
        let path = place.join(format!("quotabell-demo-{:08x}", rand::random::<u32>()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        let made = made.with_context(|| format!("make the folder {}", path.display()));
        with_hint(made, "TMPDIR names the place for temporary files")?;
        Ok(Self { path, cleanup })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it will be kept.
    pub(super) const fn cleanup(&self) -> FolderCleanup {
        self.cleanup
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if self.cleanup == FolderCleanup::Remove {
            // What can't be removed is left to the system, which cleans its place for temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A demonstration that failed half-way must not fill the disk.
    #[test]
    fn the_folder_goes_with_its_handle_unless_it_is_kept() {
        let removed = TempFolder::make(FolderCleanup::Remove).expect("made");
        let kept = TempFolder::make(FolderCleanup::Keep).expect("made");
        fs::write(removed.path().join("file"), "x").expect("written");
        let (gone, left) = (removed.path().to_owned(), kept.path().to_owned());
        drop(removed);
        drop(kept);
        assert!(!gone.exists() && left.exists());
        fs::remove_dir(left).expect("removable");
    }
}
