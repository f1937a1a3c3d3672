//! A catcher for mail and webhooks: two real servers on 127.0.0.1 that keep what they get and answer as they are told.
//!
//! `demo` shows with it that alerts arrive; the tests provoke with it every outcome there is. Owns its sockets and tasks, which end
//! when it is dropped. Checks no signature and delivers nothing. Read next: [`http`], [`smtp`].

pub mod http;
pub mod smtp;

use tokio::task::JoinHandle;

pub use http::{Answer, CaughtRequest, HttpCatcher};
pub use smtp::{CaughtMail, Phase, Reply, Security, SmtpCatcher, SmtpSetup, Times, User};

/// The most requests or mails that wait to be looked at; a server then holds back its answers.
const WAITING_MAX: usize = 1024;

/// A server's task, which ends with its handle.
#[derive(Debug)]
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
