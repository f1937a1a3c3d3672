//! The text of an import, line by line, as spreadsheets write it: UTF-8 or UTF-16, lines that end with LF, CR LF or CR.
//!
//! Knows nothing of what a line means. Files whose bytes could mean several texts are refused with what to do instead.

use std::io::{self, BufRead as _, BufReader, Read};

use encoding_rs_io::{DecodeReaderBytes, DecodeReaderBytesBuilder};

/// The longest line, and the longest quoted cell: a forgotten quote must not make the import read the whole file into
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
    line_end: LineEnd,
    line: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    /// Nothing is known before the first line has ended.
    Unknown,
    /// With or without a CR before it.
    Lf,
    /// As spreadsheets on old Macs wrote it.
    Cr,
}

impl<R: Read> ImportText<R> {
    /// The text of `input`. A byte order mark is left out, and decides between UTF-8 and UTF-16.
    pub(super) fn new(input: R) -> Self {
        let decoded = DecodeReaderBytesBuilder::new().utf8_passthru(true).strip_bom(true).build(input);
        Self { input: BufReader::new(decoded), line_end: LineEnd::Unknown, line: 0 }
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
        let mut bytes = Vec::new();
        let is_ended = self.read_to_end_of_line(&mut bytes).map_err(|source| ImportReadError::Read { line, source })?;
        if bytes.is_empty() && !is_ended {
            return Ok(None);
        }
        if !is_ended && bytes.len() as u64 >= LINE_BYTES_MAX {
            return Err(ImportReadError::Endless { line });
        }
        if bytes.contains(&0) {
            return Err(ImportReadError::Nul { line });
        }
        if self.line_end == LineEnd::Cr && bytes.contains(&b'\n') {
            return Err(ImportReadError::MixedLineEnds { line });
        }
        self.line = line;
        if is_ended {
            bytes.push(b'\n');
        }
        Ok(Some(bytes))
    }

    /// Reads up to the end of the line and takes that too. Says whether there was one before the file's end, or the
    /// longest line's.
    fn read_to_end_of_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(false);
            }
            let ends = |byte: &u8| match self.line_end {
                LineEnd::Unknown => matches!(byte, b'\n' | b'\r'),
                LineEnd::Lf => *byte == b'\n',
                LineEnd::Cr => *byte == b'\r',
            };
            let Some(at) = buffer.iter().position(ends) else {
                let taken = buffer.len();
                line.extend_from_slice(buffer);
                self.input.consume(taken);
                if line.len() as u64 >= LINE_BYTES_MAX {
                    return Ok(false);
                }
                continue;
            };
            let end = buffer[at];
            line.extend_from_slice(&buffer[..at]);
            self.input.consume(at + 1);
            match self.line_end {
                LineEnd::Unknown if end == b'\r' && self.input.fill_buf()?.first() == Some(&b'\n') => {
                    self.input.consume(1);
                    self.line_end = LineEnd::Lf;
                }
                LineEnd::Unknown => self.line_end = if end == b'\r' { LineEnd::Cr } else { LineEnd::Lf },
                LineEnd::Lf if line.last() == Some(&b'\r') => {
                    line.pop();
                }
                LineEnd::Lf | LineEnd::Cr => {}
            }
            return Ok(true);
        }
    }
}
