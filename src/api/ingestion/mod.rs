//! `POST /v1/events`: takes usage events of producers that don't speak with Redis, and appends them to the streams.
//!
//! A request with a valid event is answered with 202 after all of its valid events are in the streams, never before.
//! An answer of 503 means that some or all of them may be missing; events with ids may be sent again. Read next:
//! `handler`; [`decoder`], from a body to entries; [`crate::actions::append_events`].

pub mod body_budget;
mod body_form;
mod cloud_event;
pub mod config;
pub mod decoder;
mod event_object;
pub(super) mod handler;
pub mod received_body;
pub(super) mod request;
pub mod shared;
