//! Mails from templates: subject line, plain text and HTML.
//!
//! Owns the templates, embedded or the operator's, and the variables and filters they may use; the list is the comment at the top
//! of `templates/alert.txt` (and of `templates/verify.txt` for the mail that asks to confirm an address), which is all that an
//! operator has to read. Every template is rendered with samples at start, strictly, so that a typing error stops the start and not
//! an alert. Never touches the network; reads files only while it loads.

use std::path::{Path, PathBuf};

use chrono::{DateTime, SecondsFormat};
use chrono_tz::Tz;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

use crate::channels::channel::AlertPurpose;
use crate::channels::sample::{SAMPLE_AT, Sample};
use crate::types::{Alert, Percent, UnixMs, Window, WindowLimit};

/// The templates, by the names that files in `email.templates` bear.
const EMBEDDED: [Embedded; 6] = [
    Embedded { name: ALERT.subject_line, source: include_str!("../../../templates/subject.txt") },
    Embedded { name: ALERT.text, source: include_str!("../../../templates/alert.txt") },
    Embedded { name: ALERT.html, source: include_str!("../../../templates/alert.html") },
    Embedded { name: VERIFY.subject_line, source: include_str!("../../../templates/verify_subject.txt") },
    Embedded { name: VERIFY.text, source: include_str!("../../../templates/verify.txt") },
    Embedded { name: VERIFY.html, source: include_str!("../../../templates/verify.html") },
];
const ALERT: Letter = Letter { subject_line: "subject.txt", text: "alert.txt", html: "alert.html", known: VARIABLES };
const VERIFY: Letter =
    Letter { subject_line: "verify_subject.txt", text: "verify.txt", html: "verify.html", known: VERIFY_VARIABLES };
/// All of them, for error texts.
const NAMES: &str = "subject.txt, alert.txt, alert.html, verify_subject.txt, verify.txt and verify.html";
/// What one template may spend. Ours spend below 1,000; a loop by mistake ends here instead of holding up every other delivery.
const FUEL: u64 = 200_000;
/// What the templates of the mail that asks to confirm an address are checked with, and what `preview` shows.
pub const SAMPLE_VERIFICATION: VerifyVariables<'static> = VerifyVariables {
    subject: "example-customer",
    code: "012345",
    link: Some("https://quota.example.com/confirm/c2FtcGxlLXRva2VuLXdoaWNoLWNvbmZpcm1zLW5vdGhpbmc"),
    minutes: 10,
};
/// What a reader of an error is told, beside minijinja's own filters.
const FILTERS: &str = "thousands, clock";

#[derive(Clone, Copy)]
struct Embedded {
    name: &'static str,
    source: &'static str,
}

/// A mail's three templates.
struct Letter {
    subject_line: &'static str,
    text: &'static str,
    html: &'static str,
    /// The variables that they see, for error texts.
    known: &'static str,
}

/// One mail, rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The Subject header, on one line.
    pub subject_line: String,
    /// The plain text part.
    pub text: String,
    /// The HTML part.
    pub html: String,
}

/// Why the templates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// `email.templates` cannot be read.
    #[error("email.templates: read {path:?}")]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The directory replaces nothing, so it is probably the wrong one.
    #[error("email.templates: {0:?} holds no template, allowed are the files {NAMES}")]
    Empty(PathBuf),
    /// A template is wrong.
    #[error("template {file}, line {line}: {what}; known are {known}")]
    Template {
        /// The file, or the name of an embedded template.
        file: String,
        /// Its line, 1 for the first.
        line: usize,
        /// What is wrong with it.
        what: String,
        /// What could have stood there.
        known: String,
    },
}

/// What a template sees. The doc of each is in `templates/alert.txt`.
#[derive(Serialize)]
struct Variables<'a> {
    subject: &'a str,
    metric: &'a str,
    threshold_percent: u16,
    used: u64,
    limit: u64,
    used_percent: f64,
    remaining: u64,
    plan: &'a str,
    window: &'a str,
    period: String,
    starts_at: String,
    timezone: &'a str,
    resets_at: String,
    raised_at: String,
    severity: &'static str,
    test: bool,
}

/// The names above, for error texts.
const VARIABLES: &str = "subject, metric, threshold_percent, used, limit, used_percent, remaining, plan, window, period, \
                         starts_at, timezone, resets_at, raised_at, severity, test";

