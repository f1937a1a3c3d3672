//! Errors of the configuration: the first mistake, with its key, its place and what is allowed.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use super::allowed::{self, allowed_values};
use super::place::Place;
use crate::subjects::rates::ALGORITHM;
use crate::types::text::nearest;

/// Why the configuration can't be used. The text names the key and its place, [`ConfigError::hint`] what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The text is not TOML.
    #[error("{place}: {why}")]
    Syntax {
        place: Place,
        /// The parser's message. Never shows the text, which may be a part of a password.
        why: String,
    },
    #[error("{place}: the value is not UTF-8")]
    NotUtf8 { place: Place },
    /// A misspelled variable of quotabell.
    #[error("{place}: it sets nothing, because sections and keys are separated by two underscores")]
    Misspelt { place: Place, meant: String },
    #[error("{}: there is no such key ({place})", key(path))]
    UnknownKey {
        path: Vec<String>,
        place: Place,
        /// The existing keys of the same section.
        allowed: Vec<String>,
    },
    /// One layer sets both a value and the key that names a file with the value.
    #[error(
        "{section}.{value} ({value_place}) and {section}.{file} ({file_place}) are both set in the same layer: set only one"
    )]
    Both { section: &'static str, value: &'static str, value_place: Place, file: &'static str, file_place: Place },
    /// The value has the wrong type, or violates a rule.
    #[error("{}: {problem} ({place})", key(path))]
    Value { path: Vec<String>, place: Place, problem: String },
    /// A table in the place of a metric's value: the metric's name holds a dot and was not quoted.
    #[error("{}: found a table, expected a value of the metric {metric:?} ({place})", key(path))]
    UnquotedMetric { path: Vec<String>, place: Place, metric: String },
    /// A component refused a setting that it checks itself, such as the content of a file.
    #[error(transparent)]
    Component(ComponentError),
}

/// A setting that a component refused.
#[derive(Debug)]
pub struct ComponentError {
    /// The key, such as `email.templates`; `None` if the machine is at fault and no key.
    pub(super) setting: Option<String>,
    /// The line or the variable that sets the key.
    pub(super) place: Option<Place>,
    /// The component's error.
    pub(super) error: Box<dyn Error + Send + Sync>,
    /// What to do about it; `None` if the allowed values of the key tell enough.
    pub(super) hint: Option<&'static str>,
}

impl fmt::Display for ComponentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.error.to_string();
        match (self.setting.as_deref(), &self.place) {
            (Some(setting), Some(place)) => {
                let setting = setting.replace(".[", "[");
                match text.contains(&setting) {
                    true => write!(f, "{text} ({place})"),
                    false => write!(f, "{text} ({setting}: {place})"),
                }
            }
            _ => f.write_str(&text),
        }
    }
}

impl Error for ComponentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The display above includes the error's own text, so the chain continues with its source.
        self.error.source()
    }
}

impl ConfigError {
    /// What to do about it, one line.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { .. } => {
                "name a readable file with --config FILE or QUOTABELL_CONFIG; without either, /etc/quotabell/quotabell.toml is read where it exists"
                    .to_owned()
            }
            Self::Syntax { .. } => {
                r#"the file is TOML: [section] lines, then key = value lines, text in "quotes""#.to_owned()
            }
            Self::NotUtf8 { .. } => "write the value as UTF-8 text".to_owned(),
            Self::Misspelt { meant, .. } => format!("did you mean {meant}? Only QUOTABELL_CONFIG has one underscore"),
            Self::UnknownKey { path, place, allowed } => unknown_hint(path, place, allowed),
            Self::Both { section, value, file, .. } => format!(
                "set one of {section}.{value} and {section}.{file}; a variable wins over the file, whichever of the two it sets"
            ),
            Self::Value { path, .. } => match (allowed_values(path), meant(path)) {
                (Some(allowed), Some(meant)) => format!("did you mean {meant:?}? {} takes {allowed}", key(path)),
                (Some(allowed), None) => format!("{} takes {allowed}", key(path)),
                (None, _) => IN_EFFECT.to_owned(),
            },
            Self::UnquotedMetric { place: Place::Variable(_), path, metric } => {
                let table = path.split_last().map_or(&[][..], |(_, table)| table);
                format!(
                    "write the table as JSON, with the name of the metric whole: {}={{\"{metric}\":...}}",
                    allowed::variable(table)
                )
            }
            Self::UnquotedMetric { metric, .. } => {
                format!("quote a metric with a dot: \"{metric}\" = ...; TOML takes a dot outside quotes for a table")
            }
            Self::Component(ComponentError { setting, hint, .. }) => {
                let path = || setting.as_deref().map(|setting| setting.split('.').map(str::to_owned).collect::<Vec<_>>());
                let takes = || path().and_then(|path| Some(format!("{} takes {}", key(&path), allowed_values(&path)?)));
                hint.map(str::to_owned).or_else(takes).unwrap_or_else(|| IN_EFFECT.to_owned())
            }
        }
    }
}

/// Hint for all other errors.
const IN_EFFECT: &str = "`quotabell check-config --offline` shows the settings in effect";

/// Formats a key, such as `plans.free.thresholds[0]`. An empty name is in quotes, as in the file.
pub(super) fn key(path: &[String]) -> String {
    let mut key = String::new();
    for segment in path {
        if !key.is_empty() && !segment.starts_with('[') {
            key.push('.');
        }
        key.push_str(if segment.is_empty() { "\"\"" } else { segment });
    }
    key
}

fn unknown_hint(path: &[String], place: &Place, allowed: &[String]) -> String {
    if let Place::Variable(name) = place
        && let Some(meant) = allowed::variable_meant_by(name)
    {
        return format!("did you mean {meant}? Two underscores separate a section from its key");
    }
    let (name, section) = match path.split_last() {
        Some((name, section)) => (name.as_str(), key(section)),
        None => ("", String::new()),
    };
    let place = if section.is_empty() { "at the top".to_owned() } else { format!("in [{section}]") };
    let all = format!("{place} there are {}", allowed.join(", "));
    match nearest(name, allowed) {
        Some(near) => format!("did you mean {near:?}? {all}"),
        None => all,
    }
}

/// The name that was meant by any segment of the key: a misspelled `algorithm` in a rate looks like a metric.
fn meant(path: &[String]) -> Option<&'static str> {
    let [plans, _, rate, metric] = path else { return None };
    let is_rate = plans == "plans" && rate == "rate" && metric != ALGORITHM;
    nearest(metric, &[ALGORITHM]).filter(|_| is_rate)
}
