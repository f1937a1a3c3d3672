//! Notifies the service manager (systemd's `Type=notify`): one datagram to the socket in NOTIFY_SOCKET.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// State of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DaemonState {
    Ready,
    Stopping,
}

/// Notifies the service manager, if there is one.
pub(super) fn notify(state: DaemonState) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    let text = match state {
        DaemonState::Ready => "READY=1",
        DaemonState::Stopping => "STOPPING=1",
    };
    if let Err(error) = send(&socket, text) {
        tracing::warn!(%error, socket = %socket.display(), "the service manager could not be notified (NOTIFY_SOCKET)");
    }
}

fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        // An abstract name instead of a file; containers use one.
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}
