//! The queue of log lines: bounded, written to stderr by its own thread.
//!
//! Logging only appends to memory. A full disk, a closed pipe and a pipe without a reader affect only the thread: it
//! waits or drops lines, counts the dropped lines, and reports their number after the next successful write.

use std::io::{self, Stderr};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use metrics::counter;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::types::meters;

/// Maximum number of waiting bytes: some thousand lines, more than a burst, but little memory.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of bytes per write, unless one line is longer. Pipes do not split writes of this size (`PIPE_BUF`),
/// so lines of several processes do not mix.
const WRITE_BYTES_MAX: usize = 4096;
/// Maximum time that the end of the process waits for one write. A slower reader is gone or hangs.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Maximum time that the end of the process waits for all lines.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct LogQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Complete lines to be written.
    waiting: Vec<u8>,
    /// Whether the thread is writing.
    is_writing: bool,
    /// When the thread started its latest write.
    write_began: Instant,
    /// Number of dropped lines that no report has counted yet.
    dropped: u64,
    /// Whether the thread is logging the number of dropped lines: [`LogQueue::push`] then accepts a line even if the
    /// queue is full.
    is_reporting: bool,
}

impl LogQueue {
    /// Starts the thread that writes to stderr.
    ///
    /// # Errors
    ///
    /// The system provides no thread.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let state = State {
            waiting: Vec::new(),
            is_writing: false,
            write_began: Instant::now(),
            dropped: 0,
            is_reporting: false,
        };
        let queue = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() });
        let writer = Arc::clone(&queue);
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_lines(&io::stderr()))?;
        Ok(queue)
    }

    /// Appends a line, or drops it if the queue is full. Blocks only for a copy in memory.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + line.len() > QUEUE_BYTES_MAX && !state.is_reporting {
            state.drop_lines(1);
        } else {
            state.waiting.extend_from_slice(line);
            self.changed.notify_all();
        }
    }

    /// Appends the last text of the process and waits until everything is written, as long as the reader accepts it.
    pub(super) fn end(&self, last: &str) {
        let end = Instant::now() + END_TIMEOUT;
        let mut state = self.lock();
        state.waiting.extend_from_slice(last.as_bytes());
        self.changed.notify_all();
        while state.is_writing || !state.waiting.is_empty() {
            let now = Instant::now();
            // A thread that has not woken up yet was idle, not stuck.
            let stuck = if state.is_writing { state.write_began + STUCK_AFTER } else { now + STUCK_AFTER };
            let Some(wait) = stuck.min(end).checked_duration_since(now).filter(|wait| !wait.is_zero()) else { return };
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes the queue for the lifetime of the process. Does not lock [`Stderr`], because a blocked write would then
    /// stop every other writer.
    fn write_lines(&self, stderr: &Stderr) {
        let mut is_torn = false;
        loop {
            let lines = self.wait_for_lines();
            let mut has_failed = false;
            for lines in chunks(&lines) {
                self.lock().write_began = Instant::now();
                // Ends a partially written line, so that it does not run into the next one.
                let newline: &[u8] = if is_torn { b"\n" } else { b"" };
                let rest = match write_all(stderr, newline) {
                    [] => write_all(stderr, lines),
                    _ => lines,
                };
                is_torn = if rest.len() == lines.len() { is_torn } else { !rest.is_empty() };
                has_failed = !rest.is_empty();
                if has_failed {
                    self.lock().drop_lines(count_lines(rest));
                }
            }
            if !has_failed {
                self.report_dropped();
            }
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    fn wait_for_lines(&self) -> Vec<u8> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.is_writing, state.write_began) = (true, Instant::now());
        std::mem::take(&mut state.waiting)
    }

    /// Logs the number of dropped lines in the log's format.
    fn report_dropped(&self) {
        let mut state = self.lock();
        let lines = std::mem::take(&mut state.dropped);
        if lines == 0 {
            return;
        }
        state.is_reporting = true;
        drop(state);
        tracing::warn!(lines, "dropped lines of the log, because stderr did not take them");
        self.lock().is_reporting = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_lines(&mut self, lines: u64) {
        self.dropped += lines;
        counter!(meters::LOG_LINES_DROPPED).increment(lines);
    }
}

/// Groups whole lines up to [`WRITE_BYTES_MAX`]; a longer line is alone.
fn chunks(mut lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let newline = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n');
        let first = || lines.iter().position(|byte| *byte == b'\n');
        let fitting = &lines[..lines.len().min(WRITE_BYTES_MAX)];
        let length = newline(fitting).or_else(first).map_or(lines.len(), |at| at + 1);
        let (chunk, rest) = lines.split_at(length);
        lines = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Writes everything, and returns the rest that could not be written. Waits for a full pipe, even a non-blocking one.
fn write_all<'a>(to: &impl AsFd, bytes: &'a [u8]) -> &'a [u8] {
    let mut rest = bytes;
    while !rest.is_empty() {
        match nix::unistd::write(to, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait_until_writable(to),
            Err(_) => break,
        }
    }
    rest
}

/// Waits until a non-blocking descriptor accepts more, or fails.
pub fn wait_until_writable(to: &impl AsFd) {
    // An error means a bad descriptor: the next write reports it.
    let _ = poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A split line would look like two lines to a reader of several daemons on one pipe.
    #[test]
    fn lines_are_written_whole_and_many_at_once() {
        let long = vec![b'x'; 2 * WRITE_BYTES_MAX];
        let lines =
            [b"a\n".as_slice(), b"b\n", &long, b"\n", &vec![b'y'; WRITE_BYTES_MAX - 1], b"\nc\n", b"end"].concat();
        let lengths: Vec<usize> = chunks(&lines).map(<[u8]>::len).collect();
        assert_eq!(lengths, [4, 2 * WRITE_BYTES_MAX + 1, WRITE_BYTES_MAX, 2, 3]);
        assert_eq!(chunks(&lines).flatten().copied().collect::<Vec<u8>>(), lines);
    }
}
