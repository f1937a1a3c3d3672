//! The password of the embedded server: a file in its data folder that only the owner can read.
//!
//! The server listens on 127.0.0.1, so without a password every user of the machine could read and write everything.
//! The first start generates it. Read next: [`embedded`](super::embedded).

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::types::nonce;

use super::login::RedisLogin;
use super::node::RedisNode;
use super::redis_url::RedisCredentials;

/// Name of the file in the data folder.
const FILE: &str = "redis-password";
/// The user that `requirepass` protects. A login with this name also succeeds at a server without a password.
const USER: &str = "default";

/// The file with the password.
pub(super) fn password_file(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// The password; `None` if no server was started in the folder yet.
///
/// # Errors
///
/// The file can't be read, or is empty.
pub(super) fn read(data_dir: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(password_file(data_dir)) {
        Ok(text) if text.trim().is_empty() => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty")),
        Ok(text) => Ok(Some(text.trim().to_owned())),
        // `prepare` reports a folder that can't exist.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the password and generates it if there is none. If two daemons generate one at the same time, both get the
/// first.
///
/// # Errors
///
/// The file can't be read or written.
pub(super) fn ensure(data_dir: &Path) -> io::Result<String> {
    ensure_by(data_dir, |new, path| fs::hard_link(new, path))
}

/// Like [`ensure`]; `link` names the new file, unless a file of that name exists.
fn ensure_by(data_dir: &Path, link: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<String> {
    if let Some(password) = read(data_dir)? {
        return Ok(password);
    }
    let password = nonce();
    let path = password_file(data_dir);
    let new = data_dir.join(format!("{FILE}.new-{}", nonce()));
    let written = write_new(&new, &password).and_then(|()| match link(&new, &path) {
        // The volume has no hard links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => write_new(&path, &password),
        // A link never replaces the password of another daemon, and never shows a partial file.
        linked => linked,
    });
    let _ = fs::remove_file(&new);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(data_dir)?.ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        written => written.map(|()| password),
    }
}

/// Writes the password to a new file. After an error it leaves no partial file.
fn write_new(path: &Path, password: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(password.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

/// The embedded server on this port, with its password.
pub(super) fn node(port: u16, data_dir: &Path, password: Option<String>) -> RedisNode {
    let login = password.map(|password| RedisCredentials { username: Some(USER.to_owned()), password });
    RedisNode { login: RedisLogin::of_password_file(login, password_file(data_dir)), ..RedisNode::local(port) }
}

/// Removes the access of other users to the data folder (for example a folder created by hand) and logs that. The
/// access of the group stays, because somebody granted it on purpose.
pub(super) fn close_to_others(data_dir: &Path) {
    let mode = fs::metadata(data_dir).map_or(0, |folder| folder.permissions().mode());
    if mode & 0o007 == 0 {
        return;
    }
    match fs::set_permissions(data_dir, Permissions::from_mode(mode & 0o700)) {
        Ok(()) => tracing::warn!(
            folder = %data_dir.display(),
            "other users could read the data folder: closed it to them (chmod go=)"
        ),
        Err(error) => tracing::warn!(
            folder = %data_dir.display(), %error,
            "other users can read the data folder, and the daemon could not close it to them: chmod -R go= it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two daemons that start at once and store different passwords would lock each other out.
    #[test]
    fn daemons_that_start_at_once_get_one_password() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()).expect("readable"), None);
        let drawn: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| ensure(folder.path()).expect("drawn"))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(drawn.iter().all(|password| *password == drawn[0] && password.len() == 32), "{drawn:?}");
        let names: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").flatten().map(|file| file.file_name()).collect();
        assert_eq!(names, [FILE]);
    }

    /// Some volumes have no hard links; the first start must still work there.
    #[test]
    fn a_volume_without_hard_links_gets_a_password() {
        let folder = tempfile::tempdir().expect("a folder");
        let draw = || ensure_by(folder.path(), |_, _| Err(io::ErrorKind::Unsupported.into())).expect("drawn");
        let drawn = draw();
        assert_eq!((drawn.len(), draw()), (32, drawn));
        let mode = fs::metadata(password_file(folder.path())).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// With an empty password everybody could log in.
    #[test]
    fn an_empty_password_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(password_file(folder.path()), "\n").expect("a file");
        assert!(ensure(folder.path()).is_err());
    }
}
