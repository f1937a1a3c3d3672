//! The environment in which pages are rendered. The names of their templates end with `.html`, so every value is
//! escaped.

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Serialize;

use super::href::query_value;
use crate::types::metric_format;
use crate::types::text::{grouped, printable, separated};

/// An environment without templates. A variable that does not exist is an error.
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("thousands", |number: u64| grouped(number, ","));
    environment.add_filter("separated", |text: &str| separated(text));
    environment.add_filter("amount", amount);
    environment.add_filter("name_in", name_in);
    environment.add_filter("query", |text: &str| query_value(text));
    environment.add_filter("printable", |text: &str| printable(text));
    environment.add_filter("exact", |text: &str| Value::from_safe_string(exact(text)));
    environment
}

/// A count with the scale and the unit of its metric: `12.50 USD`, or `12,50 USD` with the separator `.`. `format` is
/// anything that has them, or undefined for a metric without a format.
fn amount(count: u64, format: &Value, separator: Option<&str>) -> String {
    let of = |name: &str| format.get_attr(name).unwrap_or_default();
    let scale = u8::try_from(of("scale")).unwrap_or(0);
    metric_format::amount(count, scale, of("unit").as_str().unwrap_or_default(), separator.unwrap_or(","))
}

/// The name of a metric in texts. `formats` has the formats of metrics.
fn name_in(metric: &str, formats: &Value) -> String {
    let format = formats.get_attr(metric).unwrap_or_default();
    let name = format.get_attr("name").unwrap_or_default();
    printable(name.as_str().unwrap_or(metric))
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
    use minijinja::context;

    use super::*;

    /// A misplaced decimal mark is a wrong invoice. Few metrics have a format.
    #[test]
    fn counts_have_the_scale_and_the_unit_of_their_metric() {
        let mut environment = environment();
        let page = "{{ 12500000|amount(formats.cost) }} {{ 12500000|amount(formats.cost, '.') }} \
                    {{ 4200|amount(formats.calls) }} {{ 'cost'|name_in(formats) }} {{ 'calls'|name_in(formats) }}";
        environment.add_template("page.html", page).expect("a template");
        let formats =
            context! { formats => context! { cost => context! { name => "Spend <1>", unit => "USD", scale => 6 } } };
        let shown = environment.get_template("page.html").and_then(|page| page.render(formats)).expect("a page");
        assert_eq!(shown, "12.50 USD 12,50 USD 4,200 Spend &lt;1&gt; calls");
    }
}
