//! Renders emails from templates, in the reader's language: subject line, plain text and HTML.
//!
//! The variables and filters of templates are documented at the top of `templates/alert.txt`, `templates/verify.txt`
//! (the confirmation email), `templates/disabled.txt` (the notice of a disabled contact), `templates/alerts.txt`
//! (several alerts) and `templates/grant_expires.txt` (the notice before units of a grant expire), so that an operator
//! need not read anything else. At start every template is rendered with samples, strictly, so that an error stops the
//! start and not an alert. Files are read only while the templates are loaded. Read next: [`super::template_files`],
//! which file belongs to which locale.

use std::path::Path;

use minijinja::value::Serde;
use minijinja::{Environment, Error, Value, context};
use serde::Serialize;

use super::template_files::{NAMES, SETTING, TemplateFiles};
use crate::channels::channel::{AlertPurpose, Content, MessageSet, SetItem};
use crate::channels::error::ChannelError;
use crate::channels::grant_text;
use crate::channels::labels::Labels;
use crate::channels::notice_text::{self, NoticeText, one_line};
use crate::channels::resolved_text;
use crate::channels::sample::{SAMPLE_AT, Sample};
use crate::channels::set_text;
use crate::channels::templating::{self, entities, environment};
use crate::channels::usage_text;
use crate::types::text::printable;
use crate::types::{Locale, Percent, UnixMs};

/// The name of the templates of alerts.
const ALERT: &str = "alert";
/// The name of the templates of the confirmation email.
const VERIFY: &str = "verify";
/// The name of the templates of several alerts and notices in one email.
const ALERTS: &str = "alerts";
/// The names of the templates of the notices that have links.
const WITH_LINKS: [&str; 2] = ["usage_notice", "resolved"];
/// Their HTML part: the text, with buttons instead of URLs.
const NOTICE: &str = "notice.html";
/// The parts of the HTML that all languages share, without texts.
const SHARED: [(&str, &str); 7] = [
    ("shared/layout.html", include_str!("../../../templates/shared/layout.html")),
    ("shared/links.html", include_str!("../../../templates/shared/links.html")),
    ("shared/alert.html", include_str!("../../../templates/shared/alert.html")),
    ("shared/alerts.html", include_str!("../../../templates/shared/alerts.html")),
    ("shared/grant_expires.html", include_str!("../../../templates/shared/grant_expires.html")),
    ("shared/notice.html", include_str!("../../../templates/shared/notice.html")),
    ("shared/verify.html", include_str!("../../../templates/shared/verify.html")),
];
/// The variables with which the templates of the confirmation email are checked and previewed.
pub const SAMPLE_VERIFICATION: VerifyVariables<'static> = VerifyVariables {
    subject: "example-customer",
    code: "012345",
    link: Some("https://quota.example.com/confirm/c2FtcGxlLXRva2VuLXdoaWNoLWNvbmZpcm1zLW5vdGhpbmc"),
    minutes: 10,
};

/// One rendered email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The Subject header, on one line.
    pub subject_line: String,
    /// The plain text part.
    pub text: String,
    /// The HTML part.
    pub html: String,
}

/// A notice: the same text in both parts.
impl From<NoticeText> for Rendered {
    fn from(NoticeText { heading, text }: NoticeText) -> Self {
        let pre = format!("<pre style=\"white-space: pre-wrap\">\n{}</pre>", entities(&text));
        Self { subject_line: heading, text, html: format!("<!doctype html>\n<meta charset=\"utf-8\">\n{pre}\n") }
    }
}

/// The variables of the confirmation email. They are documented in `templates/verify.txt`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct VerifyVariables<'a> {
    /// The subject of the alerts.
    pub subject: &'a str,
    /// Six digits.
    pub code: &'a str,
    /// The link with the same effect; `None` if the daemon does not know its public URL.
    pub link: Option<&'a str>,
    /// How long both are valid.
    pub minutes: u64,
}

/// The checked templates.
#[derive(Debug)]
pub struct Templates {
    /// Every template of every locale, such as `vi/alert.txt`.
    environment: Environment<'static>,
    pub(super) files: TemplateFiles,
}

impl Templates {
    /// The embedded templates. Readers of a language without templates get the English ones.
    ///
    /// # Panics
    ///
    /// When an embedded template is broken, which a test prevents.
    pub fn embedded() -> Self {
        Self::load(None, &Locale::english()).expect("the embedded templates render")
    }

