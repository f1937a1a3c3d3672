//! Bodies from templates: the embedded ones, and the files `<name>.json` of `webhook.templates`.
//!
//! Each template of the operator is rendered with samples when it is loaded, and must give JSON, so that a mistake
//! stops the start and not an alert. Each value is written as JSON, so `{"text": {{ subject }}}` is right and `{"text":
//! "{{ subject }}"}` is a mistake. Files are read only while the templates are loaded.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use minijinja::{Environment, Error, Value};

use super::alert_variables;
use crate::channels::error::ChannelError;
use crate::channels::templating;
use crate::contacts::message_format::is_template_name;
use crate::types::{Alert, Subject};

/// The setting with the operator's folder.
const SETTING: &str = "webhook.templates";
/// The ending of its files.
const ENDING: &str = ".json";
/// Maximum size of a body. No known receiver accepts more.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// The hint for a faulty template.
const HINT: &str = "fix the template (`quotabell preview --format template:NAME` renders it); each value is written as JSON, with its quotes";

/// Embeds these files of `templates/webhook/`, with the names by which templates include them.
macro_rules! shipped {
    ($($name:literal),*) => {
        [$((concat!("webhook/", $name), include_str!(concat!("../../../../templates/webhook/", $name)))),*]
    };
}

/// The embedded templates. The operator's templates may include them.
static SHIPPED: LazyLock<Environment<'static>> = LazyLock::new(|| {
    templating::environment(&shipped!(
        "alert.txt",
        "links.txt",
        "slack.json",
        "slack_notice.json",
        "discord.json",
        "discord_notice.json",
        "teams.json",
        "teams_notice.json",
        "pagerduty.json",
        "pagerduty_notice.json",
        "pagerduty_resolved.json"
    ))
});

/// The checked templates.
#[derive(Debug)]
pub struct WebhookTemplates {
    environment: Environment<'static>,
    folder: Option<PathBuf>,
    /// The names of the operator's templates, without the ending.
    names: Vec<String>,
}

impl WebhookTemplates {
    /// The embedded templates, and those of the folder, if there is one. Renders samples of every kind of alert before
    /// it returns.
    ///
    /// # Errors
    ///
    /// The folder can't be read or has no template, or a template is wrong or gives no JSON: its file, and the known
    /// names.
    pub fn load(folder: Option<&Path>) -> Result<Self, ChannelError> {
        let environment = SHIPPED.clone();
        let mut templates = Self { environment, folder: folder.map(Path::to_path_buf), names: Vec::new() };
        for (name, source) in folder.map_or(Ok(Vec::new()), read)? {
            let added = templates.environment.add_template_owned(format!("{name}{ENDING}"), source);
            added.map_err(|error| templates.explain(&name, &error))?;
            templates.names.push(name);
        }
        for name in &templates.names {
            for (alert, labels, purpose) in templating::samples() {
                // A template that omits a value's quotes only fails if a name contains quotes.
                let subject = Subject::parse(br#"a "b" \c"#).expect("legal");
                for alert in [alert.clone(), Alert { subject, ..alert }] {
                    templates.render_own(name, alert_variables(&alert, &labels, purpose))?;
                }
            }
        }
        Ok(templates)
    }

    /// Checks that a template with this name exists.
    ///
    /// # Errors
    ///
    /// A sentence with the existing ones.
    pub fn expect(&self, name: &str) -> Result<(), String> {
        if self.names.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(match &self.folder {
            None => format!("there is no template {name:?}: webhook.templates names no folder"),
            Some(folder) => {
                let (folder, known) = (folder.display(), self.names.join(", "));
                format!("there is no template {name:?} in {folder}, only {known}")
            }
        })
    }

    /// Renders a template of the operator and keeps its whitespace.
    pub(super) fn render_own(&self, name: &str, variables: Value) -> Result<String, ChannelError> {
        self.expect(name).map_err(|problem| ChannelError::of_setting(SETTING, problem))?;
        let json = self.render(name, &format!("{name}{ENDING}"), variables)?;
        match serde_json::from_str::<serde::de::IgnoredAny>(&json) {
            Ok(_) => Ok(json),
            Err(error) => Err(self.wrong(name, &format!("gives no JSON: {error} of its output"))),
        }
    }

    /// Renders an embedded template without insignificant whitespace.
    pub(super) fn render_shipped(&self, name: &str, variables: Value) -> Result<String, ChannelError> {
        let json = self.render(name, &format!("webhook/{name}{ENDING}"), variables)?;
        let json = serde_json::from_str::<serde_json::Value>(&json);
        json.map(|json| json.to_string()).map_err(|error| self.wrong(name, &format!("gives no JSON: {error}")))
    }

    fn render(&self, name: &str, file: &str, variables: Value) -> Result<String, ChannelError> {
        let rendered = self.environment.get_template(file).and_then(|template| template.render(variables));
        let json = rendered.map_err(|error| self.explain(name, &error))?;
        if json.len() > BODY_BYTES_MAX {
            let problem = format!("gives {} bytes, at most {BODY_BYTES_MAX} are allowed", json.len());
            return Err(self.wrong(name, &problem));
        }
        Ok(json)
    }

    fn explain(&self, name: &str, error: &Error) -> ChannelError {
        let (alert, labels, purpose) = templating::samples().next().expect("there are samples");
        let names: Vec<String> = self.names.iter().map(|name| format!("{name}{ENDING}")).collect();
        let variables = alert_variables(&alert, &labels, purpose);
        self.wrong(name, &templating::explain(error, &names.join(", "), &variables))
    }

    fn wrong(&self, name: &str, problem: &str) -> ChannelError {
        let file = self.folder.clone().unwrap_or_default().join(format!("{name}{ENDING}"));
        ChannelError::of_setting(SETTING, format_args!("template {}, {problem}", file.display())).with_hint(HINT)
    }
}

/// The sorted templates of a folder, each with its name.
fn read(folder: &Path) -> Result<Vec<(String, String)>, ChannelError> {
    let mut templates = Vec::new();
    for path in templating::entries_of(SETTING, folder)? {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(ENDING) else { continue };
        if !is_template_name(name) {
            let allowed = "allowed are names of 1 to 64 characters A-Z, a-z, 0-9, _ and -, followed by .json";
            let problem = format_args!("{path:?} can't be named by a contact, {allowed}");
            return Err(ChannelError::of_setting(SETTING, problem));
        }
        templates.push((name.to_owned(), templating::read_file(SETTING, &path)?));
    }
    match templates.is_empty() {
        false => Ok(templates),
        // A folder without templates is probably the wrong one.
        true => {
            Err(ChannelError::of_setting(SETTING, format_args!("{folder:?} holds no template such as \"name.json\"")))
        }
    }
}
