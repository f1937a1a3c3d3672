//! CSV of an import (RFC 4180), also with semicolons or tabs: records with their line numbers.
//!
//! The crate `csv` is not used: it takes text after a closing quote for a part of the cell, and reads an unclosed quote
//! up to the end of the file. Here the first is an error of the line, and the second is bounded.

use std::io::Read;

use super::import_text::{ImportReadError, ImportText, LINE_BYTES_MAX, SAVE_AS};

/// The separators of spreadsheets, which depend on the language of the system.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// A record of the file.
pub(super) struct RawRecord {
    /// The number of its first line.
    pub(super) line: u64,
    text: Result<String, String>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// Without surrounding spaces, unless it was quoted.
    pub(super) text: String,
    /// Whether surrounding spaces were removed.
    pub(super) was_trimmed: bool,
}

/// The header line.
#[derive(Debug)]
pub(super) struct Header {
    /// The names of the columns; `None` for an empty column. The last one has a name.
    pub(super) names: Vec<Option<String>>,
    separator: char,
}

/// Reads the next record that is not blank; `None` at the end of the file. A quoted cell may contain separators,
/// doubled quotes and line breaks. Before the header is known, every separator may end a cell.
pub(super) fn read_record<R: Read>(
    text: &mut ImportText<R>,
    header: Option<&Header>,
) -> Result<Option<RawRecord>, ImportReadError> {
    let separators = header.map_or(&SEPARATORS[..], |header| std::slice::from_ref(&header.separator));
    loop {
        let Some(mut bytes) = text.read_line()? else { return Ok(None) };
        let line = text.line();
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let mut place = Place::CellStart.after(&bytes, separators);
        while place == Place::Quoted {
            match text.read_line()? {
                Some(more) if (bytes.len() + more.len()) as u64 <= LINE_BYTES_MAX => {
                    place = place.after(&more, separators);
                    bytes.extend(more);
                }
                _ => return Err(ImportReadError::Endless { line }),
            }
        }
        let mut text = String::from_utf8(bytes).map_err(|_| format!("not UTF-8: {SAVE_AS}"));
        if let Ok(text) = &mut text
            && text.ends_with('\n')
        {
            text.pop();
        }
        return Ok(Some(RawRecord { line, text }));
    }
}

/// A position in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A quote here starts a quoted cell.
    CellStart,
    /// A quote here is an error.
    Unquoted,
    Quoted,
    /// After a quote in a quoted cell: the cell ends, or a doubled quote follows.
    AfterQuote,
}

impl Place {
    /// The position after these bytes.
    fn after(self, bytes: &[u8], separators: &[char]) -> Self {
        bytes.iter().fold(self, |place, byte| match (place, byte) {
            (Self::CellStart | Self::AfterQuote, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::AfterQuote,
            (Self::Quoted, _) => Self::Quoted,
            _ if separators.contains(&char::from(*byte)) => Self::CellStart,
            _ => Self::Unquoted,
        })
    }
}

impl RawRecord {
    /// The separator of a line `sep=;`, which Excel writes before the header.
    ///
    /// # Errors
    ///
    /// The line names a separator that is not allowed.
    pub(super) fn separator(&self) -> Result<Option<char>, ImportReadError> {
        let Ok(text) = &self.text else { return Ok(None) };
        let text = text.trim_matches('"');
        let Some(named) = text.get(..4).filter(|start| start.eq_ignore_ascii_case("sep=")).map(|_| &text[4..]) else {
            return Ok(None);
        };
        let mut named = named.chars();
        match (named.next(), named.next()) {
            (Some(one), None) if SEPARATORS.contains(&one) => Ok(Some(one)),
            _ => Err(self.wrong("sep= must name a comma, a semicolon or a tab".to_owned())),
        }
    }

    /// Reads the header. Without a given separator, uses the one with which all names are `known`.
    ///
    /// # Errors
    ///
    /// A name is unknown with the most frequent separator of the line.
    pub(super) fn header(
        self,
        separator: Option<char>,
        known: impl Fn(&[Option<String>]) -> Result<(), String>,
    ) -> Result<Header, ImportReadError> {
        let text = self.text.as_deref().map_err(|why| self.wrong(why.clone()))?;
        let read = |separator| -> Result<Header, String> {
            let cells = cells_of(text, separator)?;
            let name = |cell: Cell| Some(cell.text.trim().to_owned()).filter(|name| !name.is_empty());
            let mut names: Vec<Option<String>> = cells.into_iter().map(name).collect();
            while names.last() == Some(&None) {
                names.pop();
            }
            known(&names)?;
            Ok(Header { names, separator })
        };
        let header = match separator {
            Some(separator) => read(separator),
            None => SEPARATORS.into_iter().map(read).find(Result::is_ok).unwrap_or_else(|| {
                let count = |separator: &char| text.matches(*separator).count();
                // The first of the most frequent separators.
                let most = SEPARATORS.into_iter().rev().max_by_key(count).unwrap_or(',');
                read(most)
            }),
        };
        header.map_err(|why| self.wrong(why))
    }

    /// The cells below the columns of a header; `None` if all are empty, as in rows of a spreadsheet.
    ///
    /// # Errors
    ///
    /// The fault of the line.
    pub(super) fn cells(self, header: &Header) -> Result<Option<Vec<Cell>>, String> {
        let mut cells = cells_of(&self.text?, header.separator)?;
        if cells.iter().all(|cell| cell.text.is_empty()) {
            return Ok(None);
        }
        while cells.len() > header.names.len() && cells.last().is_some_and(|cell| cell.text.is_empty()) {
            cells.pop();
        }
        if cells.len() != header.names.len() {
            return Err(format!("{} cells, but the header has {}", cells.len(), header.names.len()));
        }
        Ok(Some(cells))
    }

    fn wrong(&self, why: String) -> ImportReadError {
        ImportReadError::Header { line: self.line, why }
    }
}

fn cells_of(text: &str, separator: char) -> Result<Vec<Cell>, String> {
    let mut rest = text;
    let mut cells = Vec::new();
    loop {
        let after = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (text, after) = quoted_cell(quoted)?;
                cells.push(Cell { text, was_trimmed: false });
                after
            }
            None => {
                let end = rest.find(separator).unwrap_or(rest.len());
                let text = rest[..end].trim();
                if text.contains('"') {
                    return Err("a quote inside a cell: quote the whole cell, and double the quote in it".to_owned());
                }
                cells.push(Cell { text: text.to_owned(), was_trimmed: text.len() != end });
                &rest[end..]
            }
        };
        match after.strip_prefix(separator) {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(cells),
            None => return Err("text after a closing quote".to_owned()),
        }
    }
}

/// The cell whose opening quote was read, and the text after its closing quote.
fn quoted_cell(text: &str) -> Result<(String, &str), String> {
    let mut cell = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"').ok_or("a quote is not closed")?;
        cell.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                cell.push('"');
                rest = after;
            }
            None => return Ok((cell, rest)),
        }
    }
}
