//! Mails from templates: subject line, plain text and HTML.
//!
//! Owns the templates, embedded or the operator's, and the variables and filters they may use; the list is the comment at the top
//! of `templates/alert.txt` (and of `templates/verify.txt` for the mail that asks to confirm an address), which is all that an
//! operator has to read. Every template is rendered with samples at start, strictly, so that a typing error stops the start and not
//! an alert. Never touches the network; reads files only while it loads.

use std::path::{Path, PathBuf};

use minijinja::value::Serde;
use minijinja::{Environment, Error, Value};
use serde::Serialize;

use crate::channels::channel::AlertPurpose;
use crate::channels::error::ChannelError;
use crate::channels::sample::{SAMPLE_AT, Sample};
use crate::channels::templating::{self, environment, variables};
use crate::types::{Alert, Percent};

/// The setting that names the operator's folder.
const SETTING: &str = "email.templates";
/// The templates, by the names that files of the folder bear. Each mail has three: subject line, text and HTML.
const EMBEDDED: [Embedded; 6] = [
    Embedded { name: ALERT[0], source: include_str!("../../../templates/subject.txt") },
    Embedded { name: ALERT[1], source: include_str!("../../../templates/alert.txt") },
    Embedded { name: ALERT[2], source: include_str!("../../../templates/alert.html") },
    Embedded { name: VERIFY[0], source: include_str!("../../../templates/verify_subject.txt") },
    Embedded { name: VERIFY[1], source: include_str!("../../../templates/verify.txt") },
    Embedded { name: VERIFY[2], source: include_str!("../../../templates/verify.html") },
];
const ALERT: [&str; 3] = ["subject.txt", "alert.txt", "alert.html"];
const VERIFY: [&str; 3] = ["verify_subject.txt", "verify.txt", "verify.html"];
/// All of them, for error texts.
const NAMES: &str = "subject.txt, alert.txt, alert.html, verify_subject.txt, verify.txt and verify.html";
/// What the templates of the mail that asks to confirm an address are checked with, and what `preview` shows.
pub const SAMPLE_VERIFICATION: VerifyVariables<'static> = VerifyVariables {
    subject: "example-customer",
    code: "012345",
    link: Some("https://quota.example.com/confirm/c2FtcGxlLXRva2VuLXdoaWNoLWNvbmZpcm1zLW5vdGhpbmc"),
    minutes: 10,
};

struct Embedded {
    name: &'static str,
    source: &'static str,
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
    /// The folder can't be read or holds no template; or a template is wrong: its file and line, and what is known.
    pub fn load(directory: Option<&Path>) -> Result<Self, ChannelError> {
        let mut templates = Self { environment: environment(), directory: directory.map(Path::to_path_buf) };
        let own = directory.map_or(Ok(Vec::new()), read_own)?;
        let embedded = EMBEDDED.into_iter().map(|Embedded { name, source }| (name, source.to_owned()));
        for (name, source) in embedded.chain(own) {
            let added = templates.environment.add_template_owned(name, source);
            added.map_err(|error| templates.explain(name, &error))?;
        }
        for (alert, purpose) in templating::samples() {
            templates.render(&alert, purpose)?;
        }
        templates.render_verification(SAMPLE_VERIFICATION)?;
        templates.render_verification(VerifyVariables { link: None, ..SAMPLE_VERIFICATION })?;
        Ok(templates)
    }

    /// Renders the mail about an alert. Pure: the same alert makes the same text.
    ///
    /// # Errors
    ///
    /// A part of a template is wrong that no sample reached.
    pub fn render(&self, alert: &Alert, purpose: AlertPurpose) -> Result<Rendered, ChannelError> {
        let rendered = self.render_all(ALERT, &variables(alert, purpose))?;
        Ok(match purpose {
            AlertPurpose::Alert => rendered,
            AlertPurpose::Copy => Rendered { subject_line: format!("[copy] {}", rendered.subject_line), ..rendered },
            AlertPurpose::Test => Rendered { subject_line: format!("[test] {}", rendered.subject_line), ..rendered },
        })
    }

    /// Renders the mail that asks to confirm an address. Pure.
    ///
    /// # Errors
    ///
    /// As [`Self::render`].
    pub fn render_verification(&self, variables: VerifyVariables<'_>) -> Result<Rendered, ChannelError> {
        self.render_all(VERIFY, &Value::from(Serde(variables)))
    }

