//! The text of an import, line by line, as spreadsheets write it: UTF-8 or UTF-16, lines that end with LF, CR LF or CR.
//!
//! Knows nothing of what a line means. Files whose bytes could mean several texts are refused with what to do instead.

use std::io::{self, BufRead as _, BufReader, Read};

use encoding_rs_io::{DecodeReaderBytes, DecodeReaderBytesBuilder};

/// The longest line, and the longest quoted cell: whoever forgets a quote must not have the whole file read into
/// memory.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 20;

/// What to do about a file that can't be read without a guess.
pub(super) const SAVE_AS: &str = "save the file as \"CSV UTF-8\"";

/// Why the rest of the file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportReadError {
    #[error("read line {line}")]
    Read { line: u64, source: io::Error },
    #[error("line {line} is longer than {LINE_BYTES_MAX} bytes, or a quote that opens there is not closed")]
    Endless { line: u64 },
    #[error("line {line}: {why}")]
    Header { line: u64, why: String },
    #[error("line {line} holds NUL bytes, as UTF-16 without a byte order mark does: {SAVE_AS}")]
    Nul { line: u64 },
    #[error("line {line}: line ends are mixed, CR and LF: {SAVE_AS}")]
    MixedLineEnds { line: u64 },
    #[error("the file is empty")]
    Empty,
}

/// The lines of a file.
#[derive(Debug)]
pub(super) struct ImportText<R: Read> {
    input: BufReader<DecodeReaderBytes<R, Vec<u8>>>,
    /// The byte that ends lines: LF, with or without a CR before it, or CR, as spreadsheets on old Macs wrote it.
    line_end: Option<u8>,
    line: u64,
}

impl<R: Read> ImportText<R> {
    /// The text of `input`. A byte order mark is left out, and decides between UTF-8 and UTF-16.
    pub(super) fn new(input: R) -> Self {
        let decoded = DecodeReaderBytesBuilder::new().utf8_passthru(true).strip_bom(true).build(input);
        Self { input: BufReader::new(decoded), line_end: None, line: 0 }
    }

    /// The bytes that come next, some at least, without taking them; none at the end of the file.
    pub(super) fn peek(&mut self) -> Result<&[u8], ImportReadError> {
        let line = self.line + 1;
        self.input.fill_buf().map_err(|source| ImportReadError::Read { line, source })
    }

    /// The number of the line that was read last, 1 for the first.
    pub(super) const fn line(&self) -> u64 {
        self.line
    }

    /// The next line with its end, which is `\n` whatever the file has; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// [`ImportReadError`]: what follows can't be read either.
    pub(super) fn read_line(&mut self) -> Result<Option<Vec<u8>>, ImportReadError> {
        let line = self.line + 1;
        let end = match self.line_end {
            Some(end) => end,
            None => line_end(self.peek()?),
        };
        self.line_end = Some(end);
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(LINE_BYTES_MAX).read_until(end, &mut bytes);
        if read.map_err(|source| ImportReadError::Read { line, source })? == 0 {
            return Ok(None);
        }
        let is_ended = bytes.pop_if(|last| *last == end).is_some();
        if !is_ended && bytes.len() as u64 >= LINE_BYTES_MAX {
            return Err(ImportReadError::Endless { line });
        }
        if bytes.contains(&0) {
            return Err(ImportReadError::Nul { line });
        }
        if end == b'\r' && bytes.contains(&b'\n') {
            return Err(ImportReadError::MixedLineEnds { line });
        }
        self.line = line;
        if is_ended {
            bytes.pop_if(|last| *last == b'\r');
            bytes.push(b'\n');
        }
        Ok(Some(bytes))
    }
}

/// The byte that ends the lines of a text that begins so: CR if the first line ends with one and no LF follows.
fn line_end(start: &[u8]) -> u8 {
    let mut rest = start.iter().skip_while(|byte| !matches!(byte, b'\n' | b'\r'));
    let is_cr = rest.next() == Some(&b'\r') && rest.next().is_some_and(|next| *next != b'\n');
    if is_cr { b'\r' } else { b'\n' }
}