    /// The embedded templates, replaced by the files in `directory` and its folders of locales. Readers of a language
    /// without templates get those of `default`. With files, renders samples of every kind of email before it returns.
    ///
    /// # Errors
    ///
    /// The folder can't be read or has no template, or a template is wrong: its file, its line, and the known names.
    pub fn load(directory: Option<&Path>, default: &Locale) -> Result<Self, ChannelError> {
        let mut environment = environment(&SHARED);
        // A template includes those of its own locale.
        environment.set_path_join_callback(|name, parent| match parent.rsplit_once('/') {
            Some((locale, _)) if !name.contains('/') => format!("{locale}/{name}").into(),
            _ => name.into(),
        });
        let files = TemplateFiles::read(directory, default)?;
        for locale in files.locales() {
            for name in NAMES {
                let source = files.source(locale, name).text.clone();
                let added = environment.add_template_owned(full_name(locale, name), source);
                added.map_err(|error| explain(&files, locale, name, &error))?;
            }
        }
        let templates = Self { environment, files };
        // A test renders the embedded ones, so that a start need not.
        if directory.is_some() {
            templates.check()?;
        }
        Ok(templates)
    }

    /// Renders samples of every kind of email in every locale.
    fn check(&self) -> Result<(), ChannelError> {
        self.files.locales().try_for_each(|locale| self.render_samples(locale))
    }

    fn render_samples(&self, locale: &Locale) -> Result<(), ChannelError> {
        let locale = Some(locale);
        for (alert, labels, purpose) in templating::samples() {
            self.render(Content::Alert(&alert, purpose), &labels, SAMPLE_AT, locale)?;
        }
        for link in [SAMPLE_VERIFICATION.link, None] {
            self.render_verification(VerifyVariables { link, ..SAMPLE_VERIFICATION }, locale)?;
        }
        for (notice, labels, purpose, now) in grant_text::samples() {
            self.render(Content::GrantExpires(&notice, purpose), &labels, now, locale)?;
        }
        for (notice, labels, purpose) in usage_text::samples() {
            self.render(Content::Usage(&notice, purpose), &labels, SAMPLE_AT, locale)?;
        }
        for (notice, labels, purpose) in resolved_text::samples() {
            self.render(Content::Resolved(&notice, purpose), &labels, SAMPLE_AT, locale)?;
        }
        for notice in notice_text::disabled_samples() {
            self.render(Content::ContactDisabled(&notice), &Labels::default(), SAMPLE_AT, locale)?;
        }
        let ended = resolved_text::sample();
        let end = || SetItem { content: Content::Resolved(&ended, AlertPurpose::Alert), labels: Labels::sample() };
        self.render_set(&MessageSet { id: &ended.id, items: vec![end(), end()] }, SAMPLE_AT, locale)?;
        let (alert, notice) = (Sample::example().alert(sample_percent(), SAMPLE_AT), usage_text::sample());
        self.render_set(&set_text::sample(&alert, &notice, &Labels::sample()), SAMPLE_AT, locale).map(drop)
    }

    /// The locale whose templates a reader of `locale` gets instead; `None` if it has its own.
    pub fn substitute(&self, locale: &Locale) -> Option<&Locale> {
        Some(self.files.used_for(Some(locale))).filter(|used| !locale.fallbacks().any(|own| own == **used))
    }

    /// Renders the email about an alert, about a quota or about a disabled contact, sent at `now`. Pure: the same
    /// content gives the same text.
    ///
    /// # Errors
    ///
    /// A part of a template that no sample reached is wrong.
    pub fn render(
        &self,
        content: Content<'_>,
        labels: &Labels,
        now: UnixMs,
        locale: Option<&Locale>,
    ) -> Result<Rendered, ChannelError> {
        let (name, variables) = notice_text::template_of(content, labels, now);
        self.render_parts(name, &variables, locale)
    }

    /// Renders the confirmation email. Pure.
    pub fn render_verification(
        &self,
        variables: VerifyVariables<'_>,
        locale: Option<&Locale>,
    ) -> Result<Rendered, ChannelError> {
        let subject = printable(variables.subject);
        self.render_parts(VERIFY, &Value::from(Serde(VerifyVariables { subject: &subject, ..variables })), locale)
    }

