//! SIGTERM and SIGINT.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the daemon.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on; the default (to die at once) is off.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of them.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
