//! The environment in which pages are rendered. The names of their templates end with `.html`, so every value is
//! escaped.

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::href::query_value;
use crate::types::text::{grouped, printable};

/// An environment without templates. A variable that does not exist is an error.
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("thousands", |number: u64| grouped(number, ","));
    environment.add_filter("query", |text: &str| query_value(text));
    environment.add_filter("printable", |text: &str| printable(text));
    environment.add_filter("exact", |text: &str| Value::from_safe_string(exact(text)));
    environment
}

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
pub fn shown(view: &impl Serialize) -> Value {
    Value::from(Serde(view))
}
