//! The common parts of email and webhook templates: their variables and filters, the samples that check them, and the
//! texts of errors. Pure.

use std::path::{Path, PathBuf};

use chrono::format::{Fixed, Item, Numeric, StrftimeItems};
use chrono::{DateTime, MappedLocalTime, NaiveDateTime, SecondsFormat, TimeZone as _};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, context};

use super::channel::AlertPurpose;
use super::error::ChannelError;
use super::labels::Labels;
use super::sample::{SAMPLE_AT, Sample};
use crate::types::alert::LargestChild;
use crate::types::metric_format;
use crate::types::text::{backslashed, grouped, printable};
use crate::types::{Alert, Subject, Threshold, UnixMs, Window, WindowLimit};
use crate::zones::Zone;

/// Maximum work of one template. The embedded ones need less than 1,000. An accidental endless loop ends here instead
/// of blocking all other deliveries.
const FUEL: u64 = 200_000;
/// A time of day for people.
const WALL_CLOCK: &str = "%Y-%m-%d %H:%M";
/// The filters for error texts, in addition to those of minijinja.
const FILTERS: &str = "thousands, amount, clock, printable, entities, backslashed";

/// The sorted entries of the folder of `setting`.
pub(super) fn entries_of(setting: &'static str, folder: &Path) -> Result<Vec<PathBuf>, ChannelError> {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = entries.map_err(|source| ChannelError::unreadable(setting, folder, source))?;
    paths.sort_unstable();
    Ok(paths)
}

/// Reads a template without its byte order mark, which Windows editors write.
pub(super) fn read_file(setting: &'static str, path: &Path) -> Result<String, ChannelError> {
    let text = std::fs::read_to_string(path).map_err(|source| ChannelError::unreadable(setting, path, source))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// An environment with these embedded templates: strict, with a bound on the work of one template. A `.html` template
/// escapes values for HTML, and a `.json` template writes them as JSON.
pub(super) fn environment(embedded: &[(&'static str, &'static str)]) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // For names and lines in errors.
    environment.set_debug(true);
    environment.set_auto_escape_callback(|name| match name.rsplit_once('.') {
        Some((_, "html")) => AutoEscape::Html,
        Some((_, "json")) => AutoEscape::Json,
        _ => AutoEscape::None,
    });
    environment
        .add_filter("thousands", |number: u64, separator: Option<&str>| grouped(number, separator.unwrap_or(",")));
    environment.add_filter("amount", amount);
    environment.add_filter("clock", clock);
    environment.add_filter("printable", |text: &str| printable(text));
    environment.add_filter("entities", |text: &str| entities(text));
    environment.add_filter("backslashed", |text: &str, letters: &str| backslashed(text, letters));
    for &(name, source) in embedded {
        environment.add_template(name, source).expect("a test reads each embedded template");
    }
    environment
}

