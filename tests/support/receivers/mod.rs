//! Receivers of emails and webhooks: two real servers on 127.0.0.1 that keep what they get and answer as a test told
//! them, so that tests provoke every outcome. They own their sockets and tasks, which end when they are dropped.
#![allow(unreachable_pub, unused_imports, reason = "a test binary exports nothing")]

mod catcher;
pub mod http;
pub mod smtp;

pub use catcher::Catcher;
pub use http::{Answer, CaughtRequest, HttpCatcher};
pub use smtp::{CaughtMail, Phase, Reply, Security, SmtpCatcher, SmtpSetup, Times, User};
