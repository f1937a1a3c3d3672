//! Signed texts in URLs and cookies: their keys in Redis, and the tokens that open the portal of one subject.
//!
//! A [`PortalAccess`] exists only for a token that was verified, so a page that takes one can't show another subject.
//! Read next: [`portal_token`], what a token says; [`portal_gate`], how one is verified and revoked.

pub mod portal_gate;
pub mod portal_token;
pub mod portal_urls;
mod stored_key;

pub use portal_gate::PortalAccess;
pub use portal_token::{PortalClaims, PortalRight, UnverifiedToken};
pub use portal_urls::PortalUrls;
pub use stored_key::stored_key;
