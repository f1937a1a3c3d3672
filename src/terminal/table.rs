//! Columns of a list: widths, cutting on a narrow terminal, colors. Pure.

use std::fmt;
use std::io::IsTerminal;

use crate::types::text::printable;

const GAP: usize = 2;
/// Minimum width of a cut column, so that names stay recognizable.
const CUT_WIDTH_MIN: usize = 8;
/// A name in the first column up to this width (that of a UUID) is cut last, because other commands need the whole
/// name.
const NAME_WIDTH: usize = 36;
/// Marks cut text.
const CUT: char = '…';

/// Whether to use bold text and colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Styling {
    Ansi,
    Plain,
}

impl Styling {
    /// The styling for a stream: only on a terminal, and unless NO_COLOR is set (no-color.org).
    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if stream.is_terminal() && !no_color && !dumb { Self::Ansi } else { Self::Plain }
    }

    /// The text in a color, if colors are in use.
    pub fn paint(self, color: Color, text: impl fmt::Display) -> String {
        match self {
            Self::Ansi => format!("\x1b[{}m{text}\x1b[0m", color.sgr()),
            Self::Plain => text.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// A heading.
    Bold,
    /// Success.
    Green,
    /// In progress.
    Yellow,
    /// Failure.
    Red,
    /// Ended without success or failure.
    Gray,
}

impl Color {
    const fn sgr(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
            Self::Gray => "90",
        }
    }
}

#[derive(Debug)]
pub struct Table {
    heading: Vec<String>,
    widths: Vec<usize>,
    heading_due: bool,
    may_shrink: &'static [&'static str],
    shrinks_first: Option<&'static str>,
    color: Option<ColumnColor>,
    picture: Option<Picture>,
}

/// The column that is left out unless a terminal is wide enough for it.
#[derive(Debug, Clone, Copy)]
struct Picture {
    column: &'static str,
    /// Its place, once it is left out.
    left_out: Option<usize>,
}

/// The colored column, and the function that chooses the color of its text.
#[derive(Debug, Clone, Copy)]
struct ColumnColor {
    column: &'static str,
    of: fn(&str) -> Option<Color>,
}

impl Table {
    pub fn new(heading: &[&str]) -> Self {
        Self {
            heading: heading.iter().map(ToString::to_string).collect(),
            widths: heading.iter().map(|name| name.chars().count()).collect(),
            heading_due: true,
            may_shrink: &[],
            shrinks_first: None,
            color: None,
            picture: None,
        }
    }

    /// The columns whose text is cut if a line would be wider than the terminal.
    #[must_use]
    pub const fn may_shrink(mut self, columns: &'static [&'static str]) -> Self {
        self.may_shrink = columns;
        self
    }

    /// The column that is cut before all others.
    #[must_use]
    pub const fn shrinks_first(mut self, column: &'static str) -> Self {
        self.shrinks_first = Some(column);
        self
    }

    /// Colors the cells of one column by their text.
    #[must_use]
    pub const fn colored(mut self, column: &'static str, of: fn(&str) -> Option<Color>) -> Self {
        self.color = Some(ColumnColor { column, of });
        self
    }

    /// A column that repeats the others as a picture. It is left out of a pipe, and if a line would be wider than the
    /// terminal.
    #[must_use]
    pub const fn picture(mut self, column: &'static str) -> Self {
        self.picture = Some(Picture { column, left_out: None });
        self
    }

    /// The rows as lines, with the heading before the first ones. `width` is that of the terminal.
    pub fn lines(&mut self, rows: &[Vec<String>], width: Option<usize>, styling: Styling) -> Vec<String> {
        let mut rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.judge_picture(width);
        if let Some(column) = self.picture.and_then(|picture| picture.left_out) {
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
        let widths = self.fitted(width);
        let mut lines = Vec::with_capacity(rows.len() + 1);
        if self.heading_due {
            self.heading_due = false;
            let heading = aligned(&self.heading, &widths, |_, cell| cell);
            lines.push(styling.paint(Color::Bold, heading));
        }
        let color_of = |column: usize, cell: &str| {
            self.color.filter(|color| color.column == self.heading[column]).and_then(|ColumnColor { of, .. }| of(cell))
        };
        let styled = |column: usize, cell: String| match color_of(column, &cell) {
            Some(color) => styling.paint(color, cell),
            None => cell,
        };
        lines.extend(rows.iter().map(|row| aligned(row, &widths, styled)));
        lines
    }

    /// Leaves the picture out if there is no room for it. The first part of a list decides.
    fn judge_picture(&mut self, width: Option<usize>) {
        let Some(picture) = self.picture.as_mut().filter(|_| self.heading_due) else { return };
        let whole = self.widths.iter().sum::<usize>() + GAP * self.widths.len().saturating_sub(1);
        if width.is_none_or(|width| whole > width) {
            picture.left_out = self.heading.iter().position(|column| column == picture.column);
            if let Some(column) = picture.left_out {
                self.heading.remove(column);
                self.widths.remove(column);
            }
        }
    }

    /// The widths that make a line fit. First the column `first` shrinks, then the widest of the shrinkable ones. If
    /// even the minimum is too wide, the terminal breaks the line.
    fn fitted(&self, width: Option<usize>) -> Vec<usize> {
        let mut widths = self.widths.clone();
        let gaps = GAP * widths.len().saturating_sub(1);
        let Some(columns) = width.map(|width| width.saturating_sub(gaps)) else { return widths };
        while widths.iter().sum::<usize>() > columns {
            let least = |column: usize| CUT_WIDTH_MIN.max(self.heading[column].chars().count());
            let shrinkable = (0..widths.len()).filter(|column| {
                self.may_shrink.contains(&self.heading[*column].as_str()) && widths[*column] > least(*column)
            });
            let is_name = |column: usize| column == 0 && widths[column] <= NAME_WIDTH;
            let is_first = |column: usize| self.shrinks_first == Some(self.heading[column].as_str());
            let next = shrinkable.max_by_key(|column| (is_first(*column), !is_name(*column), widths[*column]));
            let Some(next) = next else { break };
            widths[next] -= 1;
        }
        widths
    }
}