    /// Renders the email about several alerts and notices, sent at `now`: each with the texts of its own email. If it
    /// is only one, its own email. Pure.
    pub(super) fn render_set(
        &self,
        set: &MessageSet<'_>,
        now: UnixMs,
        locale: Option<&Locale>,
    ) -> Result<Rendered, ChannelError> {
        let render = |item: &SetItem<'_>| self.render(item.content, &item.labels, now, locale);
        let mut emails = set.items.iter().map(render).collect::<Result<Vec<_>, _>>()?;
        if let [_] = emails.as_slice() {
            return Ok(emails.remove(0));
        }
        let text = |email: Rendered| NoticeText { heading: email.subject_line, text: email.text };
        let variables = set_text::variables(set, &emails.into_iter().map(text).collect::<Vec<_>>());
        self.render_parts(ALERTS, &variables, locale)
    }

    /// The parts of an email. Without a template for HTML, its text is both parts.
    fn render_parts(&self, name: &str, variables: &Value, locale: Option<&Locale>) -> Result<Rendered, ChannelError> {
        let locale = self.files.used_for(locale);
        let part = |file: &str, variables: &Value| {
            let template = self.environment.get_template(&full_name(locale, file));
            let rendered = template.and_then(|template| template.render(variables.clone()));
            rendered.map_err(|error| explain(&self.files, locale, file, &error))
        };
        let heading = match name {
            // The prefix marks a copy or a test.
            ALERT => format!("{} {}", part("prefix.txt", variables)?, part("subject.txt", variables)?),
            _ => part(&format!("{name}_subject.txt"), variables)?,
        };
        let (text, html) = (format!("{name}.txt"), format!("{name}.html"));
        let notice = NoticeText { heading: one_line(&heading), text: part(&text, variables)? };
        let html = if WITH_LINKS.contains(&name) {
            let unlinked = context! { upgrade_url => "", usage_url => "", ..variables.clone() };
            let text = part(&text, &unlinked)?;
            let variables = context! { title => notice.heading.as_str(), text => text, ..variables.clone() };
            part(NOTICE, &variables)?
        } else if NAMES.contains(&html.as_str()) {
            part(&html, variables)?
        } else {
            return Ok(notice.into());
        };
        Ok(Rendered { subject_line: notice.heading, text: notice.text, html })
    }
}

/// The name of a template, with its locale.
fn full_name(locale: &Locale, name: &str) -> String {
    format!("{locale}/{name}")
}

/// The error of a template: what is wrong, where, and what is allowed.
fn explain(files: &TemplateFiles, locale: &Locale, name: &str, error: &Error) -> ChannelError {
    // The fault may be in an included template.
    let included = error.name().and_then(|full| full.rsplit('/').next());
    let name = NAMES.into_iter().find(|known| included == Some(*known)).unwrap_or(name);
    let file = files.source(locale, name).file.as_ref();
    let file = file.map_or_else(|| full_name(locale, name), |path| path.display().to_string());
    let what = templating::explain(error, &NAMES.join(", "), &sample_of(name));
    ChannelError::of_setting(SETTING, format_args!("template {file}, {what}")).with_hint(
        "fix the template (`quotabell preview text` renders it), or remove email.templates to use the embedded ones",
    )
}

fn sample_percent() -> Percent {
    Percent::new(100).expect("a legal percentage")
}

