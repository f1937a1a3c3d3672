//! How the pages look: templates in each language, style sheets, the operator's name, logo and color. Files are read
//! while it is built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use axum::http::header::HeaderValue;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::assets::PortalAsset;
use super::config::PortalConfig;
use super::sample;
use crate::api::consent_html::preferred;
use crate::html::environment::environment;
use crate::types::{Locale, ONCE_A_MINUTE, UnixMs};
use crate::zones::Zone;

/// The page in one language: its texts.
const TEXTS: &str = "portal.html";
/// The page without texts, which [`TEXTS`] includes.
const LAYOUT: &str = "portal_layout.html";
/// The languages of the embedded templates, the default first.
const EMBEDDED: [(&str, &str); 2] =
    [("en", include_str!("../../templates/portal.html")), ("vi", include_str!("../../templates/vi/portal.html"))];
/// Languages that are written from right to left.
const RIGHT_TO_LEFT: [&str; 10] = ["ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"];
/// Maximum work of one page. One with two metrics and 90 days needs about 20,000.
const FUEL: u64 = 2_000_000;
/// Maximum size of a logo: every page loads it.
const LOGO_BYTES_MAX: u64 = 256 * 1024;

/// What is shown if a template fails.
const NOT_RENDERED: &str =
    "<!DOCTYPE html><html lang=\"en\"><title>Usage</title><p>The page can't be shown at the moment.</p></html>";

/// A setting that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct PortalSettingError {
    /// Its key.
    pub setting: &'static str,
    problem: String,
}

fn refused(setting: &'static str) -> impl Fn(String) -> PortalSettingError {
    move |problem| PortalSettingError { setting, problem }
}

/// The templates and what they load.
#[derive(Debug)]
pub struct PortalHtml {
    environment: Environment<'static>,
    languages: BTreeSet<String>,
    name: Option<String>,
    /// The style sheets, in their order.
    styles: Vec<PortalAsset>,
    logo: Option<PortalAsset>,
    /// The icon of the page: without one, browsers look for /favicon.ico.
    icon: PortalAsset,
    /// The Content-Security-Policy.
    pub(super) policy: HeaderValue,
}

impl PortalHtml {
    /// Reads the files of the settings, and renders samples if there are templates.
    ///
    /// # Errors
    ///
    /// The first setting that can't be used.
    pub fn new(config: &PortalConfig) -> Result<Self, PortalSettingError> {
        let PortalConfig { origins, name, logo_file, color, templates, link_lifetime: _ } = config;
        let css =
            |stem: &str, text: &str| PortalAsset::new(stem, "css", "text/css; charset=utf-8", text.as_bytes().to_vec());
        let mut styles = vec![
            css("console", include_str!("../../templates/console/console.css")),
            css("portal", include_str!("../../templates/portal.css")),
        ];
        if let Some(color) = color {
            let brand = format!(":root {{ --brand: {color}; --on-brand: {}; }}\n", color.of_text());
            styles.push(css("color", &brand));
        }
        let logo = logo_file.as_deref().map(read_logo).transpose()?;
        let bell = include_bytes!("../../templates/console/icon.svg").to_vec();
        let icon = logo.clone().unwrap_or_else(|| PortalAsset::new("icon", "svg", "image/svg+xml", bell));
        let mut environment = environment();
        environment.set_fuel(Some(FUEL));
        environment.set_debug(true);
        environment.add_filter("clock", clock);
        add(&mut environment, LAYOUT, include_str!("../../templates/portal_layout.html").to_owned())?;
        let mut languages = BTreeSet::new();
        for (language, text) in EMBEDDED {
            add(&mut environment, &format!("{language}/{TEXTS}"), text.to_owned())?;
            languages.insert(language.to_owned());
        }
        let ancestors = if origins.is_empty() { "'none'".to_owned() } else { origins.join(" ") };
        let policy = format!(
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors {ancestors}"
        );
        let policy = HeaderValue::from_str(&policy).map_err(|error| refused("portal.origins")(error.to_string()))?;
        let name = name.as_ref().map(ToString::to_string);
        let mut html = Self { environment, languages, name, styles, logo, icon, policy };
        if let Some(folder) = templates {
            html.replace_by(folder)?;
            html.check()?;
        }
        Ok(html)
    }

