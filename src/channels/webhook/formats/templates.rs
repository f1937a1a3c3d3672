//! Bodies from the operator's templates: the files `<name>.json` of `webhook.templates`.
//!
//! Every template is rendered with samples when it is loaded, and must give JSON, so that a mistake stops the start and
//! not an alert. The variables and filters are those of the mails (the comment in `templates/alert.txt`). Each value is
//! written as JSON, so `{"text": {{ subject }}}` is right and `{"text": "{{ subject }}"}` is a mistake. Reads files
//! only while it loads.

use std::path::{Path, PathBuf};

use minijinja::{Environment, Error};
use serde::de::IgnoredAny;

use super::WebhookBody;
use crate::channels::channel::AlertPurpose;
use crate::channels::error::ChannelError;
use crate::channels::templating::{self, variables};
use crate::contacts::message_format::is_template_name;
use crate::types::{Alert, Subject};

/// The setting that names the folder.
const SETTING: &str = "webhook.templates";
/// How the names of its files end.
const ENDING: &str = ".json";
/// The longest body. No receiver that we know takes more.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// What to do about a template that is wrong.
const HINT: &str = "mend the template (`quotabell preview --format template:NAME` renders it); each value is written as JSON, with its quotes";

/// The templates of the folder, checked.
#[derive(Debug)]
pub struct WebhookTemplates {
    environment: Environment<'static>,
    folder: Option<PathBuf>,
    /// Their names, without the ending.
    names: Vec<String>,
}

impl WebhookTemplates {
    /// Reads every template of the folder; none where there is no folder. Renders samples of every kind of alert before
    /// it answers.
    ///
    /// # Errors
    ///
    /// The folder can't be read or holds no template; or a template is wrong or gives no JSON: its file, and what is
    /// known.
    pub fn load(folder: Option<&Path>) -> Result<Self, ChannelError> {
        let environment = templating::environment();
        let mut templates = Self { environment, folder: folder.map(Path::to_path_buf), names: Vec::new() };
        for (name, source) in folder.map_or(Ok(Vec::new()), read)? {
            let added = templates.environment.add_template_owned(format!("{name}{ENDING}"), source);
            added.map_err(|error| templates.explain(&name, &error))?;
            templates.names.push(name);
        }
        for name in &templates.names {
            for (alert, purpose) in templating::samples() {
                templates.render_existing(name, &alert, purpose)?;
                // Whoever takes a value's quotes away is right until a name has some of its own.
                let subject = Subject::parse(br#"a "b" \c"#).expect("legal");
                templates.render_existing(name, &Alert { subject, ..alert }, purpose)?;
            }
        }
        Ok(templates)
    }

    /// Renders the body about an alert. Pure.
    ///
    /// # Errors
    ///
    /// There is no template of this name, or a part of it is wrong that no sample reached.
    pub fn render(&self, name: &str, alert: &Alert, purpose: AlertPurpose) -> Result<WebhookBody, ChannelError> {
        self.expect(name).map_err(|problem| ChannelError::of_setting(SETTING, problem))?;
        self.render_existing(name, alert, purpose)
    }

    /// Whether there is a template of this name.
    ///
    /// # Errors
    ///
    /// A sentence with those that there are.
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

    fn render_existing(&self, name: &str, alert: &Alert, purpose: AlertPurpose) -> Result<WebhookBody, ChannelError> {
        let template = self.environment.get_template(&format!("{name}{ENDING}"));
        let rendered = template.and_then(|template| template.render(variables(alert, purpose, str::to_owned)));
        let json = rendered.map_err(|error| self.explain(name, &error))?;
        if json.len() > BODY_BYTES_MAX {
            let problem = format!("gives {} bytes, at most {BODY_BYTES_MAX} are allowed", json.len());
            return Err(self.wrong(name, &problem));
        }
        match serde_json::from_str::<IgnoredAny>(&json) {
            Ok(_) => Ok(WebhookBody::json(json)),
            Err(error) => Err(self.wrong(name, &format!("gives no JSON: {error} of what it gives"))),
        }
    }

    fn explain(&self, name: &str, error: &Error) -> ChannelError {
        let (alert, purpose) = templating::samples().next().expect("there are samples");
        let names: Vec<String> = self.names.iter().map(|name| format!("{name}{ENDING}")).collect();
        self.wrong(name, &templating::explain(error, &names.join(", "), &variables(&alert, purpose, str::to_owned)))
    }

    fn wrong(&self, name: &str, problem: &str) -> ChannelError {
        let file = self.folder.iter().map(|folder| folder.join(format!("{name}{ENDING}"))).next().unwrap_or_default();
        ChannelError::of_setting(SETTING, format_args!("template {}, {problem}", file.display())).with_hint(HINT)
    }
}

/// The templates of a folder, each with its name, in their order.
fn read(folder: &Path) -> Result<Vec<(String, String)>, ChannelError> {
    let failed = |path: &Path, source: std::io::Error| {
        ChannelError::of_setting(SETTING, format_args!("read {path:?}")).caused_by(source)
    };
    let mut templates = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        let path = entry.map_err(|source| failed(folder, source))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(ENDING) else { continue };
        if !is_template_name(name) {
            let allowed = "allowed are names of 1 to 64 of A-Z, a-z, 0-9, _ and -, with .json";
            return Err(ChannelError::of_setting(
                SETTING,
                format_args!("{path:?} can't be named by a contact, {allowed}"),
            ));
        }
        templates.push((name.to_owned(), templating::read_file(&path).map_err(|source| failed(&path, source))?));
    }
    templates.sort();
    match templates.is_empty() {
        false => Ok(templates),
        // It is probably the wrong one.
        true => Err(ChannelError::of_setting(SETTING, format_args!("{folder:?} holds no template, as \"name.json\""))),
    }
}
