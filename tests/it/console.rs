//! The console on the real daemon, without a browser: who may see it, and what every page must have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::support::binary::quotabell;
use crate::support::books::raise;
use crate::support::console::{
    ADMIN, CHECK, HtmlForm, READ, SAME_ORIGIN, Visitor, decoded, forms, found, judge, with_tokens,
};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, alert, email, json as stored, outcome, settle, subject, webhook};
use quotabell::html::href::query_value;
use quotabell::outbox::Settlement;
use quotabell::types::OutcomeClass;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

/// The path below which a proxy serves the console.
const PREFIX: &str = "/ops/console";
const PAGES: [&str; 13] = [
    "/",
    "/near",
    "/top?by=used",
    "/subjects",
    "/subject?id=alice",
    "/alerts",
    "/deliveries",
    "/deliveries?state=dead",
    "/destinations",
    "/mutes",
    "/refused",
    "/system",
    "/log",
];
/// Names that are HTML, templates, paths, and marks that turn text around.
const HOSTILE: [&str; 5] =
    ["<script>alert(1)</script>", "{{ 7*7 }}{% raw %}", "a%2fb/../c?d=e&f#g", "\u{202e}evil", "'\"><b>"];

/// Something of everything that pages show.
async fn filled() -> Outbox {
    let outbox = Outbox::start();
    for name in HOSTILE.into_iter().chain(["alice", &"\u{1d54f}".repeat(64)]) {
        let raised = raise(&outbox.client, name, 80, 4200, 1000).await;
        outbox.set_contacts(&subject(name), &stored(&[email("a"), webhook("b")])).await;
        outbox.fan_out_new(&raised, &[email("a"), webhook("b")]).await;
    }
    for leased in outbox.lease("t", LONG).await.leased.into_iter().step_by(2) {
        let end = Settlement::Dead(outcome(OutcomeClass::Permanent));
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
    }
    outbox.fan_out_new(&alert(&subject("waits"), 80), &[]).await;
    let refused = outbox.keys.refused();
    let entry = [refused.as_str(), "*", "entry", "1-1", "reason", "bad_units", "detail", "no", "subject", HOSTILE[0]];
    let () = outbox.run("XADD", &entry).await;
    let muted = outbox.keys.subject(&subject(HOSTILE[1]));
    let () = outbox.run("HSET", &[muted.as_str(), "muted", "2100-01-01T00:00:00Z <b>moving</b>"]).await;
    outbox
}

