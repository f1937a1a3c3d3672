//! I6 with a corpus: hundreds of hostile URLs and DNS answers, and a listener that must not be reached.
//!
//! Each is checked as in `check-config` and sent to as for an alert.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::channels_webhook::{error, inside, send_through};
use crate::support::name_server::{Knows, NameServer};
use crate::support::receivers::{Answer, HttpCatcher};
use quotabell::channels::DnsConfig;
use quotabell::channels::webhook::{WebhookClient, WebhookConfig};
use quotabell::types::OutcomeClass;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Minimum number of hostile URLs and DNS answers.
const CORPUS_MIN: usize = 500;
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Never connected to: each accompanies or contains a forbidden address.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 41, 0, 4);

/// IPv4 addresses that no webhook may call.
const FORBIDDEN: [Ipv4Addr; 16] = [
    LOOPBACK,
    Ipv4Addr::new(127, 255, 255, 254),
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(100, 64, 0, 1),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(172, 16, 0, 1),
    Ipv4Addr::new(172, 31, 255, 255),
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 168, 1, 1),
    Ipv4Addr::new(198, 18, 0, 1),
    Ipv4Addr::new(203, 0, 113, 9),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(255, 255, 255, 255),
];

/// IPv6 addresses that no webhook may call and that contain no IPv4 address.
const FORBIDDEN_V6: [&str; 18] = [
    "::",
    "::1",
    "0:0:0:0:0:0:0:1",
    "0000::0001",
    "100::1",
    "2001:db8::1",
    "2001:10::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "8000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fdff:ffff::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
];

/// The spellings of this address as a host.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let bits = u32::from(address);
    let (low24, low16) = (bits & 0xff_ffff, bits & 0xffff);
    let digits = |text: &str, zero: u32| -> String {
        let other = |letter: char| letter.to_digit(10).and_then(|digit| char::from_u32(zero + digit)).unwrap_or(letter);
        text.chars().map(other).collect()
    };
    let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let dotted = address.to_string();
    vec![
        dotted.clone(),
        format!("{dotted}."),
        bits.to_string(),
        format!("0x{bits:x}"),
        format!("0X{bits:08X}"),
        format!("0{bits:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.0{b:o}.{c}.0x{d:X}"),
        format!("{a}.{low24}"),
        format!("{a}.{b}.{low16}"),
        format!("0x{a:x}.{low24}"),
        format!("{a}.0{b:o}.0x{low16:x}"),
        percent(&dotted),
        percent(&bits.to_string()),
        digits(&dotted, 0xff10),
        digits(&dotted, 0x1d7ce),
        dotted.replace('.', "\u{3002}"),
        dotted.replace('.', "\u{ff0e}"),
        dotted.replace('.', "\u{ff61}"),
        digits(&dotted, 0xff10).replace('.', "\u{3002}"),
        dotted.replacen('.', "%2e", 1),
        dotted.replacen('.', "\u{ad}.", 1),
        dotted.replacen('.', "\u{200b}.", 1),
        dotted.replacen('.', "\t.", 1),
        dotted.replacen('.', "\n.", 1),
    ]
}

/// The IPv6 addresses that lead to this one: mapped, compatible, translated, tunneled.
fn carriers(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let bits = u128::from(u32::from(address));
    let below = |prefix: &str| Ipv6Addr::from(u128::from(prefix.parse::<Ipv6Addr>().expect("an address")) | bits);
    vec![
        address.to_ipv6_mapped(),
        below("::"),
        below("64:ff9b::"),
        below("64:ff9b:1::"),
        below("2001::"),
        Ipv6Addr::from(0x2002_u128 << 112 | bits << 80),
        below("fe80::5efe:0:0"),
    ]
}

/// URLs that people or other parsers read differently from our parser.
fn disguises(port: u16) -> Vec<String> {
    let here = format!("127.0.0.1:{port}");
    vec![
        format!("http://example.com@{here}/"),
        format!("http://example.com:80@{here}/"),
        format!("http://@{here}/"),
        format!("http://:@{here}/"),
        format!("http://%40{here}/"),
        format!("http://{here}\\@example.com/"),
        format!("http:\\\\{here}\\hook"),
        format!("http:/{here}/"),
        format!("http:{here}/"),
        format!("http:////{here}/"),
        format!("  http://{here}/  "),
        format!("ht\ntp://{here}/"),
        format!("HTTP://{here}/"),
        format!("http://{here}#@example.com/"),
        format!("http://{here}?@example.com/"),
        format!("http://[::ffff:7f00:1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/"),
        format!("http://[::1%25lo]:{port}/"),
        format!("http://[::1%lo]:{port}/"),
        format!("http://[fe80::1%25eth0]:{port}/"),
        format!("http://[::1]x:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://LOCALHOST:{port}/"),
        format!("http://localhost.:{port}/"),
        format!("http://a.localhost:{port}/"),
        format!("http://ⓛocalhost:{port}/"),
        format!("http://{here}:0/"),
        format!("http://127.0.0.1:0{port}/"),
        format!("ftp://{here}/"),
        format!("gopher://{here}/_POST"),
        format!("file://{here}/etc/passwd"),
        "file:///etc/passwd".to_owned(),
        format!("ws://{here}/"),
        format!("redis://{here}/"),
        format!("data:text/plain,{here}"),
        format!("//{here}/"),
        format!("{here}/"),
        String::new(),
    ]
}