/// What a template of the mail that asks to confirm an address sees. The doc of each is in `templates/verify.txt`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct VerifyVariables<'a> {
    /// Whose alerts.
    pub subject: &'a str,
    /// Six digits.
    pub code: &'a str,
    /// Where one click does the same; `None` where the daemon does not know how it is reached.
    pub link: Option<&'a str>,
    /// How long both are good.
    pub minutes: u64,
}

/// The names above, for error texts.
const VERIFY_VARIABLES: &str = "subject, code, link, minutes";

/// The templates, checked.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
    directory: Option<PathBuf>,
}

impl Templates {
    /// The templates of the binary.
    ///
    /// # Panics
    ///
    /// When an embedded template is broken, which a test prevents.
    #[must_use]
    pub fn embedded() -> Self {
        Self::load(None).expect("the embedded templates render")
    }

    /// The embedded templates, each replaced by the file of its name in `directory` where there is one. Renders samples of every
    /// kind of alert before it answers.
    ///
    /// # Errors
    ///
    /// [`TemplateError`], naming file, line and what is known.
    pub fn load(directory: Option<&Path>) -> Result<Self, TemplateError> {
        let mut templates = Self { environment: environment(), directory: None };
        for embedded in EMBEDDED {
            templates.add(embedded.name, embedded.source.to_owned())?;
        }
        if let Some(directory) = directory {
            templates.replace_from(directory)?;
        }
        let sample = Sample::made_up();
        for window in Window::ALL {
            let sample = Sample { limit: WindowLimit { window, ..sample.limit }, ..sample.clone() };
            for percent in [80, 100, 120].into_iter().filter_map(Percent::new) {
                let alert = sample.alert(percent, SAMPLE_AT);
                templates.render(&alert, AlertPurpose::Alert)?;
                templates.render(&alert, AlertPurpose::Test)?;
            }
        }
        templates.render_verification(SAMPLE_VERIFICATION)?;
        templates.render_verification(VerifyVariables { link: None, ..SAMPLE_VERIFICATION })?;
        Ok(templates)
    }

    /// Renders the mail about an alert. Pure: the same alert makes the same text.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Template`], for a part of a template that no sample reached.
    pub fn render(&self, alert: &Alert, purpose: AlertPurpose) -> Result<Rendered, TemplateError> {
        let rendered = self.render_letter(&ALERT, &Value::from(Serde(variables(alert, purpose))))?;
        Ok(match purpose {
            AlertPurpose::Alert => rendered,
            AlertPurpose::Test => Rendered { subject_line: format!("[test] {}", rendered.subject_line), ..rendered },
        })
    }

    /// Renders the mail that asks to confirm an address. Pure.
    ///
    /// # Errors
    ///
    /// As [`Self::render`].
    pub fn render_verification(&self, variables: VerifyVariables<'_>) -> Result<Rendered, TemplateError> {
        self.render_letter(&VERIFY, &Value::from(Serde(variables)))
    }

    fn render_letter(&self, letter: &Letter, variables: &Value) -> Result<Rendered, TemplateError> {
        let one = |name: &'static str| {
            let rendered = self.environment.get_template(name).and_then(|template| template.render(variables.clone()));
            rendered.map_err(|error| self.explain(name, &error))
        };
        let subject_line = one(letter.subject_line)?.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Rendered { subject_line, text: one(letter.text)?, html: one(letter.html)? })
    }

    fn replace_from(&mut self, directory: &Path) -> Result<(), TemplateError> {
        let failed = |path: &Path, source| TemplateError::Read { path: path.to_path_buf(), source };
        // Read before the files are looked for, so that a missing directory is not taken for one without templates.
        std::fs::read_dir(directory).map_err(|source| failed(directory, source))?;
        self.directory = Some(directory.to_path_buf());
        let mut replaced = 0;
        for Embedded { name, .. } in EMBEDDED {
            let path = directory.join(name);
            match std::fs::read_to_string(&path) {
                Ok(source) => self.add(name, source)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&path, error)),
            }
            replaced += 1;
        }
        if replaced == 0 { Err(TemplateError::Empty(directory.to_path_buf())) } else { Ok(()) }
    }

    fn add(&mut self, name: &'static str, source: String) -> Result<(), TemplateError> {
        let added = self.environment.add_template_owned(name, source);
        added.map_err(|error| self.explain(name, &error))
    }

    fn explain(&self, name: &str, error: &Error) -> TemplateError {
        let name = error.name().unwrap_or(name);
        let path = self.directory.as_ref().map(|directory| directory.join(name)).filter(|path| path.exists());
        let shown = error.template_source().zip(error.range()).and_then(|(source, range)| source.get(range));
        let what = match (error.kind(), error.detail(), shown) {
            (ErrorKind::UndefinedError, _, Some(shown)) => format!("{shown:?} is not known"),
            (kind, Some(detail), _) => format!("{kind}: {detail}"),
            (kind, None, Some(shown)) => format!("{kind} in {shown:?}"),
            (kind, None, None) => kind.to_string(),
        };
        TemplateError::Template {
            file: path.map_or_else(|| name.to_owned(), |path| path.display().to_string()),
            line: error.line().unwrap_or(1),
            what,
            known: match error.kind() {
                ErrorKind::UnknownFilter => format!("the filters {FILTERS} and those of minijinja"),
                ErrorKind::TemplateNotFound => format!("the templates {NAMES}"),
                _ => format!("the variables {} and the filters {FILTERS}", letter_of(name).known),
            },
        }
    }
}

