//! The log: text or JSON, on stderr, one line an event whatever a subject is called.
//!
//! The daemon never waits for its log, and never fails by it: see `log_queue`.

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

/// Installs the log of this process. Libraries are heard from `warn` on; NO_COLOR is honoured. Panics are logged too.
///
/// # Errors
///
/// The system gives no thread for the log.
pub fn install(config: &LogConfig) -> io::Result<()> {
    let queue = LogQueue::start()?;
    // Set before anything is logged, so that the end of the process waits for it.
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
    // Installed once a process; a second call (tests in one process) keeps the first.
    if tracing_subscriber::registry().with(lines).with(filter).with(&*CAP).try_init().is_ok() {
        std::thread::Builder::new().name("log cap".to_owned()).spawn(|| CAP.report_each_second())?;
    }
    // The hook of the standard library writes to stderr itself, where a full pipe would hold the thread that panics.
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at, "panicked: {}", message.unwrap_or("(no message)"));
    }));
    Ok(())
}

/// Writes the last text of the process to stderr, behind what was logged. Where the log has a queue, a reader that
/// takes nothing does not hold the end up.
pub fn end(last: &str) {
    let now = Instant::now();
    CAP.report(now, now);
    match QUEUE.get() {
        Some(queue) => queue.end(last),
        // Nobody is left to tell when stderr is closed too.
        None => drop(io::stderr().write_all(last.as_bytes())),
    }
}

/// Hands lines to the queue.
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

/// Escapes what would end a line or turn its direction on a screen, and that the subscriber lets pass: it knows the
/// controls of ASCII and of Latin-1 alone. `\u2028` is an escape of JSON too.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// The subscriber hands over a whole event at once.
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
        // The rest of ASCII is the subscriber's own: it escapes controls, and writes colours.
        if matches!(character, '\n' | '\r') && rest.as_str().trim_start_matches(['\n', '\r']).is_empty() {
            line.push('\n');
            break;
        } else if matches!(character, '\n' | '\r') {
            line.extend(character.escape_default());
        } else if !character.is_ascii() && !is_inert(character) {
            // Two escapes for what JSON writes as a surrogate pair.
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

    /// Four digits are all that an escape of JSON has: a fifth would be another character.
    #[test]
    fn a_character_beyond_the_first_plane_stays_one_in_json() {
        let shown: String = serde_json::from_str(&format!("\"{}\"", escaped("a\u{e0041}b"))).expect("JSON");
        assert_eq!(shown, "a\u{e0041}b");
    }

    /// A subject that is called so would forge a line of the log, or show one backwards.
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