/// The addresses of names: an address alone, behind a public one, before it, and among others.
fn answers() -> Vec<Vec<IpAddr>> {
    let public = IpAddr::V4(PUBLIC);
    let v6 = FORBIDDEN_V6.iter().map(|text| text.parse::<IpAddr>().expect("an address"));
    let carried = FORBIDDEN.into_iter().flat_map(carriers).map(IpAddr::V6);
    let forbidden = FORBIDDEN.into_iter().map(IpAddr::V4).chain(v6).chain(carried);
    forbidden.flat_map(|bad| [vec![bad], vec![bad, public], vec![public, bad]]).collect()
}

/// Nothing connects to an internal address, however it is spelled, wrapped, resolved or hidden.
#[tokio::test]
async fn hostile_urls_and_dns_answers_reach_nobody() {
    let answers = answers();
    let known = answers.clone();
    let names = NameServer::start(move |name| {
        let number =
            name.strip_prefix('n').and_then(|name| name.strip_suffix(".test")).and_then(|name| name.parse().ok());
        number
            .and_then(|number: usize| known.get(number))
            .map_or(Knows::Nothing, |known| Knows::Addresses(known.clone()))
    })
    .await;
    let config = WebhookConfig { allow_private_networks: false, ..inside() };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    // On all addresses of this machine.
    let everywhere = (Ipv4Addr::UNSPECIFIED, 0).into();
    let mut receiver = HttpCatcher::start_on(everywhere, |_| Answer::status(204)).await.expect("a receiver");
    let port = receiver.address().port();

    let spelled = FORBIDDEN.into_iter().flat_map(spellings);
    let carried = FORBIDDEN.into_iter().flat_map(carriers).map(|address| format!("[{address}]"));
    let six = FORBIDDEN_V6.iter().map(|address| format!("[{address}]"));
    let named = (0..answers.len()).map(|number| format!("n{number}.test"));
    let hosts = spelled.chain(carried).chain(six).chain(named);
    let corpus: BTreeSet<String> =
        hosts.map(|host| format!("http://{host}:{port}/hook")).chain(disguises(port)).collect();
    assert!(corpus.len() >= CORPUS_MIN, "{} of them", corpus.len());
    for url in corpus {
        let judged = client.check(&url).await;
        assert_eq!(judged.class, OutcomeClass::Permanent, "{url:?}: {judged:?}");
        let sent = send_through(&client, &url).await;
        assert_eq!(sent.class, OutcomeClass::Permanent, "{url:?}: {sent:?}");
        assert!(!error(&sent).contains("127"), "{url:?}: {sent:?}");
    }
    assert!(receiver.try_next().is_none(), "nobody was called");
}

/// No redirect is followed.
#[tokio::test]
async fn redirects_to_the_inside_reach_nobody() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let client = WebhookClient::new(&inside(), &DnsConfig::default()).expect("a client");
    for status in [301, 302, 303, 307, 308] {
        let answer = Answer::status(status).header("location", &receiver.url("/inside"));
        let front = HttpCatcher::start([answer]).await.expect("a receiver");
        assert_eq!(send_through(&client, &front.url("/")).await.class, OutcomeClass::Transient, "{status}");
    }
    assert!(receiver.try_next().is_none());
}

/// A name that resolves to a receiver first and to an internal address later (DNS rebinding): the checked address is
/// the called one, at every attempt.
#[tokio::test]
async fn a_name_that_changes_between_look_ups_reaches_nobody() {
    const ATTEMPTS: usize = 60;
    /// An external receiver.
    const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    let mut inner = HttpCatcher::start([]).await.expect("a receiver");
    let port = inner.address().port();
    let outer = HttpCatcher::start_on((ALLOWED, port).into(), |_| Answer::status(204)).await.expect("another");
    let mut random = StdRng::seed_from_u64(9);
    let names = NameServer::start(move |_| {
        Knows::Addresses(vec![if random.random_bool(0.5) { LOOPBACK.into() } else { ALLOWED.into() }])
    })
    .await;
    let allowed_networks = vec![format!("{ALLOWED}/32").parse().expect("a network")];
    let config = WebhookConfig { allow_private_networks: false, allowed_networks, ..inside() };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    let mut delivered = 0;
    for number in 0..ATTEMPTS {
        // The same name at each attempt, and one that was checked separately before.
        let url = format!("http://rebinds.test:{port}/{number}");
        let _ = client.check(&url).await;
        let outcome = send_through(&client, &url).await;
        match outcome.class {
            OutcomeClass::Delivered => delivered += 1,
            _ => assert_eq!(error(&outcome), "blocked address (loopback)", "{outcome:?}"),
        }
    }
    assert!(delivered > 0 && delivered < ATTEMPTS, "{delivered} of {ATTEMPTS} were delivered: both must be met");
    assert!(inner.try_next().is_none(), "nobody inside was called");
    drop(outer);
}
