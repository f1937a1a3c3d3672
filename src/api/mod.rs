//! HTTP: health, readiness, metrics, `/v1/check`, subjects with their usage, history and alerts,
//! rankings, deliveries, and contacts with their verification.
//!
//! Owns the routes and how they are served. What is asked about subjects is answered by `ledger`, `subjects`,
//! `verification` and `views`. Every error is a problem of RFC 9457. Read next: [`routes`], the table of all of them;
//! [`openapi`], the document that is made from it; [`server`], the limits on connections; [`ready`], what readiness
//! means.

mod action_log;
mod actions;
mod alert_log;
pub(crate) mod authorize;
pub(crate) mod body;
mod check;
pub(crate) mod check_service;
pub(crate) mod config;
pub(crate) mod connection_limit;
pub(crate) mod consent_html;
mod consent_links;
mod contact_filter_body;
mod contacts;
mod deliveries;
mod etag;
mod gauges;
mod grants;
pub mod ingestion;
mod list_query;
mod mutes;
pub mod openapi;
mod operation;
mod overview;
pub(crate) mod path;
mod portal;
mod probes;
pub(crate) mod problem;
pub(crate) mod rate_limit_headers;
pub(crate) mod ready;
pub(crate) mod recent_reads;
pub(crate) mod recorder;
mod reload;
mod route;
pub(crate) mod router;
pub mod routes;
mod schemas;
pub mod scope;
pub mod server;
pub(crate) mod state;
mod status_doc;
mod subject_body;
mod subjects;
pub(crate) mod token;
mod top;

pub(crate) use check_service::CheckService;
pub(crate) use ready::Readiness;
pub(crate) use state::ApiState;
pub(crate) use token::{CurrentTokens, TokenError, Tokens};