/// Sample values for this template.
fn sample_of(file: &str) -> Value {
    let alert = Sample::example().alert(sample_percent(), SAMPLE_AT);
    let (usage, purpose, labels) = (usage_text::sample(), AlertPurpose::Alert, Labels::default());
    let sample = |content| notice_text::template_of(content, &labels, SAMPLE_AT).1;
    let (name, _) = file.split_once('.').unwrap_or((file, ""));
    match name.strip_suffix("_subject").unwrap_or(name) {
        VERIFY => Value::from(Serde(SAMPLE_VERIFICATION)),
        ALERTS => {
            let email = NoticeText { heading: "title".to_owned(), text: "text".to_owned() };
            set_text::variables(&set_text::sample(&alert, &usage, &labels), &[email.clone(), email])
        }
        "grant_expires" => sample(Content::GrantExpires(&grant_text::sample(), purpose)),
        "usage_notice" => sample(Content::Usage(&usage, purpose)),
        "notice" => {
            context! { title => "title", text => "text", ..sample(Content::Usage(&usage, purpose)) }
        }
        "resolved" => sample(Content::Resolved(&resolved_text::sample(), purpose)),
        "disabled" => sample(Content::ContactDisabled(&notice_text::disabled_sample())),
        _ => sample(Content::Alert(&alert, purpose)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::LazyLock;

    use super::*;
    use crate::types::{Alert, Subject, Threshold};
    use proptest::prelude::*;

    fn sample(percent: u16) -> Alert {
        Sample::example().alert(Percent::new(percent).expect("legal"), SAMPLE_AT)
    }

    fn load(directory: &Path) -> Result<Templates, ChannelError> {
        Templates::load(Some(directory), &Locale::english())
    }

    /// A broken one would stop every email.
    #[test]
    fn the_embedded_templates_render() {
        Templates::embedded().check().expect("they render");
    }

    /// An error must name the operator's file, the line, and what is allowed there.
    #[test]
    fn a_mistake_in_a_template_is_explained() {
        let directory = tempfile::tempdir().expect("a folder");
        let error = |name: &str, source: &str| {
            std::fs::write(directory.path().join(name), source).expect("written");
            let text = load(directory.path()).expect_err("broken").to_string();
            std::fs::remove_file(directory.path().join(name)).expect("removed");
            text
        };
        let unknown = error("alert.txt", "hello\n{{ useed }}");
        assert!(unknown.contains(&format!("{}/alert.txt, line 2", directory.path().display())), "{unknown}");
        assert!(unknown.contains("\"useed\" is not known") && unknown.contains("used_percent"), "{unknown}");
        let filter = error("alert.html", "{{ used|thousand }}");
        assert!(filter.contains("unknown filter") && filter.contains("thousands, amount, clock"), "{filter}");
        let syntax = error("subject.txt", "{% if %}");
        assert!(syntax.contains("subject.txt, line 1: syntax error"), "{syntax}");
        let endless =
            error("alert.txt", "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}");
        assert!(endless.contains("fuel"), "{endless}");
    }

    /// A mistake in a branch for full quotas must also be found at start.
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
            "threshold.kind == \"used\"",
            "threshold.kind == \"remaining\"",
        ] {
            let source = format!("{{% if {condition} %}}{{{{ nothing }}}}{{% endif %}}");
            std::fs::write(directory.path().join("alert.txt"), source).expect("written");
            assert!(load(directory.path()).is_err(), "{condition}");
        }
    }

    /// One file of the operator must not disable the other two embedded ones.
    #[test]
    fn files_replace_the_embedded_templates_one_by_one() {
        let directory = tempfile::tempdir().expect("a folder");
        std::fs::write(directory.path().join("subject.txt"), "{{ subject }}\n  at {{ used_percent }}%\n")
            .expect("written");
        let rendered = load(directory.path())
            .expect("legal")
            .render(Content::Alert(&sample(80), AlertPurpose::Alert), &Labels::default(), SAMPLE_AT, None)
            .expect("renders");
        let ours = Templates::embedded()
            .render(Content::Alert(&sample(80), AlertPurpose::Alert), &Labels::default(), SAMPLE_AT, None)
            .expect("renders");
        assert_eq!(rendered.subject_line, "example-customer at 80.0%");
        assert_eq!((rendered.text, rendered.html), (ours.text, ours.html));
    }

    /// Templates that know percentages alone must send the alerts of all thresholds, and a wrong guess about units must
    /// be found at the start.
    #[test]
    fn templates_that_know_only_percentages_keep_working() {
        let directory = tempfile::tempdir().expect("a folder");
        let write = |source: &str| std::fs::write(directory.path().join("subject.txt"), source).expect("written");
        write("{{ subject }} {{ threshold_percent }}% {{ severity }}");
        let templates = load(directory.path()).expect("legal");
        let of = |threshold: &str| {
            let threshold: Threshold = threshold.parse().expect("legal");
            let alert = Sample::example().alert(threshold, SAMPLE_AT);
            templates
                .render(Content::Alert(&alert, AlertPurpose::Alert), &Labels::default(), SAMPLE_AT, None)
                .expect("renders")
                .subject_line
        };
        // The limit of the sample is 5,000.
        for (threshold, share) in [
            ("80", "80% warning"),
            ("100", "100% exceeded"),
            ("used:4999", "99% warning"),
            ("used:5000", "100% exceeded"),
            ("used:7500", "150% exceeded"),
            ("remaining:1", "99% warning"),
            ("remaining:4999", "0% warning"),
        ] {
            assert_eq!(of(threshold), format!("example-customer {share}"), "{threshold}");
        }
        write("{{ threshold.units }}");
        let error = load(directory.path()).expect_err("a percentage has none").to_string();
        assert!(error.contains("\"threshold.units\" is not known"), "{error}");
        write("{{ threshold.percent }}");
        assert!(load(directory.path()).is_err());
        write("{{ threshold.percent if threshold.kind == \"percent\" else threshold.kind ~ threshold.units }}");
        assert!(load(directory.path()).is_ok());
    }

    /// A translation is a list of texts, and the error names a missing text.
    #[test]
    fn a_language_of_the_operator_sets_the_texts_of_the_shared_card() {
        let directory = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(directory.path().join("de")).expect("created");
        let write = |source: &str| std::fs::write(directory.path().join("de/alert.html"), source).expect("written");
        let english = include_str!("../../../templates/alert.html");
        let advice = "This is a warning: nothing is refused below the limit.";
        write(&english.replace(advice, "Noch wird nichts abgelehnt & <b>gut</b>."));
        let german = Locale::parse("de").expect("a tag");
        let rendered = load(directory.path()).expect("legal").render(
            Content::Alert(&sample(80), AlertPurpose::Alert),
            &Labels::default(),
            SAMPLE_AT,
            Some(&german),
        );
        let ours = Templates::embedded()
            .render(Content::Alert(&sample(80), AlertPurpose::Alert), &Labels::default(), SAMPLE_AT, None)
            .expect("renders");
        assert!(ours.html.contains(advice));
        assert_eq!(
            rendered.expect("renders").html,
            ours.html.replace(advice, "Noch wird nichts abgelehnt & <b>gut</b>.")
        );
        write(&english.replace("set badge", "set budge"));
        let lacking = load(directory.path()).expect_err("a text is missing").to_string();
        assert!(lacking.contains("de/alert.html") && lacking.contains("\"badge\" is not known"), "{lacking}");
    }

    /// A wrong folder must not silently mean the embedded templates.
    #[test]
    fn a_folder_without_templates_is_an_error() {
        let directory = tempfile::tempdir().expect("a folder");
        let empty = load(directory.path()).expect_err("empty").to_string();
        assert!(empty.contains("subject.txt, alert.txt, alert.html, verify_subject.txt"), "{empty}");
    }

    /// An operator learns the variables from the embedded templates.
    #[test]
    fn the_documented_variables_are_the_ones_that_exist() {
        let files = TemplateFiles::read(None, &Locale::english()).expect("they are embedded");
        for name in [ALERT, VERIFY, "disabled", "grant_expires", "usage_notice", "resolved", ALERTS] {
            let name = &format!("{name}.txt");
            let source = &files.source(&Locale::english(), name).text;
            let list = source.lines().skip_while(|line| !line.starts_with("Variables")).skip(1);
            let list = list.take_while(|line| !line.starts_with("Filters"));
            let documented: BTreeSet<&str> = list.filter_map(|line| line.split_whitespace().next()).collect();
            let exist = templating::names_of(&sample_of(name));
            assert_eq!(documented, exist.split(", ").collect(), "{name}");
        }
    }

    /// The receiver's text must not become part of the HTML.
    #[test]
    fn a_notice_is_escaped() {
        let notice = NoticeText { heading: "alice".to_owned(), text: "HTTP <410> & more".to_owned() };
        let mail = Rendered::from(notice);
        assert!(mail.html.contains("HTTP &lt;410&gt; &amp; more") && !mail.html.contains("<410>"), "{}", mail.html);
        assert_eq!((mail.subject_line.as_str(), mail.text.as_str()), ("alice", "HTTP <410> & more"));
    }

    static EMBEDDED: LazyLock<Templates> = LazyLock::new(Templates::embedded);

    proptest! {
        /// A producer may send any subject: it must not break an email or become part of its HTML.
        #[test]
        fn any_subject_renders_and_is_escaped(name in "[^\\p{Cc}]{1,60}", used in any::<u64>(), percent in 1_u16..=1000) {
            let mut alert = sample(percent);
            alert.subject = Subject::parse(format!("<script>{name}").as_bytes()).expect("legal");
            alert.used = used;
            for locale in EMBEDDED.files.locales() {
                let rendered = EMBEDDED
                    .render(Content::Alert(&alert, AlertPurpose::Alert), &Labels::default(), SAMPLE_AT, Some(locale))
                    .expect("renders");
                prop_assert!(!rendered.html.contains("<script>"));
                prop_assert!(!rendered.subject_line.contains('\n'));
            }
        }
    }
}
