//! The allowed values of each key, one line each: the hint of an error. The channels state the allowed values of their
//! own settings.

use crate::channels::REGISTRY;

/// The section of the operator's contacts.
const OPERATOR: &str = "operator";
/// Allowed values of `redis.url`.
const REDIS_URL: &str = r#""embedded" or one URL that begins with redis://, redis+unix://, redis+sentinel:// or redis+cluster:// (with TLS rediss://, rediss+sentinel://, rediss+cluster://)"#;
/// A key's pattern (`*` is any one segment) and its allowed values.
const ALLOWED: &[(&[&str], &str)] = &[
    (&["default_plan"], "the name of one of the plans"),
    (&["redis", "url"], REDIS_URL),
    (&["redis", "url_file"], "the path of a file whose first line is the URL"),
    (&["redis", "data_dir"], "the path of a directory"),
    (&["redis", "embedded_port"], "a port, 1 to 65535"),
    (&["redis", "ca_file"], "the path of a PEM file of certificates, for a URL with TLS, such as rediss://"),
    (&["stream", "key"], "a name of 1 to 128 bytes, without braces"),
    (&["stream", "partitions"], "a whole number, 1 to 256"),
    (&["stream", "trim"], r#""consumed" or "never""#),
    (&["stream", "late_max"], r#"a duration up to 7d, such as "5h""#),
    (&["stream", "age_max"], r#"a duration of 1d or more, such as "46d""#),
    (&["stream", "batch_entries"], "a whole number, 1 to 10000"),
    (&["stream", "event_ids_window"], r#"a duration, 10m to 24h, such as "10m""#),
    (&["stream", "event_ids_max"], "a whole number, 1000 to 1000000000"),
    (&["stream", "metrics_max"], "a whole number, 1 to 100000"),
    (&["events", "types"], "a table for each type of CloudEvents: [events.types.\"TYPE\"] with metrics"),
    (&["events", "types", "*"], r#"metrics = { "tokens.in" = "data.prompt_tokens", requests = 1 }"#),
    (
        &["events", "types", "*", "metrics"],
        r#"1 to 16 metrics, such as { "tokens.in" = "data.prompt_tokens", requests = 1 }"#,
    ),
    (
        &["events", "types", "*", "metrics", "*"],
        r#"a path into the data of up to 8 names, such as "data.usage.prompt_tokens" (with ? at the end it may be absent), or a whole number, 1 to 9007199254740991"#,
    ),
    (&["history", "alerts_days"], "a whole number of days, 1 to 1830"),
    (&["history", "days"], "a whole number of days, 0 to 1000; 0 for no history"),
    (&["subjects", "cache_entries"], "a whole number, 1 or more"),
    (&["subjects", "contacts_max"], "a whole number, 1 to 1000"),
    (&["subjects", "separator"], r#"one ASCII punctuation mark, such as "/", or "" for flat subjects"#),
    (
        &["subjects", "default_plans"],
        r#"up to 4 names of plans from the top level down, such as ["org", "team"]; subjects.separator must be set"#,
    ),
    (&["subjects", "default_plans", "*"], "the name of one of the plans"),
    (
        &["subjects", "prefix"],
        "1 to 64 visible ASCII characters without {}*?[]\\, the last one a colon, which begin no other key",
    ),
    (&["plans"], "a table for each plan: [plans.NAME] with limits and thresholds"),
    (&["plans", "*"], "limits = { requests = 5000 }, thresholds = [80, 100] and rate = { requests = \"60/1m\" }"),
    (
        &["plans", "*", "limits"],
        r#"limits for each metric, such as { requests = 5000 } or { requests = ["600/hour", "5000/day"] }"#,
    ),
    (
        &["plans", "*", "limits", "*"],
        r#"5000 (units a day), "600/hour" or ["600/hour", "5000/day"]: units are 1 to 9007199254740991 (2^53 - 1), windows are hour, day, week, month, quarter, year and total, each once; leave the metric out for no limit"#,
    ),
    (&["plans", "*", "thresholds"], "at most 100 distinct thresholds, such as [80, \"used:5000\", \"remaining:1000\"]"),
    (
        &["plans", "*", "thresholds", "*"],
        "a whole percentage, 1 to 1000, \"used:N\" or \"remaining:N\" with N units, each once",
    ),
    (&["plans", "*", "grant_notice"], "a number and a unit, such as \"7d\""),
    (
        &["plans", "*", "upgrade_url"],
        r#"an https or http URL, such as "https://example.com/upgrade?customer={{ subject }}&metric={{ metric }}""#,
    ),
    (
        &["plans", "*", "usage_url"],
        r#"an https or http URL, such as "https://example.com/usage/{{ subject }}#{{ metric }}""#,
    ),
    (&["metrics"], r#"a table for each metric: [metrics."tokens.in"] with name, unit and scale"#),
    (&["metrics", "*"], r#"name = "API spend", unit = "USD" and scale = 6; each may be left out"#),
    (&["metrics", "*", "name"], "1 to 128 visible characters on one line, without spaces at the ends"),
    (&["metrics", "*", "unit"], r#"1 to 16 visible characters without spaces at the ends, such as "USD" or "GB""#),
    (&["metrics", "*", "scale"], "a whole number of decimals, 0 to 15"),
    (
        &["plans", "*", "forecast"],
        "windows of day, week and month, and a probability, such as { windows = [\"day\"], probability = 0.9 }",
    ),
    (&["plans", "*", "forecast", "windows"], "a list of day, week and month"),
    (&["plans", "*", "forecast", "windows", "*"], "day, week or month"),
    (&["plans", "*", "forecast", "probability"], "a number from 0.5 to 0.99"),
    (&["plans", "*", "spike"], "a number from 1.5 to 100"),
    (&["plans", "*", "silence"], "a time from \"1d\" to \"30d\""),
    (&["plans", "*", "refuse_at"], r#"a whole percentage, 100 to 1000, or "never""#),
    (
        &["plans", "*", "rate"],
        r#"units and a window for each metric, such as { requests = "60/1m" }, and an algorithm for all of them; leave it out for no rate"#,
    ),
    (&["plans", "*", "rate", "algorithm"], r#""fixed", "sliding" or "gcra""#),
    (
        &["plans", "*", "rate", "*"],
        r#"units and a window of 1ms to 31d, such as "60/1m" or "1000/1h"; with algorithm = "sliding" at most 100000 units; every key but algorithm is a metric"#,
    ),
    (&["alerts", "on_multiple"], "\"each\" or \"highest\""),
    (&["delivery", "send"], "true or false"),
    (&["delivery", "concurrency"], "a whole number, 1 or more"),
    (&["delivery", "per_destination_max"], "a whole number, 1 or more"),
    (&["delivery", "probe_first"], r#"a duration above 0 and up to probe_max, such as "30s""#),
    (&["delivery", "probe_max"], r#"a duration, at least delivery.probe_first, such as "15m""#),
    (&["retry", "first"], r#"a duration above 0 and up to max_interval, such as "5s""#),
    (&["retry", "factor"], "a number, 1 or more"),
    (&["retry", "max_interval"], r#"a duration, at least retry.first, such as "6h""#),
    (&["retry", "give_up_after"], r#"a duration above 0, such as "3d""#),
    (
        &["dns", "servers"],
        r#"IP addresses with ports, such as ["10.0.0.2:53"]; an empty list for those of /etc/resolv.conf"#,
    ),
    (&["operator", "digest"], r#"a time of day, such as "08:00", or "off""#),
    (&["operator", "timezone"], r#"an IANA time zone, such as "Europe/Berlin""#),
    (&["delivery", "disable_after"], r#"a duration, such as "5d"; "0s" for never"#),
    (&["http", "listen"], r#"an IP address and a port, such as "127.0.0.1:9464" or "[::]:9464""#),
    (&["http", "token"], "1 to 1024 visible ASCII characters without spaces (`openssl rand -hex 32` makes one)"),
    (&["http", "token_file"], "the path of a file with one or two lines, a valid token in each"),
    (
        &["http", "tokens"],
        r#"tables with a name, a file and scopes, such as { name = "gateway", file = "/run/secrets/gateway", scopes = ["check"] }"#,
    ),
    (&["http", "tokens", "*", "name"], "1 to 64 of the characters a-z, A-Z, 0-9, _, - and ., each name once"),
    (&["http", "tokens", "*", "file"], "the path of a file with one or two lines, a valid token in each"),
    (
        &["http", "tokens", "*", "scopes"],
        r#"a list of "check", "events:write", "read", "subjects:write", "deliveries:write" and "admin", which is all of them"#,
    ),
    (&["check", "on_error"], r#""allow" or "deny""#),
    (
        &["check", "subject_header"],
        r#"the name of a header, such as "X-Quota-Subject", but not another X-Quota-* or one of HTTP's own, such as Host"#,
    ),
    (&["check", "timeout"], r#"a duration above 0 and up to 5s, such as "100ms""#),
    (&["console", "listen"], r#"an IP address and a port, such as "127.0.0.1:9465", or "off""#),
    (
        &["console", "public_url"],
        r#"a URL of a host, with an optional path, such as "https://quota.example.com/console/""#,
    ),
    (&["portal", "origins"], r#"a list of origins without a path, such as ["https://app.example.com"]"#),
    (&["portal", "name"], "1 to 128 visible characters on one line"),
    (&["portal", "logo_file"], "the path of a .svg, .png, .jpg or .webp file of at most 256 KiB"),
    (&["portal", "color"], r##"six hex digits behind a #, such as "#0b5fff""##),
    (
        &["portal", "templates"],
        "the path of a directory with one or more of portal.html, portal_layout.html, and portal.html in folders named \
         by a language such as vi",
    ),
    (&["portal", "link_lifetime"], r#"a duration up to 7d, such as "7d"; "0s" for alerts without links"#),
    (&["http", "public_url"], r#"a URL of a host, with an optional path, such as "https://quota.example.com""#),
    (&["verification", "requests"], r#"up to 100000 requests and a period of 1ms to 31d, such as "3/1h""#),
    (&["verification", "lifetime"], r#"a duration, 1m to 1d, such as "10m""#),
    (&["log", "format"], r#""text" or "json""#),
    (&["log", "level"], r#""error", "warn", "info", "debug" or "trace""#),
    (&["shutdown", "drain"], r#"a duration, such as "20s""#),
];

/// Allowed values of the key with these segments. Below the last known segment, the allowed values of that segment.
pub(super) fn allowed_values(path: &[String]) -> Option<String> {
    let matches = |pattern: &[&str]| {
        pattern.len() == path.len() && pattern.iter().zip(path).all(|(part, segment)| *part == "*" || part == segment)
    };
    let exact = ALLOWED.iter().find(|(pattern, _)| matches(pattern)).map(|(_, allowed)| (*allowed).to_owned());
    let known = exact.or_else(|| of_channel(path)).or_else(|| match path {
        [section, key] if key == "contacts" && has_contacts(section) => Some(contact_list()),
        [section, key, _] if key == "contacts" && has_contacts(section) => Some(contact_in(section)),
        _ => None,
    });
    known.or_else(|| allowed_values(path.split_last().map(|(_, parent)| parent).filter(|parent| !parent.is_empty())?))
}

/// Allowed values of a setting of a channel.
fn of_channel(path: &[String]) -> Option<String> {
    let [section, key] = path else { return None };
    let definition = REGISTRY.into_iter().find(|definition| definition.channel.as_str() == section)?;
    definition.settings.iter().find(|setting| setting.key == key).map(|setting| setting.allowed.to_owned())
}

fn has_contacts(section: &str) -> bool {
    section == "fallback" || section == OPERATOR
}

/// Allowed form of a contact, with its filters.
fn contact_in(section: &str) -> String {
    let more = if section == OPERATOR { ", plans = [\"free\"], notices = true or false" } else { "" };
    format!(
        "{}; with thresholds = [80, 100], metrics = [\"requests\"], windows = [\"day\"], quiet = \"22:00-07:00\", quiet_all = true, digest = \"1h\", digest_all = true, resolved = true{more} unless it receives all alerts",
        contact()
    )
}

fn contact_list() -> String {
    format!("a list, such as [{}]", REGISTRY[0].example)
}

fn contact() -> String {
    let examples: Vec<&str> = REGISTRY.iter().map(|definition| definition.example).collect();
    let secrets: Vec<&str> = REGISTRY.iter().filter_map(|definition| Some(definition.secret?.text)).collect();
    format!("{}; the secret is {}", examples.join(" or "), secrets.join(" or "))
}

/// Prefix of quotabell's variables.
pub(super) const PREFIX: &str = "QUOTABELL";
/// Separator of section and key in the name of a variable.
pub(super) const SEPARATOR: &str = "__";

/// Name of the variable that sets the setting with these segments.
pub(super) fn variable<S: AsRef<str>>(path: &[S]) -> String {
    path.iter().fold(PREFIX.to_owned(), |name, segment| name + SEPARATOR + &segment.as_ref().to_uppercase())
}

/// Name that was meant by a variable with one underscore instead of two, such as `QUOTABELL_EMAIL__FROM`. `None` if the
/// variable is foreign: orchestrators set others for a service called quotabell, such as `QUOTABELL_SERVICE_HOST`.
pub(super) fn variable_meant_by(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?.trim_start_matches('_');
    let own = ALLOWED.iter().filter(|(pattern, _)| !pattern.contains(&"*")).map(|(pattern, _)| variable(pattern));
    let of_channels = REGISTRY.into_iter().flat_map(|definition| {
        definition.settings.iter().map(move |setting| variable(&[definition.channel.as_str(), setting.key]))
    });
    let flat = |text: &str| text.replace(SEPARATOR, "_");
    let meant = own.chain(of_channels).find(|known| flat(known) == flat(&format!("{PREFIX}_{rest}")));
    let of_a_section = || {
        // Two underscores later in the name: only quotabell's variables have those, even if the key is unknown.
        let (section, key) = rest.split_once(SEPARATOR)?;
        let own = ALLOWED.iter().map(|(pattern, _)| pattern[0]);
        let mut sections = own.chain(REGISTRY.into_iter().map(|definition| definition.channel.as_str()));
        let is_section = sections.any(|known| known.eq_ignore_ascii_case(section));
        is_section.then(|| variable(&[section, key]))
    };
    meant.or_else(of_a_section).filter(|meant| meant != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error about a key without a line here would not say what is allowed.
    #[test]
    fn every_key_of_the_defaults_says_what_it_takes() {
        let defaults: toml::Table = crate::config::DEFAULTS.parse().expect("TOML");
        for (section, value) in &defaults {
            for key in value.as_table().into_iter().flat_map(toml::Table::keys) {
                let path = [section.clone(), key.clone()];
                assert!(allowed_values(&path).is_some(), "{path:?} has no line in config/allowed.rs");
            }
        }
    }

    /// A variable that sets nothing would silently leave the default in force; a variable of an orchestrator must not
    /// stop a start.
    #[test]
    fn only_variables_that_nobody_else_sets_are_taken_for_misspelt() {
        for (name, meant) in [
            ("QUOTABELL_EMAIL__FROM", Some("QUOTABELL__EMAIL__FROM")),
            ("QUOTABELL_EMAIL_FROM", Some("QUOTABELL__EMAIL__FROM")),
            ("QUOTABELL__EMAIL_SMTP_URL", Some("QUOTABELL__EMAIL__SMTP_URL")),
            ("QUOTABELL_DEFAULT_PLAN", Some("QUOTABELL__DEFAULT_PLAN")),
            ("QUOTABELL_PLANS__FREE__LIMITS", Some("QUOTABELL__PLANS__FREE__LIMITS")),
            ("QUOTABELL_WEBHOOK__TIEMOUT", Some("QUOTABELL__WEBHOOK__TIEMOUT")),
            ("QUOTABELL__EMAIL__FROM", None),
            ("QUOTABELL_CONFIG", None),
            ("QUOTABELL_SERVICE_HOST", None),
            ("QUOTABELL_PORT_9464_TCP_ADDR", None),
            ("QUOTABELL_REDIS_SERVICE_HOST", None),
            ("QUOTABELL_REDIS_PORT", None),
            ("QUOTABELLS_EMAIL__FROM", None),
        ] {
            assert_eq!(variable_meant_by(name).as_deref(), meant, "{name}");
        }
    }
}
