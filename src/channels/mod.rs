//! The channels: one trait, one registry, and a folder for each channel that owns everything of it.
//!
//! A folder owns the rules for addresses, the secret, the cap, the settings, the rendering, one attempt at sending, and
//! the class of its outcome. Never decides when to try again and never touches deliveries. Adding a channel is a folder
//! and a line in the registry; what it needs beside them stands in CONTRIBUTING.md. Read next: [`channel`], the trait;
//! [`registry`]; then [`webhook`] and [`email`].

mod cap_retry_pacer;
pub mod caps;
pub mod channel;
mod connection_error;
mod dns_answers;
pub mod email;
mod error;
pub mod filter_flags;
mod hosts_file;
pub mod invalid_contact;
mod notice_text;
pub mod registry;
pub mod resolver;
pub mod sample;
mod server_stream;
mod set;
mod templating;
mod tls;
pub mod webhook;

pub use caps::{Cap, CapDecision, Caps};
pub use channel::{
    AlertPurpose, BoxFuture, ChannelDefinition, ChannelSettings, CodeAndLink, ConsentMethod, ConsentProof,
    ConsentQuestion, Content, FileSetting, FormatDefinition, InvalidSetting, Message, NotificationChannel, PreviewPart,
    PreviewRequest, ProbeResult, SecretDefinition, SettingText, SharedServer,
};
pub use error::{ChannelError, ChannelErrors};
pub use filter_flags::{FilterFlag, FilterFlags};
pub use invalid_contact::InvalidContact;
pub use registry::{REGISTRY, check_contact, definition, destination};
pub use resolver::{DnsConfig, Resolver};
pub use sample::Sample;
pub use set::{BrokenChannels, Channels, Preview, preview};
