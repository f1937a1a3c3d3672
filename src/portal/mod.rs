//! The portal: pages on which a customer sees its own subject, with a link that the platform or a message gives it.
//!
//! The token in the path is the only authority: no cookie, no session, nothing to forge. A handler gets a
//! [`PortalAccess`](crate::signing::PortalAccess), which exists only for a verified token, and no path, query or form
//! names a subject. The pages have no script. Read next: `router`, the pages; `visitor`, who may see them; `html`, how
//! they look.

mod assets;
mod chart;
pub(crate) mod config;
mod contacts;
mod error;
mod form;
mod html;
mod notice;
mod render;
mod router;
mod sample;
mod show;
mod state;
mod test_message;
mod visitor;

pub(crate) use html::PortalHtml;
pub(crate) use router::with_portal;
pub(crate) use state::{PAGES_MAX, PortalState, READS_MAX};
