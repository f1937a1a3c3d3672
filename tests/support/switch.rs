//! One address before several servers, as a load balancer or a virtual IP is: all connections go to one of them, until it is
//! switched to another and every connection is cut.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A running switch. It ends with the test's runtime.
#[derive(Debug)]
pub struct Switch {
    port: u16,
    target: watch::Sender<u16>,
}

impl Switch {
    /// Leads to this port of 127.0.0.1.
    pub async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (target, watched) = watch::channel(target);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, watched.clone()));
            }
        });
        Self { port, target }
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections; new ones lead to this port.
    pub fn turn(&self, target: u16) {
        self.target.send_replace(target);
    }
}

/// Passes bytes on until one side ends or the switch is turned.
async fn pass(mut client: TcpStream, mut target: watch::Receiver<u16>) {
    let port = *target.borrow_and_update();
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = target.changed() => {}
    }
}
