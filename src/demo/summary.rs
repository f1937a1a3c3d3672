//! The end: the table of expected against seen, or its JSON, and what to do next.

use serde::Serialize;

use super::compare::{Comparison, ComparisonResult, wrong};
use super::screen::{Colour, Screen};
use crate::terminal::hint;
use crate::terminal::output::{Format, Output};

/// The whole summary as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    ok: bool,
    seconds: f64,
    checks: &'a [Comparison],
}

/// Shows the checks; a failure when one of them is wrong.
pub(super) fn show(screen: &Screen, format: Format, checks: &[Comparison]) -> anyhow::Result<()> {
    let seconds = screen.elapsed().as_secs_f64();
    match format {
        Format::Json => {
            let mut output = Output::stdout();
            output.json(&Summary { ok: wrong(checks) == 0, seconds, checks })?;
            output.finish()?;
        }
        Format::Table => table(screen, checks)?,
    }
    fail_if_wrong(checks)?;
    let all = format!("all {} numbers are as expected, after {seconds:.1} s", checks.len());
    screen.line("")?;
    screen.line(screen.paint(Colour::Green, all))
}

/// Fails when a check is wrong: this is what makes the exit code 1.
pub(super) fn fail_if_wrong(checks: &[Comparison]) -> anyhow::Result<()> {
    match wrong(checks) {
        0 => Ok(()),
        wrong => Err(hint::failed(
            format_args!("{wrong} of {} numbers are not as expected; they are marked WRONG above", checks.len()),
            "`quotabell demo --keep` keeps the folder with the daemon's logs and the data",
        )),
    }
}

/// What to do next.
pub(super) fn show_next(screen: &Screen) -> anyhow::Result<()> {
    screen.line("")?;
    screen.line("Next: `make run` starts the daemon with a Redis on 127.0.0.1:6399; then try")?;
    screen.line("redis-cli -p 6399 XADD usage '*' subject alice units 4000    (more in README.md)")
}

fn table(screen: &Screen, checks: &[Comparison]) -> anyhow::Result<()> {
    for section in checks.chunk_by(|a, b| a.section == b.section) {
        screen.line("")?;
        rows(section).iter().try_for_each(|row| screen.line(painted(screen, row)))?;
    }
    Ok(())
}

/// One line of the table, its columns as wide as the section needs.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Up to the numbers.
    head: String,
    /// `ok`, `WRONG`, or nothing in the heading.
    mark: &'static str,
    note: String,
}

/// A section's heading and lines. Pure.
fn rows(section: &[Comparison]) -> Vec<Row> {
    let name = section.first().map_or("", |check| check.section);
    let widest = |of: fn(&Comparison) -> &str, least: usize| {
        section.iter().map(|check| of(check).chars().count()).max().unwrap_or(0).max(least)
    };
    let what = widest(|check| &check.what, name.len().saturating_sub(2)) + 2;
    let expected = widest(|check| &check.expected, "expected".len());
    let seen = widest(|check| &check.seen, "seen".len());
    let line = |a: &str, b: &str, c: &str| format!("{a:what$}  {b:>expected$}  {c:>seen$}");
    let mut rows = vec![Row { head: line(name, "expected", "seen"), mark: "", note: String::new() }];
    rows.extend(section.iter().map(|check| Row {
        head: line(&format!("  {}", check.what), &check.expected, &check.seen),
        mark: if check.result == ComparisonResult::Right { "ok" } else { "WRONG" },
        note: check.note.clone(),
    }));
    rows
}

fn painted(screen: &Screen, row: &Row) -> String {
    let Row { head, mark, note } = row;
    let line = match *mark {
        "" => screen.paint(Colour::Bold, head),
        "ok" => format!("{head}  {}  {}", screen.paint(Colour::Green, "ok"), screen.paint(Colour::Dim, note)),
        _ => format!("{}  {note}", screen.paint(Colour::Red, format_args!("{head}  {mark}"))),
    };
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seen: &str, result: ComparisonResult) -> Comparison {
        Comparison {
            section: "units counted",
            what: "alice, requests".to_owned(),
            expected: "5,600".to_owned(),
            seen: seen.to_owned(),
            note: String::new(),
            result,
        }
    }

    /// A wrong number must be seen at a glance and by the shell.
    #[test]
    fn a_wrong_number_is_marked_and_fails() {
        let checks = [check("5,600", ComparisonResult::Right), check("5,599", ComparisonResult::Wrong)];
        let marks: Vec<&str> = rows(&checks).iter().map(|row| row.mark).collect();
        assert_eq!(marks, ["", "ok", "WRONG"]);
        let report = hint::report(&fail_if_wrong(&checks));
        assert_eq!(report.exit, hint::Exit::Failed);
        assert!(report.text.starts_with("error: 1 of 2 numbers are not as expected"), "{}", report.text);
        assert_eq!(hint::report(&fail_if_wrong(&checks[..1])).exit, hint::Exit::Done);
    }

    /// Columns that don't line up hide a wrong digit.
    #[test]
    fn columns_line_up() {
        let lines: Vec<String> =
            rows(&[check("5,600", ComparisonResult::Right)]).into_iter().map(|row| row.head).collect();
        assert_eq!(lines, ["units counted      expected   seen", "  alice, requests     5,600  5,600"]);
    }
}