    fn render_all(&self, names: [&str; 3], variables: &Value) -> Result<Rendered, ChannelError> {
        let one = |name| {
            let rendered = self.environment.get_template(name).and_then(|template| template.render(variables.clone()));
            rendered.map_err(|error| self.explain(name, &error))
        };
        let [subject_line, text, html] = names.map(one);
        let subject_line = subject_line?.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Rendered { subject_line, text: text?, html: html? })
    }

    /// What is wrong with a template, where, and what could have stood there.
    fn explain(&self, name: &str, error: &Error) -> ChannelError {
        let name = error.name().unwrap_or(name);
        let path = self.directory.as_ref().map(|directory| directory.join(name)).filter(|path| path.exists());
        let file = path.map_or_else(|| name.to_owned(), |path| path.display().to_string());
        let what = templating::explain(error, NAMES, &sample_of(name));
        ChannelError::of_setting(SETTING, format_args!("template {file}, {what}"))
            .with_hint("mend the template (`quotabell preview text` renders it), or leave email.templates out for the embedded ones")
    }
}

/// The operator's templates, each with its name.
fn read_own(directory: &Path) -> Result<Vec<(&'static str, String)>, ChannelError> {
    let failed = |path: &Path, source: std::io::Error| {
        ChannelError::of_setting(SETTING, format_args!("read {path:?}")).caused_by(source)
    };
    // Read before the files are looked for, so that a missing directory is not taken for one without templates.
    std::fs::read_dir(directory).map_err(|source| failed(directory, source))?;
    let mut own = Vec::new();
    for Embedded { name, .. } in EMBEDDED {
        let path = directory.join(name);
        match std::fs::read_to_string(&path) {
            Ok(source) => own.push((name, source)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    match own.is_empty() {
        false => Ok(own),
        // It replaces nothing, so it is probably the wrong one.
        true => Err(ChannelError::of_setting(
            SETTING,
            format_args!("{directory:?} holds no template, allowed are the files {NAMES}"),
        )),
    }
}

/// What this template sees, made up.
fn sample_of(name: &str) -> Value {
    let percent = Percent::new(100).expect("a legal percentage");
    match VERIFY.contains(&name) {
        true => Value::from(Serde(SAMPLE_VERIFICATION)),
        false => variables(&Sample::made_up().alert(percent, SAMPLE_AT), AlertPurpose::Alert),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let unknown = error(ALERT[1], "hello\n{{ useed }}");
        assert!(unknown.contains(&format!("{}/alert.txt, line 2", directory.path().display())), "{unknown}");
        assert!(unknown.contains("\"useed\" is not known") && unknown.contains("used_percent"), "{unknown}");
        let filter = error(ALERT[2], "{{ used|thousand }}");
        assert!(filter.contains("unknown filter") && filter.contains("thousands, clock"), "{filter}");
        let syntax = error(ALERT[0], "{% if %}");
        assert!(syntax.contains("subject.txt, line 1: syntax error"), "{syntax}");
        let endless = error(ALERT[1], "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}");
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
            std::fs::write(directory.path().join(ALERT[1]), source).expect("written");
            assert!(Templates::load(Some(directory.path())).is_err(), "{condition}");
        }
    }

    /// One file of the operator's must not take away the other two of ours.
    #[test]
    fn files_replace_the_embedded_templates_one_by_one() {
        let directory = tempfile::tempdir().expect("a folder");
        std::fs::write(directory.path().join(ALERT[0]), "{{ subject }}\n  at {{ used_percent }}%\n").expect("written");
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
    }

    /// Whoever writes a template reads in ours what it sees.
    #[test]
    fn the_documented_variables_are_the_ones_that_exist() {
        for Embedded { name, source } in [&EMBEDDED[1], &EMBEDDED[4]] {
            let list = source.lines().skip_while(|line| !line.starts_with("Variables")).skip(1);
            let list = list.take_while(|line| !line.starts_with("Filters"));
            let documented: BTreeSet<&str> = list.filter_map(|line| line.split_whitespace().next()).collect();
            let exist = templating::names_of(&sample_of(name));
            assert_eq!(documented, exist.split(", ").collect(), "{name}");
        }
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
