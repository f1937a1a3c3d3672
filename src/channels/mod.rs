//! The channels: a registry, and a folder for each channel that owns everything of it.
//!
//! A folder owns the rules for addresses, the secret, the cap, the settings, the rendering, one attempt at sending, and
//! the class of its outcome. It does not decide when to try again and does not change deliveries. A new channel needs a
//! folder, a variant of [`Channel`](crate::types::Channel) and a line in the registry; CONTRIBUTING.md lists the rest.
//! Read next: [`registry`], what each channel does; [`channel`], the messages; then [`webhook`] and [`email`].

mod cap_retry_pacer;
pub mod caps;
pub mod channel;
mod connection_error;
mod dns_replies;
pub mod email;
mod error;
mod grant_text;
mod hosts_file;
pub mod invalid_contact;
mod labels;
mod notice_text;
pub mod registry;
mod resolved_text;
pub mod resolver;
pub mod sample;
mod server_stream;
mod set_text;
mod templating;
mod tls;
mod usage_text;
pub mod webhook;

pub use caps::{Cap, CapDecision, Caps};
pub use channel::{
    AlertPurpose, BoxFuture, ChannelDefinition, CodeAndLink, ConsentMethod, ConsentProof, ConsentQuestion, Content,
    InvalidSetting, Message, MessageSet, PreviewMessage, PreviewPart, PreviewRequest, ProbeResult, SecretDefinition,
    SetItem, SettingText,
};
pub use error::ChannelError;
pub use invalid_contact::InvalidContact;
pub use labels::Labels;
pub use registry::{
    ChannelSettings, Channels, Preview, REGISTRY, check_contact, contact_warning, definition, destination, preview,
};
pub use resolver::{DnsConfig, Resolver};
pub use sample::{Sample, TestKind};
