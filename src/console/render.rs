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
use crate::types::text::{grouped, printable};

macro_rules! templates {
    ($($name:literal)+) => { [$(($name, include_str!(concat!("../../templates/console/", $name)))),+] };
}

/// Every template.
const SOURCES: [(&str, &str); 16] = templates!(
    "base.html" "parts.html" "login.html" "error.html" "overview.html" "near.html" "subjects.html" "subject.html"
    "alerts.html" "deliveries.html" "delivery.html" "destinations.html" "mutes.html" "refused.html" "system.html"
    "top.html"
);

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.add_filter("thousands", |number: u64| grouped(number, ","));
    templates.add_filter("query", |text: &str| query_value(text));
    templates.add_filter("printable", |text: &str| printable(text));
    for (name, source) in SOURCES {
        templates.add_template(name, source).expect("a test renders each template");
    }
    templates
});

/// A read model, or a part of one, for a template: its JSON form.
pub(super) fn shown(view: &impl Serialize) -> Value {
    Value::from(Serde(view))
}

/// A page for this visitor. `content` has a `title` and what the template shows.
pub(super) fn rendered_html(template: &str, visitor: &Visitor, content: Value) -> Response {
    let visitor = match visitor {
        Visitor::Local => context! { name => "this machine", scope => "read", can_log_out => false },
        Visitor::LoggedIn(ConsoleSession { name, scope }) => {
            context! { name, scope => scope.as_str(), can_log_out => true }
        }
        Visitor::Unknown => Value::from(()),
    };
    let page = template.trim_end_matches(".html");
    let common = context! { css => CSS_NAME.as_str(), visitor, page };
    let rendered =
        TEMPLATES.get_template(template).and_then(|template| template.render(context! { ..content, ..common }));
    let html = rendered.unwrap_or_else(|error| {
        tracing::error!(%error, template, "a page of the console was not rendered");
        "<!DOCTYPE html><title>quotabell</title><p>The page can't be shown. The log says why. <a href=\"./\">Overview</a>"
            .to_owned()
    });
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}
