//! The functions that several scripts need, put before them. Read next: [`script`](super::script), which does it where
//! it is asked to.

/// The functions, as they are written.
const PRELUDE: &str = include_str!("prelude.lua");

/// The script with the prelude, and what more it needs, before its second line, which is a comment in each of ours.
/// They are one line there, so what the server says of a line is true of the script's file.
pub(super) fn prepended(script: &str, more: &str) -> String {
    let (flags, body) = script.split_once('\n').unwrap_or((script, ""));
    format!("{flags}\n{} {} {body}", on_one_line(PRELUDE), on_one_line(more))
}

/// Lua without its comments and line ends. A comment has a line of its own, so nothing is taken out of a string.
fn on_one_line(lua: &str) -> String {
    let code = lua
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("--") && !line.starts_with("#!"));
    code.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that names another line than the file's sends whoever reads it to the wrong place.
    #[test]
    fn the_lines_of_a_script_keep_their_numbers() {
        let script = "#!lua flags=allow-oom\n-- settle: end it.\nreturn whole(1)\n";
        let text = prepended(script, "");
        assert_eq!(text.lines().count(), script.lines().count());
        assert_eq!(text.lines().next(), Some("#!lua flags=allow-oom"));
        assert_eq!(text.lines().nth(2), Some("return whole(1)"));
        assert!(text.contains("local function whole(n)") && text.contains("-- settle: end it."));
    }

    /// A comment behind code would swallow the rest of the line that the prelude becomes.
    #[test]
    fn no_comment_stands_behind_code() {
        assert!(!on_one_line(PRELUDE).contains("--"));
    }
}
