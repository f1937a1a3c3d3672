//! A browser without scripts, for the console; and what each of its pages must have.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use regex::{Captures, Regex};
use reqwest::header::HeaderMap;
use tempfile::TempDir;
use url::form_urlencoded::Serializer;

use super::daemon::{Daemon, DaemonSetup};
use super::eventually::WAIT_MAX;
use super::outbox::Outbox;

pub const ADMIN: &str = "admin-0123456789abcdef";
pub const READ: &str = "read-0123456789abcdef";
pub const CHECK: &str = "check-0123456789abcdef";

/// The field by which a browser says that a page of the console sent a form.
pub const SAME_ORIGIN: [(&str, &str); 1] = [("sec-fetch-site", "same-origin")];

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }
}

/// A browser without scripts, which keeps one cookie.
pub struct Visitor {
    pub address: SocketAddr,
    pub client: reqwest::Client,
    pub cookie: Option<String>,
}

impl Visitor {
    pub fn new(address: SocketAddr) -> Self {
        // The daemon's own provider; a second test in this process finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(WAIT_MAX);
        let client = client.redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        Self { address, client, cookie: None }
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/x-www-form-urlencoded").body(body.to_owned());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Answer { status, headers, text: answer.text().await.expect("text") }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Sends a form as a page of the console does.
    pub async fn post(&self, form: &HtmlForm, fields: &[(&str, &str)]) -> Answer {
        self.send("POST", &format!("/{}", form.action), &SAME_ORIGIN, &form.body(fields)).await
    }

    /// The only form of a page with this action that has these fields.
    pub async fn form(&self, page: &str, action: &str, fields: &[(&str, &str)]) -> HtmlForm {
        let answer = self.get(page).await;
        let has = |form: &HtmlForm, (name, value): &(&str, &str)| {
            form.fields.iter().any(|(a, b)| (a, b) == (&(*name).to_owned(), &(*value).to_owned()))
        };
        let mut forms = forms(&answer.text);
        forms.retain(|form| form.action == action && fields.iter().all(|field| has(form, field)));
        forms.pop().unwrap_or_else(|| panic!("{page} has no form {action} with {fields:?}: {}", answer.text))
    }

    /// The page to which a form leads; it says what was done.
    pub async fn after(&self, answer: &Answer) -> Answer {
        assert_eq!(answer.status, 303, "{}", answer.text);
        let path = answer.header("location").trim_start_matches("./");
        let page = self.get(&format!("/{path}")).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        judge(path, &page);
        page
    }

    /// Sends a form, and returns what the next page says of it.
    pub async fn does(&self, form: &HtmlForm, fields: &[(&str, &str)]) -> String {
        let page = self.after(&self.post(form, fields).await).await;
        let said = found(&page.text, "role=\"status\">(.*?)</p>");
        let said = said.first().unwrap_or_else(|| panic!("nothing is said: {}", page.text));
        // Times and commands are marked.
        decoded(&said.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect::<String>())
    }

    /// Logs in with a token, as the form does.
    pub async fn log_in(mut self, token: &str) -> Self {
        let answer = self.send("POST", "/login", &[("sec-fetch-site", "same-origin")], &format!("token={token}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, "./"), "{}", answer.text);
        let cookie = answer.header("set-cookie");
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("Path"), "{cookie}");
        self.cookie = cookie.split(';').next().map(str::to_owned);
        self
    }
}

/// A form of a page.
#[derive(Debug, Clone)]
pub struct HtmlForm {
    pub action: String,
    pub is_post: bool,
    /// Its fields with the values that the page gives them. Of marks, the first.
    pub fields: Vec<(String, String)>,
    /// The values of its buttons that are named `do`.
    pub actions: Vec<String>,
}

impl HtmlForm {
    /// What a browser sends, with these values instead of those of the page.
    pub fn body(&self, fields: &[(&str, &str)]) -> String {
        let mut body = Serializer::new(String::new());
        let kept = self.fields.iter().filter(|(name, _)| fields.iter().all(|(other, _)| other != name));
        body.extend_pairs(kept).extend_pairs(fields);
        body.finish()
    }
}

/// The forms of a page.
pub fn forms(html: &str) -> Vec<HtmlForm> {
    let value = |tag: &str, name: &str| found(tag, &format!(" {name}=\"([^\"]*)\"")).first().map(|text| decoded(text));
    let of_form = |form: &str| {
        let mut fields: Vec<(String, String)> = Vec::new();
        for tag in found(form, "<(input[^>]*)>") {
            let name = value(tag, "name").expect("a field has a name");
            let is_marked =
                !tag.contains("type=\"checkbox\"") || (name == "id" && !fields.iter().any(|(known, _)| *known == name));
            if is_marked {
                fields.push((name, value(tag, "value").unwrap_or_default()));
            }
        }
        for select in found(form, "(?s)(<select.*?</select>)") {
            let options = found(select, "<option([^<]*)<");
            let chosen = options.iter().find(|option| option.contains(" selected>")).or(options.first());
            let (tag, text) = chosen.and_then(|option| option.split_once('>')).expect("an option");
            let chosen = value(tag, "value").unwrap_or_else(|| decoded(text));
            fields.push((value(select, "name").expect("a name"), chosen));
        }
        for area in found(form, "(?s)(<textarea.*?)</textarea>") {
            let text = area.split_once('>').expect("a tag").1;
            fields.push((value(area, "name").expect("a name"), decoded(text.strip_prefix('\n').unwrap_or(text))));
        }
        let head = form.split('>').next().expect("a tag");
        let actions = found(form, "<button name=\"do\" value=\"([^\"]*)\"").into_iter().map(str::to_owned).collect();
        HtmlForm {
            action: value(head, "action").expect("an action"),
            is_post: head.contains("method=\"post\""),
            fields,
            actions,
        }
    };
    found(html, "(?s)(<form .*?)</form>").into_iter().map(of_form).collect()
}

/// A daemon with tokens of each kind and a console.
pub async fn with_tokens(outbox: &Outbox) -> (Daemon, SocketAddr, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, token: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, token).expect("writable");
        path.display().to_string()
    };
    let (admin, read, check) = (file("admin", ADMIN), file("read", READ), file("check", CHECK));
    let config = folder.path().join("quotabell.toml");
    let text = format!(
        "[http]\npublic_url = \"https://quota.example.com\"\ntokens = [{{ name = \"ops\", file = \"{admin}\", scopes = [\"admin\"] }},\n\
         {{ name = \"viewer\", file = \"{read}\", scopes = [\"read\"] }},\n\
         {{ name = \"gateway\", file = \"{check}\", scopes = [\"check\"] }}]\n"
    );
    std::fs::write(&config, text).expect("writable");
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL_CONFIG", &config.display().to_string());
    let mut daemon = setup.env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0").argument("--no-send").start().await;
    let address = daemon.console().await;
    (daemon, address, folder)
}

