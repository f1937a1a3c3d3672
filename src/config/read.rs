//! Deserializes the merged values into the settings with serde; `serde_path_to_error` names the key that failed.

use serde_json::Value;
use serde_path_to_error::Segment;

use super::error::ConfigError;
use super::layers::Layers;
use super::place::Place;
use super::settings::Config;
use crate::channels::REGISTRY;

impl Layers {
    /// Reads the settings. It tries the text of a variable as text first, then as a number or boolean, so that a token
    /// `007` stays text.
    ///
    /// # Errors
    ///
    /// The first value that its setting does not accept.
    pub(super) fn read(mut self) -> Result<Config, ConfigError> {
        loop {
            let error = match serde_path_to_error::deserialize::<_, Config>(&self.values) {
                Ok(settings) => return Ok(Config { places: self.places, ..settings }),
                Err(error) => error,
            };
            let path: Vec<String> = error.path().iter().filter_map(segment).collect();
            let is_variable = matches!(self.places.place_of(&path), Place::Variable(_));
            match self.get_mut(&path) {
                Some(value) if is_variable && let Some(typed) = typed(value) => *value = typed,
                _ => return Err(self.refused(path, &error.into_inner().to_string())),
            }
        }
    }

    fn refused(&mut self, mut path: Vec<String>, message: &str) -> ConfigError {
        let mut quoted = message.split('`').skip(1).step_by(2).map(str::to_owned);
        if message.starts_with("unknown field") {
            path.extend(quoted.next().filter(|key| path.last() != Some(key)));
            return ConfigError::UnknownKey { place: self.places.place_of(&path), path, allowed: quoted.collect() };
        }
        if let ([plans, _, limits, metric], Some(value)) = (path.as_slice(), self.get_mut(&path))
            && plans == "plans"
            && (limits == "limits" || limits == "rate")
            && let Some(rest) = dotted(value)
        {
            let metric = format!("{metric}.{rest}");
            return ConfigError::UnquotedMetric { place: self.places.place_of(&path), path, metric };
        }
        let problem = match message.starts_with("missing field") {
            true => {
                path.extend(quoted.next());
                "must be set".to_owned()
            }
            false => in_words(message, path.last().is_some_and(|key| SECRET_KEYS.contains(&key.as_str()))),
        };
        ConfigError::Value { place: self.places.place_of(&path), path, problem }
    }
}

/// A segment of a key: `plans`, `free`, `thresholds`, `[0]`.
fn segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { index } => Some(format!("[{index}]")),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// The text as a number or boolean, if it is one.
fn typed(value: &Value) -> Option<Value> {
    serde_json::from_str(value.as_str()?).ok().filter(|typed: &Value| typed.is_number() || typed.is_boolean())
}

/// The first key of a table, if a table is below it: `in` for `tokens.in = 5`.
fn dotted(value: &Value) -> Option<String> {
    let (key, below) = value.as_object()?.iter().next()?;
    Some(dotted(below).map_or_else(|| key.clone(), |rest| format!("{key}.{rest}")))
}

/// Keys whose values are never shown.
const SECRET_KEYS: [&str; 5] = ["proxy", "secret", "smtp_url", "token", "url"];

/// Serde's message in the words of TOML.
fn in_words(message: &str, is_secret: bool) -> String {
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("found {}", rest.replace('`', "\""));
    }
    let found_and_expected = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "));
    let Some((found, expected)) = found_and_expected else { return message.replace('`', "\"") };
    let expected = match expected {
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        // The hint states the range, which is narrower than that of the type.
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f64" => "a number",
        "a sequence" => "a list",
        "path string" => "a path in quotes",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let mut secrets = REGISTRY.iter().filter_map(|definition| definition.secret.as_ref());
    // A value at the wrong key may still be a password.
    let found = if found.contains("://") {
        "a URL".to_owned()
    } else if secrets.any(|secret| found.contains(secret.prefix)) {
        "a secret".to_owned()
    } else {
        let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
        match kind {
            "string" | "integer" | "floating" if is_secret => "a value of another type".to_owned(),
            "string" => format!("the text {value}"),
            "sequence" => "a list".to_owned(),
            "map" => "a table".to_owned(),
            "boolean" => value.replace('`', ""),
            _ => format!("the number {}", value.rsplit(' ').next().unwrap_or(value).replace('`', "")),
        }
    };
    format!("found {found}, expected {expected}")
}
