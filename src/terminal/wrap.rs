//! Wraps text to a terminal. Pure.

/// Start and end of the lines of a text, in columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margins {
    /// Start of the first line, for example after a label.
    pub first: usize,
    pub others: usize,
    /// End of all lines; `None` for one line of any length.
    pub end: Option<usize>,
}

/// Wraps the text at spaces and indents later lines. A word longer than a line, such as an id to copy, stays whole.
pub fn wrapped(text: &str, Margins { first, others, end }: Margins) -> Vec<String> {
    let Some(end) = end else { return vec![text.to_owned()] };
    let (mut lines, mut line, mut column) = (Vec::new(), String::new(), first);
    for (at, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        let begins_line = at == 0;
        if !begins_line && column + 1 + length > end && column > others {
            if word.is_empty() {
                // The second of two spaces: the next line begins with a word.
                continue;
            }
            lines.push(std::mem::replace(&mut line, " ".repeat(others)));
            column = others;
        } else if !begins_line {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal breaks a line within a word, and an id copied from two lines is wrong.
    #[test]
    fn text_is_broken_at_spaces_and_words_stay_whole() {
        let lines = |text: &str, first, others, end| wrapped(text, Margins { first, others, end });
        assert_eq!(lines("one two  three", 0, 2, None), ["one two  three"]);
        assert_eq!(lines("one two three four", 0, 2, Some(9)), ["one two", "  three", "  four"]);
        assert_eq!(lines("one two three", 0, 2, Some(13)), ["one two three"]);
        assert_eq!(lines("one two  three", 0, 2, Some(7)), ["one two", "  three"]);
        assert_eq!(lines("one two", 6, 4, Some(12)), ["one", "    two"]);
        assert_eq!(lines("a alert_0123456789 b", 0, 2, Some(9)), ["a alert_0123456789", "  b"]);
        assert_eq!(lines("", 0, 2, Some(9)), [""]);
    }
}
