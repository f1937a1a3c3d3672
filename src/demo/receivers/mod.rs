//! A catcher for mail and webhooks: two real servers on 127.0.0.1 that keep what they get and answer as they are told.
//!
//! `demo` and `listen` show with it that alerts arrive; the tests provoke with it every outcome there is. Owns its
//! sockets and tasks, which end when it is dropped. Checks no signature and delivers nothing. Read next: [`http`],
//! [`smtp`].

mod catcher;
pub mod http;
pub mod smtp;

pub use catcher::Catcher;
pub use http::{Answer, CaughtRequest, HttpCatcher};
pub use smtp::{CaughtMail, Phase, Reply, Security, SmtpCatcher, SmtpSetup, Times, User};