/// The text with `&`, `<` and `>` as entities, for HTML and Slack.
pub(super) fn entities(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A count with the scale and the unit of its metric.
fn amount(state: &State<'_, '_>, count: u64, separator: Option<&str>) -> String {
    let scale = state.lookup("scale").and_then(|scale| u8::try_from(scale).ok()).unwrap_or(0);
    let unit = state.lookup("unit");
    let unit = unit.as_ref().and_then(Value::as_str).unwrap_or_default();
    metric_format::amount(count, scale, unit, separator.unwrap_or(","))
}

/// Formats `2026-11-22T00:00:00+07:00` as `2026-11-22 00:00`, or in the given form: the time that a clock on the wall
/// shows there. An empty text, the end of a total, stays empty. The offset is added to a time that occurs twice,
/// because clocks are set back.
fn clock(state: &State<'_, '_>, time: &str, form: Option<&str>) -> Result<String, Error> {
    if time.is_empty() {
        return Ok(String::new());
    }
    let wrong = |takes| Error::new(ErrorKind::InvalidOperation, takes);
    let at =
        DateTime::parse_from_rfc3339(time).map_err(|_| wrong("clock takes a time such as resets_at or raised_at"))?;
    // An invalid form would panic during formatting.
    let form = StrftimeItems::new(form.unwrap_or(WALL_CLOCK)).parse();
    let form = form.map_err(|_| wrong("clock takes a strftime format such as \"%d/%m/%Y %H:%M\""))?;
    let shows_hour = form.iter().any(|item| matches!(item, Item::Numeric(Numeric::Hour | Numeric::Hour12, _)));
    let shows_offset = form.iter().any(|item| {
        matches!(item, Item::Fixed(Fixed::TimezoneOffset | Fixed::TimezoneOffsetColon | Fixed::TimezoneOffsetZ))
    });
    let zone = state.lookup("timezone");
    let occurs_twice = zone.as_ref().and_then(Value::as_str).is_some_and(|zone| occurs_twice(at.naive_local(), zone));
    let offset =
        if occurs_twice && shows_hour && !shows_offset { at.format(" %:z").to_string() } else { String::new() };
    Ok(format!("{}{offset}", at.format_with_items(form.into_iter())))
}

/// Whether clocks in this zone show this time twice.
fn occurs_twice(local: NaiveDateTime, zone: &str) -> bool {
    let zone = zone.parse().unwrap_or(Zone::UTC);
    matches!(zone.from_local_datetime(&local), MappedLocalTime::Ambiguous(..))
}

/// The variables of a template. They are documented in `templates/alert.txt`. `name` converts names for the reader:
/// [`printable`] for people, unchanged for a program.
pub(super) fn variables(alert: &Alert, labels: &Labels, purpose: AlertPurpose, name: impl Fn(&str) -> String) -> Value {
    let zone = alert.timezone.parse().unwrap_or(Zone::UTC);
    context! {
        threshold_percent => alert.threshold_share(),
        threshold => threshold_value(alert.threshold),
        used => alert.used,
        limit => alert.limit,
        used_percent => alert.used_percent(),
        remaining => alert.limit.saturating_sub(alert.used),
        period => alert.period.to_string(),
        starts_at => local_or_empty(alert.period.starts_in(zone), &alert.timezone),
        resets_at => local_or_empty(alert.resets_at.map(|end| end.0), &alert.timezone),
        raised_at => local(alert.raised_at_ms, &alert.timezone),
        largest => alert.largest.iter().map(|child| child_value(child, &name)).collect::<Vec<_>>(),
        largest_text => largest_text(alert, &name),
        severity => if alert.threshold_share() < 100 { "warning" } else { "exceeded" },
        test => purpose == AlertPurpose::Test,
        copy => purpose == AlertPurpose::Copy,
        ..labels.variables(alert, &name)
    }
}

/// The threshold as an alert's JSON has it.
pub(super) fn threshold_value(threshold: Threshold) -> Value {
    match threshold {
        Threshold::Percent(percent) => context! { kind => "percent", percent => percent.get() },
        Threshold::Used(units) => context! { kind => "used", units => units.get() },
        Threshold::Remaining(units) => context! { kind => "remaining", units => units.get() },
    }
}

fn child_value(child: &LargestChild, name: impl Fn(&str) -> String) -> Value {
    context! {
        subject => name(child.subject.as_str()),
        used => child.used,
        percent => child.percent.as_f64(),
    }
}

/// `acme/search (45%), acme/chat (40%)`; empty without children.
fn largest_text(alert: &Alert, name: impl Fn(&str) -> String) -> String {
    let child = |child: &LargestChild| {
        format!("{} ({}%)", name(child.subject.as_str()), child.percent.as_f64().unwrap_or(0.0).floor())
    };
    alert.largest.iter().map(child).collect::<Vec<_>>().join(", ")
}

/// Thresholds of each kind: below, at and above the limit of the sample, and what remains of it.
const SAMPLE_THRESHOLDS: [&str; 7] = ["80", "100", "120", "used:4000", "used:5000", "used:6000", "remaining:1000"];

/// An alert of each kind that a template can distinguish: every window, each kind of threshold, below, at and above the
/// limit, reached with a count below, at and above it, with and without children, and each as a copy, as a test, and
/// with names, a unit and links.
pub(super) fn samples() -> impl Iterator<Item = (Alert, Labels, AlertPurpose)> {
    let sample = Sample::example();
    Window::ALL.into_iter().flat_map(move |window| {
        let sample = Sample { limit: WindowLimit { window, ..sample.limit }, ..sample.clone() };
        let thresholds = SAMPLE_THRESHOLDS.into_iter().filter_map(|text| text.parse::<Threshold>().ok());
        let alerts = thresholds.map(move |threshold| sample.alert(threshold, SAMPLE_AT)).flat_map(|alert| {
            // One event may take the count far above the threshold.
            let counts = [alert.used, alert.limit, alert.limit + 1].into_iter().filter(|used| *used >= alert.used);
            let counted: Vec<Alert> = counts.map(|used| Alert { used, ..alert.clone() }).collect();
            counted.into_iter().chain([Alert { largest: largest_of(&alert), ..alert }])
        });
        alerts.flat_map(|alert| {
            let kinds = [AlertPurpose::Alert, AlertPurpose::Copy, AlertPurpose::Test];
            let plain = kinds.map(|purpose| (alert.clone(), Labels::default(), purpose));
            plain.into_iter().chain([(alert, Labels::sample(), AlertPurpose::Alert)])
        })
    })
}

/// The only child of a sample.
fn largest_of(alert: &Alert) -> Vec<LargestChild> {
    let child = Subject::parse(b"example-customer/team").expect("legal");
    vec![LargestChild::new(child, alert.used, alert.used)]
}

/// The error of a template: what is wrong, in which line, and what is allowed. `templates` are the names that it may
/// include.
pub(super) fn explain(error: &Error, templates: &str, variables: &Value) -> String {
    let line = error.line().unwrap_or(1);
    // If an included template is wrong or lacks a variable, its error is the source.
    let outer = error;
    let mut error = error;
    while let Some(inner) = std::error::Error::source(error).and_then(|source| source.downcast_ref()) {
        error = inner;
    }
    let place = match (error.name(), error.line()) {
        (Some(name), Some(line)) if !std::ptr::eq(error, outer) => format!(" ({name}, line {line})"),
        _ => String::new(),
    };
    let shown = error.template_source().zip(error.range()).and_then(|(source, range)| source.get(range));
    let what = match (error.kind(), error.detail(), shown) {
        (ErrorKind::UndefinedError, _, Some(shown)) => format!("{shown:?} is not known"),
        (kind, Some(detail), _) => format!("{kind}: {detail}"),
        (kind, None, Some(shown)) => format!("{kind} in {shown:?}"),
        (kind, None, None) => kind.to_string(),
    };
    let known = match error.kind() {
        ErrorKind::UnknownFilter => format!("the filters {FILTERS} and those of minijinja"),
        ErrorKind::TemplateNotFound => format!("the templates {templates}"),
        _ => format!("the variables {} and the filters {FILTERS}", names_of(variables)),
    };
    format!("line {line}: {what}{place}; known are {known}")
}

/// The names of variables, for error texts.
pub(super) fn names_of(variables: &Value) -> String {
    let names = variables.try_iter().into_iter().flatten();
    names.map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

pub(super) fn local_or_empty(at: Option<UnixMs>, zone: &str) -> String {
    at.map(|at| local(at, zone)).unwrap_or_default()
}

/// RFC 3339 in the zone, in whole seconds; in UTC if the zone is unknown here.
pub(super) fn local(at: UnixMs, zone: &str) -> String {
    let zone = zone.parse().unwrap_or(Zone::UTC);
    let local = at.to_utc().unwrap_or_default().with_timezone(&zone);
    local.to_rfc3339_opts(SecondsFormat::Secs, true)
}