    /// Replaces templates by those of a folder: `portal.html` in English, `portal_layout.html`, and `portal.html` in
    /// folders named by a language.
    fn replace_by(&mut self, folder: &Path) -> Result<(), PortalSettingError> {
        let refused = refused("portal.templates");
        let read = |path: PathBuf| match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(format!("read {path:?}: {error}"))),
        };
        let mut found = 0;
        for (name, path) in [(LAYOUT.to_owned(), LAYOUT), (format!("en/{TEXTS}"), TEXTS)] {
            if let Some(text) = read(folder.join(path))? {
                add(&mut self.environment, &name, text)?;
                found += 1;
            }
        }
        let entries = std::fs::read_dir(folder).map_err(|error| refused(format!("read {folder:?}: {error}")))?;
        for entry in entries {
            let entry = entry.map_err(|error| refused(format!("read {folder:?}: {error}")))?;
            let Some(text) = read(entry.path().join(TEXTS)).ok().flatten() else { continue };
            let folder = entry.file_name().to_string_lossy().into_owned();
            let language = Locale::parse(&folder).map_err(|error| refused(format!("{folder}/{TEXTS}: {error}")))?;
            add(&mut self.environment, &format!("{language}/{TEXTS}"), text)?;
            self.languages.insert(language.to_string());
            found += 1;
        }
        let missing = format!("{folder:?} holds no template, allowed are {TEXTS}, {LAYOUT} and vi/{TEXTS}");
        if found == 0 { Err(refused(missing)) } else { Ok(()) }
    }

    /// Renders samples in every language, so that a mistake ends the start and not a visit.
    fn check(&self) -> Result<(), PortalSettingError> {
        for (language, content) in
            self.languages.iter().flat_map(|language| sample::contents().into_iter().map(move |of| (language, of)))
        {
            self.try_render(language, content).map_err(|error| explained(&error))?;
        }
        Ok(())
    }

    /// The files that pages load.
    pub(super) fn assets(&self) -> impl Iterator<Item = &PortalAsset> {
        self.styles.iter().chain(&self.logo).chain([&self.icon])
    }

    /// The languages of the pages.
    pub const fn languages(&self) -> &BTreeSet<String> {
        &self.languages
    }

    /// The language for a locale, or else for the browser.
    pub(super) fn language(&self, locale: Option<&Locale>, asked: &HeaderMap) -> String {
        let of_locale = locale.into_iter().flat_map(Locale::fallbacks).map(|locale| locale.to_string());
        let mut of_locale = of_locale.filter(|language| self.languages.contains(language));
        let of_browser = || preferred(asked, self.languages.iter().map(String::as_str)).map(str::to_owned);
        of_locale.next().or_else(of_browser).unwrap_or_else(|| EMBEDDED[0].0.to_owned())
    }

    /// The answer with a page.
    pub(super) fn rendered(&self, status: StatusCode, language: &str, content: Value) -> Response {
        match self.try_render(language, content) {
            Ok(html) => (status, Html(html)).into_response(),
            Err(error) => {
                let error = explained(&error).problem;
                tracing::error!(name: ONCE_A_MINUTE, error, language, "a page of the portal was not rendered");
                (StatusCode::INTERNAL_SERVER_ERROR, Html(NOT_RENDERED)).into_response()
            }
        }
    }

    fn try_render(&self, language: &str, content: Value) -> Result<String, Error> {
        let primary = language.split('-').next().unwrap_or_default();
        let common = context! {
            language, name => self.name.clone(), dir => if RIGHT_TO_LEFT.contains(&primary) { "rtl" } else { "ltr" },
            styles => self.styles.iter().map(|asset| asset.name.clone()).collect::<Vec<_>>(),
            logo => self.logo.as_ref().map(|asset| asset.name.clone()),
            icon => self.icon.name.clone(),
        };
        self.environment.get_template(&format!("{language}/{TEXTS}"))?.render(context! { ..content, ..common })
    }
}

fn add(environment: &mut Environment<'static>, name: &str, text: String) -> Result<(), PortalSettingError> {
    environment.add_template_owned(name.to_owned(), text).map_err(|error| explained(&error))
}