/// Under a proxy's path, with names that are HTML, no link may lead nowhere and no page may break.
#[tokio::test]
async fn every_link_and_form_below_a_prefix_leads_to_a_page_that_is_well_formed() {
    let outbox = filled().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(ADMIN).await;
    let base = Url::parse(&format!("http://proxy.test{PREFIX}/")).expect("a URL");
    let (mut open, mut seen) = (vec![base.clone()], BTreeSet::new());
    let (mut first_page, mut assets, mut posts) = (0, 0, BTreeMap::new());
    while let Some(url) = open.pop() {
        if !seen.insert(url.clone()) {
            continue;
        }
        let path = url.path().strip_prefix(PREFIX).unwrap_or_else(|| panic!("{url} leaves the prefix")).to_owned();
        let target = url.query().map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        let answer = visitor.get(&target).await;
        if answer.status == 303 {
            open.push(url.join(answer.header("location")).expect("a URL"));
            continue;
        }
        assert_eq!(answer.status, 200, "{url}: {}", answer.text);
        if path.starts_with("/assets/") {
            assert!(answer.header("cache-control").contains("immutable"));
            assets += answer.text.len();
            continue;
        }
        if path == "/near.csv" {
            assert!(
                answer.text.starts_with("subject,plan,metric,") && answer.text.contains("\r\nalice,"),
                "{}",
                answer.text
            );
            continue;
        }
        judge(&target, &answer);
        if target == "/" {
            first_page = answer.text.len();
        }
        for link in found(&answer.text, "href=\"([^\"]*)\"").into_iter().map(decoded) {
            let mut target = url.join(&link).expect("a URL");
            target.set_fragment(None);
            open.push(target);
        }
        for form in forms(&answer.text) {
            if form.is_post {
                posts.entry(url.join(&form.action).expect("a URL")).or_insert(form);
                continue;
            }
            // A list of buttons, or one without a name.
            let actions = form.actions.iter().map(|action| vec![("do", action.as_str())]).collect::<Vec<_>>();
            for action in if actions.is_empty() { vec![vec![]] } else { actions } {
                let mut target = url.join(&form.action).expect("a URL");
                target.set_query(Some(&form.body(&action)));
                open.push(target);
            }
        }
    }
    // The first page must be quick on a slow line.
    assert!(assets < 40_000 && first_page + assets < 60_000, "{first_page} and {assets} bytes");
    // Forms change what pages show, so they are sent in the end: the one that logs out is the last.
    assert!(posts.len() >= 8, "{:?}", posts.keys());
    let ends = |(target, _): &(Url, HtmlForm)| target.path().ends_with("/logout");
    let (last, posts): (Vec<_>, Vec<_>) = posts.into_iter().partition(ends);
    let mut done = 0;
    for (target, form) in posts.into_iter().chain(last) {
        let path = target.path().strip_prefix(PREFIX).unwrap_or_else(|| panic!("{target} leaves the prefix"));
        let action = form.actions.first().map(|action| ("do", action.as_str()));
        let answer = visitor.send("POST", path, &SAME_ORIGIN, &form.body(action.as_slice())).await;
        if answer.status == 303 {
            let next = target.join(answer.header("location")).expect("a URL");
            let path = next.as_str().strip_prefix(base.as_str()).unwrap_or_else(|| panic!("{next} leaves the prefix"));
            let page = visitor.get(&format!("/{path}")).await;
            assert_eq!(page.status, 200, "{target} leads to {next}: {}", page.text);
            judge(path, &page);
            done += 1;
            continue;
        }
        assert!([400, 401, 409].contains(&answer.status), "{target}: {} {}", answer.status, answer.text);
        judge(path, &answer);
        for link in found(&answer.text, "(?:href|action)=\"([^\"]*)\"").into_iter().map(decoded) {
            let link = target.join(&link).expect("a URL");
            assert!(link.path().starts_with(base.path()), "{target} leads to {link}");
        }
    }
    assert!(done >= 5, "only {done} forms did something");
    let subjects = seen.iter().filter(|url| url.path().ends_with("/subject")).count();
    assert!(subjects >= HOSTILE.len() + 3, "only {subjects} subjects were found");
    assert!(seen.iter().filter(|url| url.path().ends_with("/delivery")).count() > 10);
    daemon.drain().await;
}

/// A page that nobody has changed must not be sent again every three seconds.
#[tokio::test]
async fn only_a_changed_page_is_sent_again() {
    let outbox = filled().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    for page in ["/near", "/alerts", "/deliveries", "/mutes", "/log", "/settings?id=alice"] {
        let first = admin.get(page).await;
        let time = first.header("quotabell-time").to_owned();
        let as_of = format!("<time id=\"as-of\" datetime=\"{time}\"");
        assert!(decoded(&first.text).contains(&as_of), "{page}: {as_of}");
        let again = admin.send("GET", page, &[("if-none-match", first.header("etag"))], "").await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{page}");
        assert!(again.header("content-security-policy").starts_with("default-src 'none'"));
        let other = admin.send("GET", page, &[("if-none-match", "\"0\"")], "").await;
        assert_eq!((other.status, other.header("etag")), (200, first.header("etag")), "{page}");
    }
    let before = admin.get("/mutes").await;
    let key = outbox.keys.subject(&subject("alice"));
    let () = outbox.run("HSET", &[key.as_str(), "muted", "true"]).await;
    // Redis reports the change a moment later.
    let changed = eventually("a page with the mute", || async {
        let changed = admin.send("GET", "/mutes", &[("if-none-match", before.header("etag"))], "").await;
        (changed.status != 304).then_some(changed)
    })
    .await;
    assert!(changed.status == 200 && changed.text.contains("alice"), "{}", changed.text);
    // The table of the hours has what the lists have.
    let overview = admin.get("/").await;
    let hours = found(&overview.text, "(?s)<summary>As a table</summary>(.*?)</table>");
    let numbers = found(hours[0], "<td class=\"number\">([0-9,]+)</td>");
    let dead = outbox.run::<u64>("ZCARD", &[outbox.keys.dead().as_str()]).await.to_string();
    assert_eq!(numbers.last(), Some(&dead.as_str()), "{}", hours[0]);
    daemon.drain().await;
}

