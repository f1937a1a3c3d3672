//! The section `[portal]`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::types::text_form::serde_as_text;
use crate::types::{DisplayName, duration};

/// The portal of customers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortalConfig {
    /// The origins of the sites that may show the portal in a frame.
    pub origins: Vec<String>,
    /// Who runs the service, for the header of the pages.
    pub name: Option<DisplayName>,
    /// A picture for the header of the pages.
    pub logo_file: Option<PathBuf>,
    /// The color of the header.
    pub color: Option<PortalColor>,
    /// A directory with templates that replace the embedded ones.
    pub templates: Option<PathBuf>,
    /// How long a link in a message is valid; zero for messages without links.
    #[serde(with = "duration")]
    pub link_lifetime: Duration,
}

/// Whether a text is the origin of a site, such as `https://app.example.com:8443`. Other characters that a URL permits
/// in a host mean something in a Content-Security-Policy.
pub fn is_origin(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/.-[]".contains(&byte);
    text.bytes().all(is_plain)
        && Url::parse(text).is_ok_and(|url| {
            matches!(url.scheme(), "https" | "http") && url.has_host() && url.origin().ascii_serialization() == text
        })
}

/// A color of red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortalColor([u8; 3]);

serde_as_text!(PortalColor);

/// The text is not a color.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a color such as \"#0b5fff\"")]
pub struct PortalColorError(String);

impl FromStr for PortalColor {
    type Err = PortalColorError;

    fn from_str(text: &str) -> Result<Self, PortalColorError> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii());
        let part = |digits: &str, at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let color = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let color = color.and_then(|digits| Some([part(digits, 0)?, part(digits, 2)?, part(digits, 4)?]));
        color.map(Self).ok_or_else(|| PortalColorError(text.chars().take(32).collect()))
    }
}

impl std::fmt::Display for PortalColor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl PortalColor {
    const BLACK: Self = Self([0; 3]);
    const WHITE: Self = Self([255; 3]);

    /// The color of text on this color: black or white, whichever has more contrast. One of them has at least 4.5:1.
    pub fn of_text(self) -> Self {
        if self.contrast(Self::WHITE) >= self.contrast(Self::BLACK) { Self::WHITE } else { Self::BLACK }
    }

    /// The contrast ratio of WCAG 2.2, 1 to 21.
    fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance(), other.luminance());
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// The relative luminance of WCAG 2.2, 0 to 1.
    fn luminance(self) -> f64 {
        let linear = |part: u8| match f64::from(part) / 255.0 {
            small if small <= 0.04045 => small / 12.92,
            part => ((part + 0.055) / 1.055).powf(2.4),
        };
        let [red, green, blue] = self.0.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever color an operator sets, its customers must be able to read the header.
        #[test]
        fn text_can_be_read_on_any_color(parts in any::<[u8; 3]>()) {
            let color = PortalColor(parts);
            prop_assert!(color.contrast(color.of_text()) >= 4.5);
            prop_assert_eq!(color.to_string().parse(), Ok(color));
        }
    }

    /// A value in a style sheet must not be able to say anything else.
    #[test]
    fn other_texts_are_no_colors_and_no_origins() {
        for bad in ["", "#fff", "red", "#0b5fff;", "0b5fff", "#0b5ff\u{e9}", "#+b5fff"] {
            assert!(bad.parse::<PortalColor>().is_err(), "{bad}");
        }
        for bad in
            ["", "*", "https://*.a.test", "https://a.test/", "https://a.test;x", "https://a.test,b", "a.test", "data:x"]
        {
            assert!(!is_origin(bad), "{bad}");
        }
        assert!(is_origin("https://a.test") && is_origin("http://127.0.0.1:3000"));
    }
}
