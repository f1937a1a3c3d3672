//! Receivers for emails and webhooks: two servers on this machine that keep what arrives and accept it.
//!
//! `demo` and `listen` use them to show that alerts arrive. A receiver owns its socket and its task, which end when it
//! is dropped. It checks no signature and delivers nothing. Read next: [`http`], [`smtp`].

mod http;
mod smtp;

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use http::{CaughtRequest, HttpCatcher};
pub use smtp::{CaughtMail, SmtpCatcher};

/// Maximum number of messages that wait to be read; then a receiver delays its answers.
const WAITING_MAX: usize = 1024;

/// A server that keeps every `T` it receives. Ends when it is dropped.
#[derive(Debug)]
pub struct Catcher<T> {
    address: SocketAddr,
    caught: mpsc::Receiver<T>,
    task: JoinHandle<()>,
}

impl<T> Catcher<T> {
    /// Binds the address, and spawns what `serve` makes of the listener.
    async fn bind<F: Future<Output = ()> + Send + 'static>(
        address: SocketAddr,
        serve: impl FnOnce(TcpListener, mpsc::Sender<T>) -> F,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, caught) = mpsc::channel(WAITING_MAX);
        Ok(Self { address, caught, task: tokio::spawn(serve(listener, sender)) })
    }

    /// Waits for the next message. Safe to cancel.
    pub async fn next(&mut self) -> T {
        self.caught.recv().await.expect("the server holds the sender as long as this handle lives")
    }
}

impl<T> Drop for Catcher<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
