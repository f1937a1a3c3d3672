//! Relative links, so that the console works below any path of a proxy.

use url::form_urlencoded::{Serializer, byte_serialize};

/// A text as the value of a query.
pub fn query_value(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

/// A page with the parameters that are set.
pub fn href_to(page: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    format!("{page}?{}", query.finish())
}

/// The way from a path to the folder of the pages: empty, or `../` for each slash after the first.
pub fn up_from(path: &str) -> String {
    "../".repeat(path.matches('/').count().saturating_sub(1))
}
