//! Functions that several scripts share. [`script`](super::script) inserts them into a script that needs them.

/// The source of the functions.
const PRELUDE: &str = include_str!("prelude.lua");

/// Inserts the prelude and `more` before the script's second line, which is a comment in all our scripts. They form one
/// line, so that line numbers in the server's errors match the script's file.
pub(super) fn prepended(script: &str, more: &str) -> String {
    let (flags, body) = script.split_once('\n').unwrap_or((script, ""));
    format!("{flags}\n{} {} {body}", on_one_line(PRELUDE), on_one_line(more))
}

/// Lua without comments and line ends. Every comment has its own line, so no string is changed.
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

    /// An error with a wrong line number would send its reader to the wrong line.
    #[test]
    fn the_lines_of_a_script_keep_their_numbers() {
        let script = "#!lua flags=allow-oom\n-- settle: end it.\nreturn whole(1)\n";
        let text = prepended(script, "");
        assert_eq!(text.lines().count(), script.lines().count());
        assert_eq!(text.lines().next(), Some("#!lua flags=allow-oom"));
        assert_eq!(text.lines().nth(2), Some("return whole(1)"));
        assert!(text.contains("local function whole(n)") && text.contains("-- settle: end it."));
    }

    /// A comment behind code would comment out the rest of the prelude, which becomes one line.
    #[test]
    fn no_comment_stands_behind_code() {
        assert!(!on_one_line(PRELUDE).contains("--"));
    }
}