/// What every page of the console must have, whatever it shows.
pub fn judge(path: &str, answer: &Answer) {
    let policy = answer.header("content-security-policy");
    assert!(policy.contains("frame-ancestors 'none'") && answer.text.contains("<html lang=\"en\">"), "{path}");
    assert_eq!(answer.text.matches("<script").count(), 2, "{path}: {}", answer.text);
    // Otherwise browsers look for /favicon.ico.
    assert_eq!(answer.text.matches("<link rel=\"icon\"").count(), 1, "{path}: {}", answer.text);
    judge_html(path, answer);
}

/// What every page must have, also one of the portal.
pub fn judge_html(path: &str, answer: &Answer) {
    let html = &answer.text;
    assert!(html.trim_start().starts_with("<!DOCTYPE html>") && html.contains("<html lang=\""), "{path}: {html}");
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'self'"), "{path}: {policy}");
    assert_eq!((answer.header("referrer-policy"), answer.header("x-content-type-options")), ("no-referrer", "nosniff"));
    assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    let scripts = found(html, "(<script defer src=\"[^\"]*\"></script>)").len();
    assert_eq!(scripts, html.matches("<script").count(), "{path} has a script of its own: {html}");
    for forbidden in [" style=", "<style", "<b>", " onclick", "javascript:", "49", "\u{202e}"] {
        let is_number = forbidden == "49" && !html.contains(">49<");
        assert!(is_number || !html.contains(forbidden), "{path} has {forbidden:?}: {html}");
    }
    assert!(!html.contains("The page can't be shown"), "{path} was not rendered");
    let ids: Vec<&str> = found(html, " id=\"([^\"]*)\"");
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{path} has an id twice: {ids:?}");
    let labels: BTreeSet<&str> = found(html, "<label for=\"([^\"]*)\"").into_iter().collect();
    let controls = found(html, "<(?:input|select|textarea) ([^>]*)>");
    for control in controls.into_iter().filter(|control| !control.contains("type=\"hidden\"")) {
        let id = found(control, "id=\"([^\"]*)\"");
        assert!(id.first().is_some_and(|id| labels.contains(id)), "{path}: no label for {control}");
    }
    assert_eq!(found(html, "<(h1)>").len(), 1, "{path}");
    let links = found(html, "(?:href|action|src)=\"([^\"]*)\"").into_iter().map(decoded);
    // The console is not where the portal is.
    for link in links.filter(|link| !link.starts_with("https://quota.example.com/portal/")) {
        assert!(!link.starts_with('/') && !link.contains("//"), "{path}: {link} is not relative");
    }
}

/// The text of an attribute.
pub fn decoded(attribute: &str) -> String {
    let escape = Regex::new("&(?:#x([0-9a-f]+)|lt|gt|quot|amp);").expect("a pattern");
    let plain = |escape: &Captures<'_>| match &escape[0] {
        "&lt;" => '<',
        "&gt;" => '>',
        "&quot;" => '"',
        "&amp;" => '&',
        _ => u32::from_str_radix(&escape[1], 16).ok().and_then(char::from_u32).expect("a character"),
    };
    escape.replace_all(attribute, |escape: &Captures<'_>| plain(escape).to_string()).into_owned()
}

pub fn found<'a>(html: &'a str, pattern: &str) -> Vec<&'a str> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern.captures_iter(html).map(|found| found.get(1).expect("a group").as_str()).collect()
}