/// The innermost error of a template, with its place.
fn explained(error: &Error) -> PortalSettingError {
    let mut inner = error;
    while let Some(source) = std::error::Error::source(inner).and_then(|source| source.downcast_ref()) {
        inner = source;
    }
    let place = (inner.name().unwrap_or_default(), inner.line().unwrap_or(1));
    let what = inner.detail().map_or_else(|| inner.kind().to_string(), str::to_owned);
    refused("portal.templates")(format!("{}, line {}: {what}", place.0, place.1))
}

fn read_logo(path: &Path) -> Result<PortalAsset, PortalSettingError> {
    let refused = refused("portal.logo_file");
    let types = [("svg", "image/svg+xml"), ("png", "image/png"), ("jpg", "image/jpeg"), ("webp", "image/webp")];
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_lowercase();
    let Some((ending, content_type)) = types.into_iter().find(|(known, _)| *known == ending) else {
        return Err(refused(format!("{path:?} is no .svg, .png, .jpg or .webp")));
    };
    let unreadable = |error: std::io::Error| refused(format!("read {path:?}: {error}"));
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > LOGO_BYTES_MAX {
        return Err(refused(format!("{path:?} has {bytes} bytes, at most {LOGO_BYTES_MAX} are allowed")));
    }
    Ok(PortalAsset::new("logo", ending, content_type, std::fs::read(path).map_err(unreadable)?))
}

/// A time of JSON as the clocks in a zone show it, in a strftime form.
fn clock(time: &str, zone: &str, form: &str) -> Result<String, Error> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidOperation, what.to_owned());
    let at: UnixMs = time.parse().map_err(|_| wrong("clock takes a time"))?;
    let at = at.to_utc().ok_or_else(|| wrong("clock takes a time in the calendar"))?;
    let items = chrono::format::StrftimeItems::new(form).parse().map_err(|_| wrong("clock takes a strftime form"))?;
    let zone: Zone = zone.parse().unwrap_or(Zone::UTC);
    Ok(at.with_timezone(&zone).format_with_items(items.into_iter()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html() -> PortalHtml {
        let config = PortalConfig {
            origins: Vec::new(),
            name: None,
            logo_file: None,
            color: None,
            templates: None,
            link_lifetime: std::time::Duration::ZERO,
        };
        PortalHtml::new(&config).expect("the embedded templates render")
    }

    /// A customer must not find a sentence in a language that it can't read, nor a page that says nothing.
    #[test]
    fn every_sample_has_a_text_of_its_own_in_each_language() {
        let html = html();
        let mut seen = BTreeSet::new();
        for content in sample::contents() {
            let pages = EMBEDDED.map(|(language, _)| html.try_render(language, content.clone()).expect("a page"));
            for (page, (language, _)) in pages.iter().zip(EMBEDDED) {
                assert!(page.contains(&format!("<html lang=\"{language}\" dir=\"ltr\">")), "{page}");
                assert!(!page.contains("{") && !page.contains("The page can't be shown"), "{page}");
                assert!(seen.insert(page.clone()), "{page}");
            }
            for english in ["Your usage", "Alerts", "Started", "contact", "link", "Used", "until"] {
                let text = pages[1].replace("href=\"#content\"", "").replace("id=\"content\"", "");
                let words = [format!(">{english}"), format!(" {english} ")];
                assert!(words.iter().all(|word| !text.contains(word)), "{english} in {text}");
            }
        }
    }

    /// The language of the link comes first, then that of the browser, then English.
    #[test]
    fn the_language_is_one_that_there_is() {
        let (html, mut headers) = (html(), HeaderMap::new());
        let of = |locale: &str, headers: &HeaderMap| html.language(Locale::parse(locale).ok().as_ref(), headers);
        assert_eq!(
            (of("vi-VN", &headers), of("fr", &headers), of("", &headers)),
            ("vi".into(), "en".into(), "en".into())
        );
        headers.insert("accept-language", HeaderValue::from_static("fr, vi;q=0.5, en;q=0.3"));
        assert_eq!(
            (of("en-US", &headers), of("fr", &headers), of("", &headers)),
            ("en".into(), "vi".into(), "vi".into())
        );
    }
}
