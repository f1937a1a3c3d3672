//! Renders pages from templates. A template ends with `.html`, so every value is escaped.

use std::sync::LazyLock;

use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::response::{IntoResponse, Response};
use minijinja::{Environment, Value, context};
use sha2::{Digest, Sha256};

use super::assets::ASSETS;
use super::sentence::{clock, sentence, split_url};
use super::session::{ConsoleSession, Visitor};
use crate::html::environment::environment;
pub(super) use crate::html::environment::shown;
use crate::types::text::hex;
use crate::types::{Period, nonce};

macro_rules! templates {
    ($($name:literal)+) => { [$(($name, include_str!(concat!("../../templates/console/", $name)))),+] };
}

/// The page of an error.
pub(super) const ERROR: &str = "error.html";

/// Every template.
const SOURCES: [(&str, &str); 20] = templates!(
    "base.html" "parts.html" "login.html" "error.html" "overview.html" "near.html" "subjects.html" "subject.html"
    "alerts.html" "deliveries.html" "delivery.html" "destinations.html" "mutes.html" "refused.html" "system.html"
    "log.html" "top.html" "settings.html" "erase.html" "act.html"
);

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = environment();
    templates.add_filter("clock", |time: &str| clock(time));
    templates.add_filter("sentence", |text: &str| sentence(text));
    templates.add_filter("window", |period: &str| period.parse().map_or("", |period: Period| period.window().as_str()));
    for (name, source) in SOURCES {
        templates.add_template(name, source).expect("a test renders each template");
    }
    templates
});

/// What a page was rendered from.
#[derive(Debug, Clone)]
pub(super) struct RenderedHtml {
    pub(super) template: &'static str,
    pub(super) visitor: Visitor,
    content: Value,
}

impl RenderedHtml {
    /// The page as the one that was read last, while Redis is away, and why.
    pub(super) fn to_last(&self, why: &str) -> Response {
        rendered(self, Some(why))
    }

    /// What a page about an error says.
    pub(super) fn detail(&self) -> String {
        self.content.get_attr("detail").unwrap_or_default().to_string()
    }
}

/// A page for this visitor. `content` has a `title` and what the template shows.
pub(super) fn rendered_html(template: &'static str, visitor: &Visitor, content: Value) -> Response {
    let page = RenderedHtml { template, visitor: visitor.clone(), content };
    let mut response = rendered(&page, None);
    response.extensions_mut().insert(page);
    response
}

/// The answer for this visitor, with the navigation: the code that makes the page of an error knows no visitor.
pub(super) fn for_visitor(mut answer: Response, visitor: &Visitor) -> Response {
    let page = answer.extensions().get::<RenderedHtml>().filter(|page| page.template == ERROR);
    let page = page.map(|page| rendered(&RenderedHtml { visitor: visitor.clone(), ..page.clone() }, None));
    if let Some(mut page) = page {
        std::mem::swap(answer.body_mut(), page.body_mut());
        answer.headers_mut().extend(std::mem::take(page.headers_mut()));
    }
    answer
}

/// `why`: it is the page that was read last.
fn rendered(RenderedHtml { template, visitor, content }: &RenderedHtml, why: Option<&str>) -> Response {
    // The forms of one page share their id: what else they send tells them apart.
    let form = (visitor.is_admin() && why.is_none()).then(nonce);
    let now = visitor.now().map(|now| now.to_string());
    let (visitor, outcome) = match visitor {
        Visitor::Local { .. } => (context! { name => visitor.name(), scope => "read", can_log_out => false }, None),
        Visitor::LoggedIn { session: ConsoleSession { name, scope }, outcome, .. } => {
            (context! { name, scope => scope.as_str(), can_log_out => true }, outcome.as_deref())
        }
        Visitor::Unknown => (Value::from(()), None),
    };
    let (outcome, link) = outcome.map(split_url).unzip();
    let page = template.trim_end_matches(".html");
    let [css, idiomorph, script, icon] = ASSETS.each_ref().map(|asset| asset.name.as_str());
    let common = context! {
        css, idiomorph, script, icon, visitor, page, form => form.as_deref(), now => now.as_deref(), outcome, link => link.flatten(), why
    };
    let content = content.clone();
    let rendered =
        TEMPLATES.get_template(template).and_then(|template| template.render(context! { ..content, ..common }));
    let html = rendered.unwrap_or_else(|error| {
        tracing::error!(%error, template, "a page of the console was not rendered");
        "<!DOCTYPE html><title>quotabell</title><p>The page can't be shown. The log says why. <a href=\"./\">Overview</a>"
            .to_owned()
    });
    let etag = etag(&html, form.as_deref(), now.as_deref());
    ([(CONTENT_TYPE, "text/html; charset=utf-8"), (ETAG, &etag)], html).into_response()
}

/// Tells this version of a page from others. Its time and the id of its forms are no difference.
fn etag(html: &str, form: Option<&str>, now: Option<&str>) -> String {
    let mut compared = html.to_owned();
    if let Some(form) = form {
        compared = compared.replace(form, "");
    }
    if let Some(now) = now {
        // Rows may have the same time, which stays.
        compared = compared.replace(&format!("id=\"as-of\" datetime=\"{now}\">{}", clock(now)), "");
    }
    format!("\"{}\"", hex(&Sha256::digest(compared)[..16]))
}