/// A page that leaks to somebody without the right token would show every customer.
#[tokio::test]
async fn only_a_token_that_may_read_opens_pages() {
    let outbox = filled().await;
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let nobody = Visitor::new(address);
    let below = nobody.get("/subject/alice").await;
    assert_eq!((below.status, below.header("location")), (303, "../login"));
    let (read, admin) = (Visitor::new(address).log_in(READ).await, Visitor::new(address).log_in(ADMIN).await);
    for page in PAGES {
        let answer = nobody.get(page).await;
        let login = if page == "/" { "login".to_owned() } else { format!("login?next={}", query_value(&page[1..])) };
        assert_eq!((answer.status, answer.header("location"), answer.text.as_str()), (303, &*login, ""), "{page}");
        for visitor in [&read, &admin] {
            let answer = visitor.get(page).await;
            assert_eq!(answer.status, 200, "{page}: {}", answer.text);
            judge(page, &answer);
        }
    }
    let dead = admin.get("/deliveries?state=dead").await;
    let id = found(&dead.text, "delivery\\?id=(delivery_[0-9a-f]{32})")[0];
    for page in [format!("/delivery?id={id}"), "/assets/x.css".to_owned(), "/nothing".to_owned()] {
        assert_ne!(nobody.get(&page).await.status, 200, "{page}");
    }
    assert_eq!(admin.get("/nothing").await.status, 404);
    for (page, status, way_on) in [("/subject/alice", 404, "../"), ("/contacts", 405, "")] {
        let answer = admin.get(page).await;
        judge(page, &answer);
        assert_eq!(answer.status, status, "{page}");
        for link in [format!("href=\"{way_on}./\""), format!("href=\"{way_on}assets/")] {
            assert!(decoded(&answer.text).contains(&link), "{page} has no {link}: {}", answer.text);
        }
    }
    let form = nobody.get("/login").await;
    judge("/login", &form);
    let same = [("sec-fetch-site", "same-origin")];
    for (token, status) in [("wrong-0123456789abcdef", 401), (CHECK, 403), ("", 401)] {
        let answer = nobody.send("POST", "/login", &same, &format!("token={token}&")).await;
        assert_eq!((answer.status, answer.header("set-cookie")), (status, ""), "{token}");
        judge("/login", &answer);
    }
    // What no page sends is answered with a page, too.
    let (twice, large) = (format!("token={READ}&token={READ}&next=x&next=y"), "x".repeat(70_000));
    assert_eq!(nobody.send("POST", "/login", &same, &twice).await.status, 303);
    let large = nobody.send("POST", "/login", &same, &large).await;
    for (page, answer, status, way_on) in
        [("/login", large, 413, ""), ("/assets/x.css", nobody.get("/assets/x.css").await, 404, "../")]
    {
        judge(page, &answer);
        let way_on = format!("<a href=\"{way_on}./\">Overview</a>");
        assert!(answer.status == status && decoded(&answer.text).contains(&way_on), "{page}: {}", answer.text);
    }
    // A visitor who followed a link while logged out gets to that page, and not to another site.
    let login = nobody.get("/near?percent=80&window=day").await.header("location").to_owned();
    let form = forms(&nobody.get(&format!("/{login}")).await.text).remove(0);
    for (next, page) in [(None, "./near?percent=80&window=day"), (Some("//evil.test"), "./"), (Some("x?\r\ny"), "./")] {
        let fields: Vec<_> = [("token", READ)].into_iter().chain(next.map(|next| ("next", next))).collect();
        let answer = nobody.post(&form, &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, page), "{next:?}");
    }
    for (page, status) in
        [("/near?percent=0", 400), ("/alerts?after=x", 400), ("/subject?id=", 400), ("/delivery?id=x", 400)]
    {
        let answer = read.get(page).await;
        assert_eq!(answer.status, status, "{page}: {}", answer.text);
        judge(page, &answer);
        assert!(decoded(&answer.text).contains("<a href=\"./\">Overview</a>"), "a way on: {}", answer.text);
    }
    // A mistake in one field must not cost the others, nor the way to other pages.
    for (page, wrong, said) in [
        ("near", "percent=0", "At least, %: "),
        (
            "alerts",
            "since=2026-11-31",
            "Since: must be a date (midnight in UTC), such as 2026-11-21, or a time, such as",
        ),
        ("deliveries", "since=1h", "Since: must be a date"),
        ("top", "by=used&period=lately", "Period: "),
    ] {
        let answer = read.get(&format!("/{page}?metric=tokens&subject=alice&{wrong}")).await;
        judge(page, &answer);
        assert!(answer.status == 400 && answer.text.contains(said), "{page}: {}", answer.text);
        let filter = forms(&answer.text).into_iter().find(|form| form.action == page).expect("the filter");
        let (name, value) = wrong.rsplit_once('&').map_or(wrong, |(_, last)| last).split_once('=').expect("a field");
        assert!(filter.fields.contains(&(name.to_owned(), value.to_owned())), "{:?}", filter.fields);
        let kept = if page == "deliveries" { ("subject", "alice") } else { ("metric", "tokens") };
        assert!(filter.fields.contains(&(kept.0.to_owned(), kept.1.to_owned())), "{:?}", filter.fields);
        assert!(answer.text.contains("aria-label=\"Pages\"") && !answer.text.contains("data-refresh"));
    }
    // A time as a row shows it is one for the filter.
    for (page, names) in [("/alerts", "since"), ("/deliveries", "since"), ("/deliveries", "before")] {
        let rows = read.get("/alerts").await.text;
        let shown = found(&rows, "<td class=\"short\"><time [^>]*>([^<]*)</time>")[0];
        for time in ["2026-11-21", "2026-11-21T08:37:00+07:00", shown] {
            let answer = read.get(&format!("{page}?{names}={}", query_value(time))).await;
            assert_eq!(answer.status, 200, "{page} {names}={time}: {}", answer.text);
        }
    }
    // Logging out forgets the cookie.
    let out = admin.send("POST", "/logout", &same, "").await;
    assert!(out.status == 303 && out.header("set-cookie").contains("quotabell_console=; Max-Age=0"));
    daemon.drain().await;
}

