//! Times, and the sentences of `explain` with times and ids, as pages show them. Pure.

use minijinja::{HtmlEscape, Value};

use crate::subjects::record::LIMIT_PREFIX;
use crate::types::text::printable;
use crate::types::{DeliveryId, UnixMs};
use crate::views::IdPrefix;

/// Number of characters of an id that is shortened: its kind, and 8 digits.
const DIGITS_SHOWN: usize = 8;

/// A time as pages show it.
pub(super) fn clock(time: &str) -> String {
    time.get(..19).map(|time| time.replace('T', " ")).unwrap_or_default() + " UTC"
}

/// How the message begins that ends with a link to the portal.
pub(super) const HAS_URL: &str = "Everybody who has this link may use it until ";

/// A message, and the link to the portal at its end. In others, what a receiver has answered must not become a link.
pub(super) fn split_url(message: &str) -> (&str, Option<&str>) {
    let split = message.strip_prefix(HAS_URL).and_then(|_| message.rsplit_once(' '));
    split.map_or((message, None), |(text, link)| (text, Some(link)))
}

/// An error that begins with the name of a field, with the label that the field has on pages.
pub(super) fn labelled(detail: &str) -> String {
    let Some((name, rest)) = detail.split_once(": ") else { return capitalized(detail) };
    let label = match name {
        "billing_day" => "Months begin on day",
        "billing_month" => "Years begin in month",
        "locale" => "Language",
        "percent" => "At least, %",
        "reason" => "Why",
        "timezone" => "Time zone",
        name => match name.strip_prefix(LIMIT_PREFIX) {
            Some(metric) => return format!("Limits of {metric}: {rest}"),
            None => name,
        },
    };
    capitalized(&format!("{label}: {rest}"))
}

fn capitalized(text: &str) -> String {
    text.chars()
        .next()
        .map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), &text[first.len_utf8()..]))
}

/// A sentence as HTML.
pub(super) fn sentence(text: &str) -> Value {
    // On a page, the alert is a row that leads to its deliveries.
    let text =
        text.split_once("; `quotabell explain alert_").map_or_else(|| text.to_owned(), |(text, _)| format!("{text}."));
    let html = printable(&text).split(' ').map(word).collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = html.split('`').collect();
    // With an odd number of parts, each mark of a command has its counterpart.
    if parts.len().is_multiple_of(2) {
        return Value::from_safe_string(html);
    }
    let marked =
        (0..).zip(parts).map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() });
    Value::from_safe_string(marked.collect())
}

fn word(word: &str) -> String {
    let bare = word.trim_end_matches(['.', ',', ':', ';', ')']);
    let rest = &word[bare.len()..];
    if bare.ends_with('Z') && bare.parse::<UnixMs>().is_ok() {
        return format!("<time datetime=\"{bare}\">{}</time>{rest}", clock(bare));
    }
    let is_delivery = bare.parse::<IdPrefix<DeliveryId>>().is_ok_and(|id| id.whole().is_some());
    if let Some((kind, digits)) = bare.split_once('_').filter(|(_, digits)| is_delivery && digits.len() > DIGITS_SHOWN)
    {
        return format!("<a href=\"delivery?id={bare}\">{kind}_{}</a>{rest}", &digits[..DIGITS_SHOWN]);
    }
    HtmlEscape(word).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name in a sentence must not become a part of the page.
    #[test]
    fn times_and_deliveries_are_marked_and_the_rest_is_escaped() {
        let id = format!("delivery_{}", "a".repeat(32));
        let shown =
            sentence(&format!("<b> made {id} at 2026-11-28T17:23:41.402Z, see `a <b>`; `quotabell explain alert_1`."));
        let expected = format!(
            "&lt;b&gt; made <a href=\"delivery?id={id}\">delivery_aaaaaaaa</a> at \
             <time datetime=\"2026-11-28T17:23:41.402Z\">2026-11-28 17:23:41 UTC</time>, see <code>a &lt;b&gt;</code>."
        );
        assert_eq!(shown.to_string(), expected);
    }
}