/// One line: each cell in its column, without trailing spaces. `styled` may add characters without width.
fn aligned(row: &[String], widths: &[usize], styled: impl Fn(usize, String) -> String) -> String {
    let mut line = String::new();
    let mut padding = 0;
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        let cell = cut(cell, *width);
        let length = cell.chars().count();
        if length > 0 {
            line.extend(std::iter::repeat_n(' ', padding));
            padding = 0;
            line.push_str(&styled(column, cell));
        }
        padding += width.saturating_sub(length) + GAP;
    }
    line
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let mut shown: String = cell.chars().take(width.saturating_sub(1)).collect();
    shown.push(CUT);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(ToString::to_string).collect()
    }

    fn table() -> Table {
        let color = |text: &str| (text == "dead").then_some(Color::Red);
        Table::new(&["ID", "SUBJECT", "STATE", "ERROR"]).may_shrink(&["SUBJECT", "ERROR"]).colored("STATE", color)
    }

    /// A line that the terminal breaks would look like two; a pipe needs the whole text.
    #[test]
    fn columns_are_cut_to_the_terminal_and_whole_in_a_pipe() {
        let rows = [row(&["6f1ed002", &"s".repeat(100), "dead", &"e".repeat(60)]), row(&["1", "", "pending", ""])];
        let lines = table().lines(&rows, Some(80), Styling::Plain);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert!(lines[1].starts_with("6f1ed002  sss") && lines[1].ends_with('…'), "{lines:#?}");
        let whole = table().lines(&rows, None, Styling::Plain);
        assert!(whole[1].contains(&rows[0][1]) && whole[1].contains(&rows[0][3]), "{whole:#?}");
        // Even without a free column a name stays recognizable.
        let narrow = table().lines(&rows, Some(10), Styling::Plain);
        assert!(narrow[1].contains("sssssss…"), "{narrow:#?}");
    }

    /// A cut subject can't be passed to another command: it stays whole while other columns can shrink.
    #[test]
    fn a_name_in_the_first_column_gives_way_last() {
        let id = "7b0c6f4e-2c39-4d1e-9f0a-5a3f1b2c4d6e";
        let rows = [row(&[id, &"s".repeat(20), "active", &"e".repeat(20)])];
        let mut table =
            Table::new(&["SUBJECT", "LIMITS", "STATE", "CONTACTS"]).may_shrink(&["SUBJECT", "LIMITS", "CONTACTS"]);
        let lines = table.lines(&rows, Some(64), Styling::Plain);
        assert!(lines[1].starts_with(id) && lines[1].chars().count() <= 64, "{lines:#?}");
    }

    /// Colors take no width, and control characters are escaped before the width is measured.
    #[test]
    fn colours_and_escapes_keep_the_columns_aligned() {
        let rows = [row(&["1", "a\x1bb", "dead", "x"]), row(&["2", "a", "pending", "y"])];
        assert_eq!(
            table().lines(&rows, None, Styling::Ansi),
            [
                "\x1b[1mID  SUBJECT   STATE    ERROR\x1b[0m",
                "1   a\\u{1b}b  \x1b[31mdead\x1b[0m     x",
                "2   a         pending  y",
            ]
        );
    }

    /// In a pipe a bar is noise for programs; on a narrow terminal the numbers are worth more.
    #[test]
    fn a_picture_is_shown_where_there_is_room() {
        let lines = |width| {
            let mut table = Table::new(&["ID", "BAR", "USED"]).picture("BAR");
            let first = table.lines(&[row(&["a", "▕██▏", "5"])], width, Styling::Plain);
            [first, table.lines(&[row(&["bcd", "▕█ ▏", "10"])], width, Styling::Plain)].concat()
        };
        assert_eq!(lines(Some(14)), ["ID  BAR   USED", "a   ▕██▏  5", "bcd  ▕█ ▏  10"]);
        for narrow in [Some(13), None] {
            assert_eq!(lines(narrow), ["ID  USED", "a   5", "bcd  10"]);
        }
    }

    /// A list in parts has one heading.
    #[test]
    fn the_heading_is_printed_once() {
        let mut table = table();
        assert_eq!(table.lines(&[row(&["1"])], None, Styling::Plain), ["ID  SUBJECT  STATE  ERROR", "1"]);
        assert_eq!(table.lines(&[row(&["2"])], None, Styling::Plain), ["2"]);
    }
}