/// A login that works twice, or is spent by a program that looks at links, would let others in or keep people out.
#[tokio::test]
async fn the_command_prints_a_login_that_works_once() {
    let outbox = Outbox::start();
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let command = || quotabell(["console"]).redis(&outbox.server.url());
    let printed = command().env("QUOTABELL__CONSOLE__LISTEN", address.to_string()).run().expect_done();
    let url = Url::parse(printed.trim()).expect("a URL");
    assert_eq!((url.host_str(), url.port(), url.path()), (Some("127.0.0.1"), Some(address.port()), "/login"));
    // In a container.
    let of_all = command().env("QUOTABELL__CONSOLE__LISTEN", "0.0.0.0:9465").run().expect_done();
    assert!(of_all.starts_with("http://localhost:9465/login?"), "{of_all}");
    let (mut visitor, target) = (Visitor::new(address), format!("/login?{}", url.query().expect("a secret")));
    for _ in 0..2 {
        let form = visitor.get(&target).await;
        judge(&target, &form);
        assert!(form.status == 200 && form.text.contains("<button>Log in for 12 hours</button>"), "{}", form.text);
    }
    let (body, same) = (url.query().expect("a secret"), [("sec-fetch-site", "same-origin")]);
    let answer = visitor.send("POST", "/login", &same, body).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    visitor.cookie = answer.header("set-cookie").split(';').next().map(str::to_owned);
    let overview = visitor.get("/").await;
    assert!(overview.status == 200 && overview.text.contains("one-use login (admin)"), "{}", overview.text);
    let again = visitor.send("POST", "/login", &same, body).await;
    assert_eq!((again.status, again.header("set-cookie")), (401, ""), "{}", again.text);
    assert_eq!([opens("", &outbox, address).await, opens(":0", &outbox, address).await], [false, true]);
    let elsewhere = command().env("QUOTABELL__CONSOLE__PUBLIC_URL", "https://quota.test/ops").run().expect_done();
    assert!(elsewhere.starts_with("https://quota.test/ops/login?login="), "{elsewhere}");
    let off = command().env("QUOTABELL__CONSOLE__LISTEN", "off").run();
    assert!(off.code == 1 && off.stderr.contains("the console is off"), "{}", off.told());
    daemon.drain().await;
}

