//! The log: text or JSON, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Installs the log of this process. Libraries are heard from `warn` on; NO_COLOR is honoured.
pub fn install(config: &LogConfig) {
    let filter = EnvFilter::new(format!("warn,quotabell={}", config.level.as_str()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Installed once a process; a second call (tests in one process) keeps the first.
    let _ = match config.format {
        LogFormat::Text => builder.with_ansi(colours).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
