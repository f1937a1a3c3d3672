//! Links of a plan to pages of the platform: URLs with the subject and the metric. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::text_form::serde_as_text;
use super::{Metric, Subject};

/// Maximum length of a link with its values, bytes. Chats bound the texts that hold it.
pub const URL_BYTES_MAX: usize = 1024;
/// Values are escaped so that they stay inside their part of the URL: all but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The other characters of a URL by RFC 3986. More would need escaping in a chat.
const URL_MARKS: &str = "-._~:/?#[]@!$&'()*+,;=%";

/// A URL with `{{ subject }}` and `{{ metric }}` behind its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Subject,
    Metric,
}

serde_as_text!(UrlTemplate);

/// Why a text is not a link.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlTemplateError {
    #[error("{0:?} is not an https or http URL with a host and without a user")]
    NoUrl(String),
    #[error("{{{{ {0} }}}} is not known, only {{{{ subject }}}} and {{{{ metric }}}} are")]
    UnknownVariable(String),
    #[error("{{{{ without }}}}, or }}}} without {{{{")]
    Unclosed,
    #[error("{{{{ subject }}}} and {{{{ metric }}}} must be behind the host and its slash")]
    InHost,
    #[error("{0:?} must be percent-encoded in a URL")]
    Character(char),
    #[error("has {0} bytes, at most {URL_BYTES_MAX} are allowed")]
    TooLong(usize),
}

impl std::str::FromStr for UrlTemplate {
    type Err = UrlTemplateError;

    fn from_str(text: &str) -> Result<Self, UrlTemplateError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlTemplateError::TooLong(text.len()));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or(UrlTemplateError::Unclosed)?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(match name.trim() {
                "subject" => Part::Subject,
                "metric" => Part::Metric,
                other => return Err(UrlTemplateError::UnknownVariable(other.to_owned())),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let template = Self { text: text.to_owned(), parts };
        template.check()?;
        Ok(template)
    }
}

impl UrlTemplate {
    fn check(&self) -> Result<(), UrlTemplateError> {
        let literal = |part: &Part| if let Part::Text(text) = part { Some(text.clone()) } else { None };
        let is_url = |char: &char| char.is_ascii_alphanumeric() || URL_MARKS.contains(*char);
        let literals: String = self.parts.iter().filter_map(literal).collect();
        match literals.chars().find(|char| !is_url(char)) {
            Some('{' | '}') => return Err(UrlTemplateError::Unclosed),
            Some(other) => return Err(UrlTemplateError::Character(other)),
            None => {}
        }
        let no_url = || UrlTemplateError::NoUrl(self.text.clone());
        let url = Url::parse(&self.filled("x", "x")).map_err(|_| no_url())?;
        let is_web = matches!(url.scheme(), "https" | "http") && self.text.contains("://");
        if !is_web || url.host_str().is_none() || !url.username().is_empty() || url.password().is_some() {
            return Err(no_url());
        }
        let before = self.parts.first().and_then(literal).unwrap_or_default();
        let is_behind_host = before.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        if self.parts.len() > 1 && !is_behind_host { Err(UrlTemplateError::InHost) } else { Ok(()) }
    }

    /// The link about a metric of a subject; `None` if it is too long with them.
    pub fn url_of(&self, subject: &Subject, metric: &Metric) -> Option<String> {
        let link = self.filled(subject.as_str(), metric.as_str());
        (link.len() <= URL_BYTES_MAX).then_some(link)
    }

    fn filled(&self, subject: &str, metric: &str) -> String {
        let escaped = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let fill = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Subject => escaped(subject),
            Part::Metric => escaped(metric),
        };
        self.parts.iter().map(fill).collect()
    }
}

impl std::fmt::Display for UrlTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<UrlTemplate, String> {
        text.parse().map_err(|error: UrlTemplateError| error.to_string())
    }

    /// A subject must not lead to another page or add a parameter.
    #[test]
    fn values_are_escaped() {
        let link = read("https://a.test/{{subject}}/up?m={{ metric }}&x=%20#top").expect("legal");
        let subject = "a/b&c=ü?#'\"<".parse().expect("legal");
        let expected = "https://a.test/a%2Fb%26c%3D%C3%BC%3F%23%27%22%3C/up?m=tokens.in&x=%20#top";
        assert_eq!(link.url_of(&subject, &"tokens.in".parse().expect("legal")).as_deref(), Some(expected));
        assert_eq!(link.to_string().parse(), Ok(link));
    }

    /// A link runs with one click of a customer: it must lead to the operator's site.
    #[test]
    fn other_schemes_and_subjects_as_hosts_are_refused() {
        for (bad, why) in [
            ("javascript:alert(1)", "not an https or http URL"),
            ("JavaScript://a.test/%0aalert(1)", "not an https or http URL"),
            ("data:text/html,x", "not an https or http URL"),
            ("vbscript:x", "not an https or http URL"),
            ("ftp://a.test/", "not an https or http URL"),
            ("//a.test/", "not an https or http URL"),
            ("https:a.test", "not an https or http URL"),
            ("https://", "not an https or http URL"),
            ("https://u:p@a.test/", "without a user"),
            ("", "not an https or http URL"),
            ("{{ subject }}", "not an https or http URL"),
            ("https://{{ subject }}/", "behind the host"),
            ("https://a.test{{ subject }}", "behind the host"),
            ("https://a.test/{{ plan }}", "{{ plan }} is not known, only {{ subject }}"),
            ("https://a.test/{{ subject", "without }}"),
            ("https://a.test/subject}}", "without {{"),
            ("https://a.test/{subject}", "without {{"),
            ("https://a.test/a b", "' ' must be percent-encoded"),
            ("https://a.test/ü", "'ü' must be percent-encoded"),
            ("https://a.test/|<", "'|' must be percent-encoded"),
        ] {
            let error = read(bad).expect_err(bad);
            assert!(error.contains(why), "{bad}: {error}");
        }
        let long = format!("https://a.test/{}", "x".repeat(URL_BYTES_MAX));
        assert!(read(&long).expect_err("long").contains("at most 1024"));
        let filled = read(&format!("{}{{{{subject}}}}", &long[..URL_BYTES_MAX - 20])).expect("legal");
        assert_eq!(filled.url_of(&"é".repeat(100).parse().expect("legal"), &Metric::default()), None);
    }

    proptest! {
        /// Whatever the subject, the link keeps its scheme, host and number of parameters.
        #[test]
        fn any_subject_stays_in_its_parameter(subject in "\\PC{1,60}") {
            let Ok(subject) = subject.parse::<Subject>() else { return Ok(()) };
            let link = read("https://a.test/up?s={{ subject }}&m={{ metric }}").expect("legal");
            let link = Url::parse(&link.url_of(&subject, &Metric::default()).expect("short")).expect("a URL");
            prop_assert_eq!((link.scheme(), link.host_str(), link.path()), ("https", Some("a.test"), "/up"));
            let pairs: Vec<_> = link.query_pairs().collect();
            prop_assert_eq!(pairs.len(), 2);
            prop_assert_eq!(&*pairs[0].1, subject.as_str());
        }
    }
}