/// Whether the command, run in a terminal, starts the browser of this display with a login.
async fn opens(display: &str, outbox: &Outbox, address: SocketAddr) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (browser, opened) = (folder.path().join("xdg-open"), folder.path().join("opened"));
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$1\" >{}.new; mv {0}.new {0}\n", opened.display()))
        .expect("writable");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).expect("its own file");
    let path = std::env::var("PATH").expect("a PATH");
    let ran = Command::new("script")
        .args(["-qec", &format!("{} console", env!("CARGO_BIN_EXE_quotabell")), "/dev/null"])
        .env_remove("WAYLAND_DISPLAY")
        .env("DISPLAY", display)
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("QUOTABELL__REDIS__URL", outbox.server.url())
        .env("QUOTABELL__CONSOLE__LISTEN", address.to_string())
        .output();
    let told = String::from_utf8_lossy(&ran.expect("script of bsdutils").stdout).into_owned();
    if !told.contains("the browser opens it") {
        assert!(told.contains("/login?login="), "{told}");
        return false;
    }
    let url = eventually("the browser is started", || async { std::fs::read_to_string(&opened).ok() }).await;
    assert!(told.contains(url.trim()), "{told}");
    true
}

/// Another website must not read the console by a name that leads here or act in it, and nobody may forge a session.
#[tokio::test]
async fn forged_hosts_origins_and_cookies_are_refused() {
    let outbox = Outbox::start();
    let (daemon, address, folder) = with_tokens(&outbox).await;
    let admin = Visitor::new(address).log_in(ADMIN).await;
    let cookie = admin.cookie.clone().expect("a session");
    for (host, status) in [
        ("127.0.0.1", 200),
        ("localhost:9465", 200),
        ("[::1]:1", 200),
        ("evil.test", 421),
        ("127.0.0.1.evil.test", 421),
        ("10.0.0.1:9465", 421),
        ("localhost.evil.test", 421),
    ] {
        assert_eq!(admin.send("GET", "/", &[("host", host)], "").await.status, status, "{host}");
    }
    let own = address.to_string();
    let origin = format!("http://{own}");
    for (headers, status) in [
        (vec![("sec-fetch-site", "same-origin")], 303),
        (vec![("origin", origin.as_str())], 303),
        (vec![], 403),
        (vec![("sec-fetch-site", "cross-site"), ("origin", origin.as_str())], 403),
        (vec![("sec-fetch-site", "same-site")], 403),
        (vec![("sec-fetch-site", "none")], 403),
        (vec![("origin", "http://evil.test")], 403),
        (vec![("origin", "null")], 403),
    ] {
        assert_eq!(admin.send("POST", "/logout", &headers, "").await.status, status, "{headers:?}");
    }
    let (name, value) = cookie.split_once('=').expect("a pair");
    let parts: Vec<&str> = value.split('.').collect();
    let read = Visitor::new(address).log_in(READ).await.cookie.expect("a session");
    let of_read: Vec<String> = read.split_once('=').expect("a pair").1.split('.').map(str::to_owned).collect();
    for forged in [
        String::new(),
        value[..value.len() - 1].to_owned(),
        format!("{value}A"),
        [parts[0], parts[1], "9999999999999", parts[3]].join("."),
        ["admin", &of_read[1], &of_read[2], &of_read[3]].join("."),
        [parts[0], parts[1], parts[2], &of_read[3]].join("."),
        [parts[0], parts[1], parts[2]].join("."),
    ] {
        let visitor = Visitor { cookie: Some(format!("{name}={forged}")), ..Visitor::new(address) };
        assert_eq!(visitor.get("/").await.header("location"), "login", "{forged}");
    }
    assert_eq!(admin.get("/").await.status, 200, "still logged in");
    // A session ends with its token, and with the key.
    std::fs::write(folder.path().join("admin"), "another-0123456789abcdef").expect("writable");
    let mut daemon = daemon;
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.says("reload").await;
    eventually("the session has ended", || async { (admin.get("/").await.status == 303).then_some(()) }).await;
    let viewer = Visitor::new(address).log_in(READ).await;
    let () = outbox.run("DEL", &[outbox.keys.console_key().as_str()]).await;
    assert_eq!(viewer.get("/").await.status, 303);
    daemon.drain().await;
}

