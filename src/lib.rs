//! quotabell rings once, and never forgets to ring.
//!
//! API nodes append usage events to a Redis stream. The daemon counts them per subject, metric and day, and the moment a count
//! crosses 80 % or 100 % of the day's quota it alerts the subject by e-mail or webhook.
//!
//! ```text
//!  producers        events/            ledger/               outbox/              sender/             transport/
//!  XADD usage  -->  read after the --> one script:      -->  fan out to      -->  mute, room,    -->  email  (lettre)
//!  (any client)     checkpoint,        checkpoint CAS        deliveries, due      render, classify    webhook (reqwest)
//!                   parse, add up      counters              zset, lease,             |
//!                   per (subject,      flags and outbox      settle, retry  <---------+ delivered / retry at / dead
//!                   metric, day)
//! ```
//!
//! Left of `sender/` everything is exactly-once, by atomic commits in Redis. Right of it, at-least-once with a stable id, because
//! no protocol to the outside world can do better.
//!
//! The folders sort in the order of the path, and an import points only to a later letter. Read next: [`events::worker`], the loop
//! that everything starts with, and [`ledger::commit`], the script that the promises rest on.

pub mod api;
pub mod app;
pub mod channels;
pub mod cli;
pub mod config;
pub mod contacts;
pub mod demo;
pub mod events;
pub mod ledger;
pub mod outbox;
pub mod subjects;
pub mod terminal;
pub mod throttle;
pub mod types;
pub mod verification;
pub mod views;
pub mod wire;
