//! Renders pages from templates. A template ends with `.html`, so every value is escaped.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value, context};
use serde::Serialize;

use super::assets::CSS_NAME;
use super::href::query_value;
use super::session::{ConsoleSession, Visitor};
use crate::types::nonce;
use crate::types::text::{grouped, printable};

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
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.add_filter("thousands", |number: u64| grouped(number, ","));
    templates.add_filter("query", |text: &str| query_value(text));
    templates.add_filter("printable", |text: &str| printable(text));
    templates.add_filter("exact", |text: &str| Value::from_safe_string(exact(text)));
    for (name, source) in SOURCES {
        templates.add_template(name, source).expect("a test renders each template");
    }
    templates
});

/// A text as the value of a field. A form sends it back unchanged, and nothing in it changes the page around it.
fn exact(text: &str) -> String {
    let mut value = String::new();
    for character in text.chars() {
        match character {
            ' ' | '-' | '_' | '.' | ':' | '/' => value.push(character),
            letter if letter.is_ascii_alphanumeric() => value.push(letter),
            other => value += &format!("&#x{:x};", u32::from(other)),
        }
    }
    value
}

/// A read model, or a part of one, for a template: its JSON form.
pub(super) fn shown(view: &impl Serialize) -> Value {
    Value::from(Serde(view))
}

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