/// Without a token the console is for this machine, and it must never stop a daemon.
#[tokio::test]
async fn without_a_token_this_machine_may_look_and_a_taken_port_is_only_a_warning() {
    let outbox = filled().await;
    let setup = DaemonSetup::on(&outbox.server.url()).argument("--no-send");
    let proxied = setup.clone().env("QUOTABELL__CONSOLE__PUBLIC_URL", "https://quota.example.com/");
    let mut first = setup.clone().env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0").start().await;
    let address = first.console().await;
    let visitor = Visitor::new(address);
    for page in PAGES {
        let answer = visitor.get(page).await;
        assert_eq!(answer.status, 200, "{page}: {}", answer.text);
        judge(page, &answer);
    }
    assert!(visitor.get("/").await.text.contains("<a href=\"login\">Log in</a>"), "a way to log in");
    assert!(visitor.get("/login").await.text.contains("No token is configured"));
    let taken = setup.clone().env("QUOTABELL__CONSOLE__LISTEN", &address.to_string()).start().await;
    assert!(taken.has_said("the console can't listen and is off"));
    taken.drain().await;
    let mut open = setup.env("QUOTABELL__CONSOLE__LISTEN", "0.0.0.0:0").start().await;
    let port = open.console().await.port();
    let refused = Visitor::new(SocketAddr::from(([127, 0, 0, 1], port))).get("/").await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("Without a token the console is only for this machine"), "{}", refused.text);
    open.drain().await;
    let mut proxied = proxied.env("QUOTABELL__CONSOLE__LISTEN", "127.0.0.1:0").start().await;
    let visitor = Visitor::new(proxied.console().await);
    let refused = visitor.send("GET", "/", &[("host", "quota.example.com")], "").await;
    assert_eq!(refused.status, 403, "a proxy passes on what comes from elsewhere: {}", refused.text);
    proxied.drain().await;
    first.drain().await;
}

/// Slow bodies must not hold the connections of everybody else.
#[tokio::test]
async fn a_form_that_does_not_arrive_is_given_up() {
    let outbox = Outbox::start();
    let (daemon, address, _folder) = with_tokens(&outbox).await;
    let visitor = Visitor::new(address).log_in(ADMIN).await;
    let cookie = visitor.cookie.expect("a session");
    let head = format!(
        "POST /mute HTTP/1.1\r\nhost: {address}\r\nsec-fetch-site: same-origin\r\ncookie: {cookie}\r\n\
         content-length: 100\r\n\r\ndo="
    );
    let mut slow = TcpStream::connect(address).await.expect("connected");
    slow.write_all(head.as_bytes()).await.expect("written");
    let mut first = [0; 13];
    slow.read_exact(&mut first).await.expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 408 ");
    daemon.drain().await;
}
