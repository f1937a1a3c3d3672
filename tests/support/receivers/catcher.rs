//! What the two servers have in common: a listener, what was caught, and a program that says what is answered.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The most requests or mails that wait to be looked at; a server then holds back its answers.
const WAITING_MAX: usize = 1024;

/// A server that keeps every `T` that it is sent, and answers as its program `P` says. Gone when dropped.
#[derive(Debug)]
pub struct Catcher<T, P> {
    address: SocketAddr,
    pub(super) program: Arc<Mutex<P>>,
    caught: mpsc::Receiver<T>,
    task: JoinHandle<()>,
}

/// What all connections of a [`Catcher`] share with it.
pub(super) type Shared<T, P> = (Arc<Mutex<P>>, mpsc::Sender<T>);

impl<T, P> Catcher<T, P> {
    /// Binds the address, and spawns what `serve` makes of the listener.
    pub(super) async fn bind<F: Future<Output = ()> + Send + 'static>(
        address: SocketAddr,
        program: P,
        serve: impl FnOnce(TcpListener, Shared<T, P>) -> F,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let program = Arc::new(Mutex::new(program));
        let (sender, caught) = mpsc::channel(WAITING_MAX);
        let task = tokio::spawn(serve(listener, (Arc::clone(&program), sender)));
        Ok(Self { address, program, caught, task })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next one; waits for it. Safe to drop while it waits.
    pub async fn next(&mut self) -> T {
        self.caught.recv().await.expect("the server holds the sender for as long as this handle lives")
    }

    /// The next one, if one has arrived.
    pub fn try_next(&mut self) -> Option<T> {
        self.caught.try_recv().ok()
    }
}

impl<T, P> Drop for Catcher<T, P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The program, for a moment.
pub(super) fn locked<P>(program: &Mutex<P>) -> MutexGuard<'_, P> {
    program.lock().unwrap_or_else(PoisonError::into_inner)
}
