//! The log: text or JSON, on stderr, one line per event even if a subject contains line breaks.
//!
//! The daemon never waits for its log, and never fails because of it: see `log_queue`.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use super::log_cap::LogCap;
use super::log_queue::LogQueue;
use crate::config::{LogConfig, LogFormat};
use crate::types::text::is_inert;

/// The queue of a process with a log.
static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();
static CAP: LazyLock<LogCap> = LazyLock::new(LogCap::default);

/// Installs the log of this process. Logs libraries from `warn` on, honors NO_COLOR, and logs panics.
///
/// # Errors
///
/// The system provides no thread for the log.
pub fn install(config: &LogConfig) -> io::Result<()> {
    let queue = LogQueue::start()?;
    // Set before the first line, so that the end of the process waits for it.
    let queue = Arc::clone(QUEUE.get_or_init(|| queue));
    let filter = EnvFilter::new(format!("warn,quotabell={}", config.level.as_str()));
    let lines = fmt::layer().with_writer(move || OneLine(QueuedLines(Arc::clone(&queue))));
    let refuses_colours = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    let colours = io::stderr().is_terminal() && !refuses_colours;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.format {
        LogFormat::Text => Box::new(lines.with_ansi(colours)),
        LogFormat::Json => Box::new(lines.json().flatten_event(true)),
    };
    // Installed once per process; a second call (tests in one process) keeps the first.
    if tracing_subscriber::registry().with(lines).with(filter).with(&*CAP).try_init().is_ok() {
        std::thread::Builder::new().name("log cap".to_owned()).spawn(|| CAP.report_each_second())?;
    }
    // The hook of the standard library writes to stderr itself, so a full pipe would block the panicking thread.
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "panicked: {}", message.unwrap_or("(no message)"));
    }));
    Ok(())
}

/// Writes the last text of the process to stderr, after the log. With a queue, a reader that accepts nothing does not
/// delay the end.
pub fn end(last: &str) {
    let now = Instant::now();
    CAP.report(now, now);
    match QUEUE.get() {
        Some(queue) => queue.end(last),
        // If stderr is closed, nobody can be told.
        None => drop(io::stderr().write_all(last.as_bytes())),
    }
}

/// Passes lines to the queue.
struct QueuedLines(Arc<LogQueue>);

impl Write for QueuedLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes line breaks and direction marks that the subscriber lets pass: it escapes only the controls of ASCII and
/// Latin-1. `\u2028` is a valid JSON escape too.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// The subscriber passes a whole event at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let lines = event.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
        if event.is_ascii() && lines == 1 && event.ends_with(b"\n") {
            self.0.write_all(event)?;
        } else {
            self.0.write_all(escaped(&String::from_utf8_lossy(event)).as_bytes())?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escaped(event: &str) -> String {
    let mut line = String::with_capacity(event.len());
    let mut rest = event.chars();
    while let Some(character) = rest.next() {
        // The subscriber handles the rest of ASCII: it escapes controls and writes colors.
        if matches!(character, '\n' | '\r') && rest.as_str().trim_start_matches(['\n', '\r']).is_empty() {
            line.push('\n');
            break;
        } else if matches!(character, '\n' | '\r') {
            line.extend(character.escape_default());
        } else if !character.is_ascii() && !is_inert(character) {
            // Two escapes for a character that JSON writes as a surrogate pair.
            for unit in character.encode_utf16(&mut [0; 2]) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JSON escape has four digits: a fifth would be another character.
    #[test]
    fn a_character_beyond_the_first_plane_stays_one_in_json() {
        let shown: String = serde_json::from_str(&format!("\"{}\"", escaped("a\u{e0041}b"))).expect("JSON");
        assert_eq!(shown, "a\u{e0041}b");
    }

    /// A subject with such a name would forge a log line, or show one backwards.
    #[test]
    fn an_event_stays_one_line_and_reads_from_left_to_right() {
        let mut log = Vec::new();
        for event in ["a\u{2028}b\u{202e}c\u{85}é\u{1b}[0m\n", "id=c\nERROR forged\r\n"] {
            OneLine(&mut log).write_all(event.as_bytes()).expect("it is kept");
        }
        let written = "a\\u2028b\\u202ec\\u0085é\u{1b}[0m\nid=c\\nERROR forged\n";
        assert_eq!(String::from_utf8(log).expect("UTF-8"), written);
    }
}
