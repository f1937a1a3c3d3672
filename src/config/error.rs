//! What is wrong with a configuration: the key, where it was written, and what is allowed there.

use std::path::PathBuf;

use super::allowed;
use super::parts::Refused;
use super::tree::Place;
use crate::subjects::rates::ALGORITHM;

/// Why the configuration can't be used. The text names the thing and the place, [`ConfigError::hint`] what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read the configuration {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not TOML, or a variable's is not JSON.
    #[error("{place}: {why}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser said. Never shows the text itself, which may be half a password.
        why: String,
    },
    /// The bytes are no text.
    #[error("{place}: the value is not UTF-8")]
    NotUtf8 {
        /// Where.
        place: Place,
    },
    /// Nothing is called so.
    #[error("{}: there is no such key ({place})", key(path))]
    UnknownKey {
        /// The segments of the key.
        path: Vec<String>,
        /// Where.
        place: Place,
        /// The keys that exist beside it.
        allowed: &'static [&'static str],
    },
    /// A value and the key that names a file with it, both set in one layer.
    #[error("{section}.{value} ({value_place}) and {section}.{file} ({file_place}) are both set, and neither is later")]
    Both {
        /// Their section.
        section: &'static str,
        /// The value's key.
        value: &'static str,
        /// Where that is.
        value_place: Place,
        /// The file's key.
        file: &'static str,
        /// Where that is.
        file_place: Place,
    },
    /// The value has the wrong type, or breaks a rule.
    #[error("{}: {problem} ({place})", key(path))]
    Value {
        /// The segments of the key.
        path: Vec<String>,
        /// Where.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A part has refused a setting that it judges itself: what a file holds, say.
    #[error(transparent)]
    Refused(Refused),
}

impl ConfigError {
    /// What to do about it, one line.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { .. } => {
                "name a readable file with --config FILE or QUOTABELL_CONFIG; without one the defaults are used"
                    .to_owned()
            }
            Self::Syntax { place: Place::Variable(_), .. } => {
                r#"write a list as ["a","b"] and a table as {"requests":5000}"#.to_owned()
            }
            Self::Syntax { .. } => {
                r#"the file is TOML: [section] lines, then key = value lines, text in "quotes""#.to_owned()
            }
            Self::NotUtf8 { .. } => "write the value as UTF-8 text".to_owned(),
            Self::UnknownKey { path, allowed, .. } => unknown_hint(path, allowed),
            Self::Both { section, value, file, .. } => format!(
                "set one of {section}.{value} and {section}.{file}; a variable wins over the file, whichever of the two it sets"
            ),
            Self::Value { path, .. } => match (allowed::of(path), meant(path)) {
                (Some(allowed), Some(meant)) => format!("did you mean {meant:?}? {} takes {allowed}", key(path)),
                (Some(allowed), None) => format!("{} takes {allowed}", key(path)),
                (None, _) => IN_EFFECT.to_owned(),
            },
            Self::Refused(refused) => refused.hint().unwrap_or_else(|| IN_EFFECT.to_owned()),
        }
    }
}

/// Where nothing better is known.
const IN_EFFECT: &str = "`quotabell check-config --offline` shows the settings in effect";

/// `plans.free.thresholds[0]`.
pub(super) fn key(path: &[String]) -> String {
    let mut key = String::new();
    for segment in path {
        if !key.is_empty() && !segment.starts_with('[') {
            key.push('.');
        }
        key.push_str(segment);
    }
    key
}

fn unknown_hint(path: &[String], allowed: &[&str]) -> String {
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

/// The key that was meant where any word is one: in a rate a misspelt `algorithm` is taken for a metric.
fn meant(path: &[String]) -> Option<&'static str> {
    let [plans, _, rate, metric] = path else { return None };
    let is_rate = plans == "plans" && rate == "rate" && metric != ALGORITHM;
    nearest(metric, &[ALGORITHM]).filter(|_| is_rate)
}

/// The candidate that is a few slips of the finger away, if there is one. For names of keys, plans and fields.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // A third of the name may be wrong: more than that is another word.
    let slips_max = (name.chars().count() / 3).max(1);
    let near = candidates.iter().map(|candidate| (distance(name, candidate), *candidate)).min()?;
    (near.0 <= slips_max).then_some(near.1)
}

/// How many characters must be inserted, removed, replaced or swapped with their neighbour to get from one text to the other
/// (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=from.len() {
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suggestion that has nothing to do with the typed word sends the reader the wrong way.
    #[test]
    fn only_slips_of_the_finger_are_suggested() {
        let keys = ["timeout", "allow_http", "url"];
        assert_eq!(nearest("tiemout", &keys), Some("timeout"));
        assert_eq!(nearest("allowhttp", &keys), Some("allow_http"));
        assert_eq!(nearest("ulr", &keys), Some("url"));
        assert_eq!(nearest("retries", &keys), None);
    }
}