fn letter_of(name: &str) -> &'static Letter {
    if [VERIFY.subject_line, VERIFY.text, VERIFY.html].contains(&name) { &VERIFY } else { &ALERT }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // For the names and lines in errors.
    environment.set_debug(true);
    environment.set_auto_escape_callback(|name| match name.ends_with(".html") {
        true => AutoEscape::Html,
        false => AutoEscape::None,
    });
    environment.add_filter("thousands", thousands);
    environment.add_filter("clock", clock);
    environment
}

/// 1234567 as `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let grouped = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    grouped.collect::<Vec<_>>().join(",")
}

/// `2026-11-22T00:00:00+07:00` as `2026-11-22 00:00`: the time of day that a clock on the wall there shows.
fn clock(time: &str) -> Result<String, Error> {
    let parsed = DateTime::parse_from_rfc3339(time);
    parsed
        .map(|at| at.format("%Y-%m-%d %H:%M").to_string())
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "clock takes a time, as resets_at or raised_at"))
}

fn variables(alert: &Alert, purpose: AlertPurpose) -> Variables<'_> {
    Variables {
        subject: alert.subject.as_str(),
        metric: alert.metric.as_str(),
        threshold_percent: alert.threshold_percent.get(),
        used: alert.used,
        limit: alert.limit,
        used_percent: alert.used_percent(),
        remaining: alert.limit.saturating_sub(alert.used),
        plan: &alert.plan,
        window: alert.window.as_str(),
        period: alert.period.to_string(),
        starts_at: starts_at(alert),
        timezone: &alert.timezone,
        resets_at: local(alert.resets_at_ms, &alert.timezone),
        raised_at: local(alert.raised_at_ms, &alert.timezone),
        severity: if alert.threshold_percent.get() < 100 { "warning" } else { "exceeded" },
        test: purpose == AlertPurpose::Test,
    }
}

/// When the period began, in the zone of the subject.
fn starts_at(alert: &Alert) -> String {
    let zone = alert.timezone.parse().unwrap_or(Tz::UTC);
    local(alert.period.starts_in(zone).unwrap_or_default(), &alert.timezone)
}

