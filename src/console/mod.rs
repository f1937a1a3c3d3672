//! The console: pages for operators, on a listener of its own.
//!
//! The server renders each page from a read model of `views/`, and every page works without JavaScript. The console
//! works through its own connections to Redis and has its own connection limit, so that it delays nothing else. Its own
//! keys hold only what signs its cookies, unused logins, and the forms that were sent. Read next:
//! [`router`], the pages; `access`, who may see them; `form`, how a form takes effect once.

mod access;
mod assets;
mod bulk;
mod bulk_count;
pub(crate) mod config;
mod contacts;
mod counting_rate;
mod erase;
mod error;
mod form;
mod last_pages;
mod lists;
mod login;
mod mutes;
mod near_file;
pub(crate) mod one_use_login;
mod operations;
mod parsed_query;
mod portal;
mod render;
mod router;
mod sentence;
mod session;
mod settings;
mod state;
mod subject;
mod system;
mod top;
mod top_rankings;

pub(crate) use counting_rate::CountingRate;
pub(crate) use last_pages::LastConsolePages;
pub(crate) use near_file::{FILE_TTL, NearFiles};
pub(crate) use router::routes;
pub(crate) use state::{ConsoleState, LIMITS, OVERVIEW_TTL, OverviewCache, StartedWith, listen};
pub(crate) use top_rankings::TopRankings;
