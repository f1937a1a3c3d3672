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
    environment.add_filter("separated", |text: &str| separated(text));
    environment.add_filter("query", |text: &str| query_value(text));
    environment.add_filter("printable", |text: &str| printable(text));
    environment.add_filter("exact", |text: &str| Value::from_safe_string(exact(text)));
    environment
}

/// A text such as `5000/day` whose numbers have separators.
fn separated(text: &str) -> String {
    let is_digit = |character: char| character.is_ascii_digit();
    let parts = text.split_inclusive(|character| !is_digit(character));
    let part = |part: &str| {
        let number = part.trim_end_matches(|character| !is_digit(character));
        let rest = &part[number.len()..];
        number.parse().map_or_else(|_| part.to_owned(), |number: u64| grouped(number, ",") + rest)
    };
    parts.map(part).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that is misread by a digit is ten times too high.
    #[test]
    fn the_numbers_of_a_text_have_separators() {
        for (text, shown) in [
            ("requests 20000/day 400000/month", "requests 20,000/day 400,000/month"),
            ("none", "none"),
            ("1000000", "1,000,000"),
            ("", ""),
        ] {
            assert_eq!(separated(text), shown);
        }
    }
}