/// RFC 3339 in the zone, whole seconds; in UTC where the zone is not known here.
fn local(at: UnixMs, zone: &str) -> String {
    let zone = zone.parse().unwrap_or(Tz::UTC);
    let local = at.to_utc().unwrap_or_default().with_timezone(&zone);
    local.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Subject;
    use proptest::prelude::*;

    fn sample(percent: u16) -> Alert {
        Sample::made_up().alert(Percent::new(percent).expect("legal"), SAMPLE_AT)
    }

    /// An error must name the file of the operator, the line, and what could have stood there.
    #[test]
    fn a_mistake_in_a_template_is_explained() {
        let directory = tempfile::tempdir().expect("a folder");
        let error = |name: &str, source: &str| {
            std::fs::write(directory.path().join(name), source).expect("written");
            let text = Templates::load(Some(directory.path())).expect_err("broken").to_string();
            std::fs::remove_file(directory.path().join(name)).expect("removed");
            text
        };
        let unknown = error(ALERT.text, "hello\n{{ useed }}");
        assert!(unknown.contains(&format!("{}/alert.txt, line 2", directory.path().display())), "{unknown}");
        assert!(unknown.contains("\"useed\" is not known") && unknown.contains("used_percent"), "{unknown}");
        let filter = error(ALERT.html, "{{ used|thousand }}");
        assert!(filter.contains("unknown filter") && filter.contains("thousands, clock"), "{filter}");
        let syntax = error(ALERT.subject_line, "{% if %}");
        assert!(syntax.contains("subject.txt, line 1: syntax error"), "{syntax}");
        let endless =
            error(ALERT.text, "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}");
        assert!(endless.contains("fuel"), "{endless}");
    }

    /// A mistake in a branch that only a full quota reaches must show at start too.
    #[test]
    fn samples_reach_every_kind_of_alert() {
        let directory = tempfile::tempdir().expect("a folder");
        for condition in [
            "severity == \"exceeded\"",
            "used > limit",
            "used == limit",
            "test",
            "window == \"hour\"",
            "window == \"month\"",
        ] {
            let source = format!("{{% if {condition} %}}{{{{ nothing }}}}{{% endif %}}");
            std::fs::write(directory.path().join(ALERT.text), source).expect("written");
            assert!(Templates::load(Some(directory.path())).is_err(), "{condition}");
        }
    }

    /// One file of the operator's must not take away the other two of ours.
    #[test]
    fn files_replace_the_embedded_templates_one_by_one() {
        let directory = tempfile::tempdir().expect("a folder");
        std::fs::write(directory.path().join(ALERT.subject_line), "{{ subject }}\n  at {{ used_percent }}%\n")
            .expect("written");
        let rendered = Templates::load(Some(directory.path()))
            .expect("legal")
            .render(&sample(80), AlertPurpose::Alert)
            .expect("renders");
        let ours = Templates::embedded().render(&sample(80), AlertPurpose::Alert).expect("renders");
        assert_eq!(rendered.subject_line, "example-customer at 80.0%");
        assert_eq!((rendered.text, rendered.html), (ours.text, ours.html));
    }

    /// A wrong folder must not silently mean our own templates.
    #[test]
    fn a_folder_without_templates_is_an_error() {
        let directory = tempfile::tempdir().expect("a folder");
        let empty = Templates::load(Some(directory.path())).expect_err("empty").to_string();
        assert!(empty.contains("subject.txt, alert.txt, alert.html, verify_subject.txt"), "{empty}");
        assert!(Templates::load(Some(&directory.path().join("nowhere"))).is_err());
    }

    /// The list that errors show must be the list that templates see.
    #[test]
    fn the_documented_variables_are_the_ones_that_exist() {
        let json = serde_json::to_value(variables(&sample(80), AlertPurpose::Alert)).expect("JSON");
        let exist: Vec<&String> = json.as_object().expect("an object").keys().collect();
        let mut documented: Vec<&str> = VARIABLES.split(", ").map(str::trim).collect();
        documented.sort_unstable();
        assert_eq!(exist, documented);
        for name in documented {
            assert!(EMBEDDED[1].source.contains(&format!("\n  {name} ")), "{name} is not in alert.txt");
        }
    }

    /// Separators stand between groups of three, nowhere else.
    #[test]
    fn thousands_are_separated() {
        let shown: Vec<String> = [0, 12, 999, 1000, 12_345, 9_007_199_254_740_991].into_iter().map(thousands).collect();
        assert_eq!(shown, ["0", "12", "999", "1,000", "12,345", "9,007,199,254,740,991"]);
    }

    proptest! {
        /// A subject is whatever a producer sent: it must neither break a mail nor become part of its HTML.
        #[test]
        fn any_subject_renders_and_is_escaped(name in "[^\\p{Cc}]{1,60}", used in any::<u64>(), percent in 1_u16..=1000) {
            let mut alert = sample(percent);
            alert.subject = Subject::parse(format!("<script>{name}").as_bytes()).expect("legal");
            alert.used = used;
            let rendered = Templates::embedded().render(&alert, AlertPurpose::Alert).expect("renders");
            prop_assert!(!rendered.html.contains("<script>"));
            prop_assert!(!rendered.subject_line.contains('\n'));
        }
    }
}
