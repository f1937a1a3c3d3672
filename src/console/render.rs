//! Renders pages from templates. A template ends with `.html`, so every value is escaped.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use minijinja::{Environment, Value, context};

use super::assets::CSS_NAME;
use super::session::{ConsoleSession, Visitor};
use crate::html::environment::environment;
pub(super) use crate::html::environment::shown;
use crate::types::nonce;

macro_rules! templates {
    ($($name:literal)+) => { [$(($name, include_str!(concat!("../../templates/console/", $name)))),+] };
}

/// Every template.
const SOURCES: [(&str, &str); 20] = templates!(
    "base.html" "parts.html" "login.html" "error.html" "overview.html" "near.html" "subjects.html" "subject.html"
    "alerts.html" "deliveries.html" "delivery.html" "destinations.html" "mutes.html" "refused.html" "system.html"
    "log.html" "top.html" "settings.html" "erase.html" "act.html"
);

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = environment();
    for (name, source) in SOURCES {
        templates.add_template(name, source).expect("a test renders each template");
    }
    templates
});

/// A page for this visitor. `content` has a `title` and what the template shows.
pub(super) fn rendered_html(template: &str, visitor: &Visitor, content: Value) -> Response {
    // The forms of one page share their id: what else they send tells them apart.
    let form = visitor.is_admin().then(nonce);
    let (visitor, outcome) = match visitor {
        Visitor::Local => (context! { name => visitor.name(), scope => "read", can_log_out => false }, None),
        Visitor::LoggedIn { session: ConsoleSession { name, scope }, outcome } => {
            (context! { name, scope => scope.as_str(), can_log_out => true }, outcome.as_deref())
        }
        Visitor::Unknown => (Value::from(()), None),
    };
    let page = template.trim_end_matches(".html");
    let common = context! { css => CSS_NAME.as_str(), visitor, page, form, outcome };
    let rendered =
        TEMPLATES.get_template(template).and_then(|template| template.render(context! { ..content, ..common }));
    let html = rendered.unwrap_or_else(|error| {
        tracing::error!(%error, template, "a page of the console was not rendered");
        "<!DOCTYPE html><title>quotabell</title><p>The page can't be shown. The log says why. <a href=\"./\">Overview</a>"
            .to_owned()
    });
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}
