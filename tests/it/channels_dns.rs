//! Names that nobody answers for, and lying name servers, on the test's own name server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::channels_email::{MAIL, config as mail_config};
use crate::channels_webhook::{error, inside, send_through};
use crate::support;
use crate::support::daemon::DaemonSetup;
use crate::support::name_server::{Knows, NameServer};
use crate::support::outbox::Outbox;
use crate::support::receivers::{Answer, HttpCatcher, SmtpCatcher, SmtpSetup};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;
use nix::sys::signal::Signal;
use quotabell::channels::email::{EmailConfig, Mailer};
use quotabell::channels::webhook::{WebhookClient, WebhookConfig};
use quotabell::types::OutcomeClass;
use tokio::task::JoinSet;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HERE_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// Public but never called, because a forbidden address accompanies it.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));
/// Number of hanging names. The former thread pool had 512 threads, and each name blocked one for half a minute.
const HANGING: usize = 100;

/// Names of `here.test` mean this machine, names of `nowhere.test` do not exist; others are not answered.
fn of_a_name(name: &str) -> Knows {
    match name {
        "here.test" => Knows::Addresses(vec![HERE]),
        "no-aaaa.test" => Knows::OneFamily(vec![HERE]),
        "no-a.test" => Knows::OneFamily(vec![HERE_V6]),
        "my_receiver.test" | "trailing_.test" | "_service.test" | "a_b" | "-dash-.test" => Knows::Addresses(vec![HERE]),
        "mixed.test" => Knows::Addresses(vec![HERE, PUBLIC]),
        "nowhere.test" => Knows::Nothing,
        _ => Knows::Silence,
    }
}

/// The name servers decide, for webhooks and email; addresses and this machine's own names need no query.
#[tokio::test]
async fn names_are_asked_for_and_addresses_are_not() {
    let names = NameServer::start(of_a_name).await;
    let client = WebhookClient::new(&inside(), &names.config()).expect("a client");
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let port = receiver.address().port();
    for host in ["here.test", "HERE.test", "here.test.", "127.0.0.1", "localhost"] {
        let outcome = send_through(&client, &format!("http://{host}:{port}/")).await;
        assert_eq!(outcome.class, OutcomeClass::Delivered, "{host}: {outcome:?}");
    }
    assert_eq!(names.asked().into_iter().collect::<Vec<_>>(), ["here.test"]);
    let nowhere = send_through(&client, "https://nowhere.test/").await;
    assert_eq!((nowhere.class, error(&nowhere)), (OutcomeClass::Transient, "DNS: no such host"));

    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let mailer = |host: &str| {
        let url = format!("smtp://{host}:{}", server.address().port());
        Mailer::new(&mail_config(&url), &names.config()).expect("a mailer")
    };
    let (known, unknown) = (mailer("here.test"), mailer("nowhere.test"));
    assert_eq!(known.send(MAIL).await.class, OutcomeClass::Delivered);
    server.next().await;
    let unknown = unknown.send(MAIL).await;
    assert_eq!((unknown.class, error(&unknown)), (OutcomeClass::Transient, "DNS: no such host"));
}

/// I6: a name of an internal address is refused like the address, even beside a public one.
#[tokio::test]
async fn a_name_of_a_blocked_address_is_never_called() {
    let names = NameServer::start(of_a_name).await;
    let config = WebhookConfig { allow_private_networks: false, ..inside() };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    for host in ["here.test", "mixed.test"] {
        let outcome = send_through(&client, &format!("http://{host}:{}/", receiver.address().port())).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Permanent, "blocked address (loopback)"), "{host}");
    }
    assert!(receiver.try_next().is_none());
}

/// A customer without name servers must not delay another customer's alert. Formerly each name blocked a thread.
#[tokio::test]
async fn names_that_hang_delay_nobody_else() {
    let mut names = NameServer::start(of_a_name).await;
    let config = WebhookConfig { timeout: Duration::from_secs(60), ..inside() };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    let mut hanging = JoinSet::new();
    for number in 0..HANGING {
        let client = client.clone();
        hanging.spawn(async move { send_through(&client, &format!("http://hangs-{number}.test/")).await });
    }
    names.was_asked_for(HANGING).await;
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    for host in ["127.0.0.1", "here.test", "localhost"] {
        let outcome = send_through(&client, &format!("http://{host}:{}/", receiver.address().port())).await;
        assert_eq!(outcome.class, OutcomeClass::Delivered, "{host}: {outcome:?}");
    }
    assert!(hanging.try_join_next().is_none(), "all of them still hang");
}

/// A name without an answer ends the attempt before its deadline, and the error names DNS: "deadline passed" would
/// point to the receiver.
#[tokio::test]
async fn a_name_that_hangs_is_an_error_of_dns() {
    let names = NameServer::start(of_a_name).await;
    let config = WebhookConfig { timeout: Duration::from_millis(600), ..inside() };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    let outcome = send_through(&client, "http://hangs.test/").await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "DNS: no answer"));

    let config = EmailConfig { timeout: Duration::from_millis(600), ..mail_config("smtp://hangs.test") };
    let outcome = Mailer::new(&config, &names.config()).expect("a mailer").send(MAIL).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "DNS: no answer"));
}

/// Some name servers never answer questions about IPv6. Their hosts used to be unreachable.
#[tokio::test]
async fn the_addresses_of_one_family_are_enough() {
    let names = NameServer::start(of_a_name).await;
    let client = WebhookClient::new(&inside(), &names.config()).expect("a client");
    for (host, address) in [("no-aaaa.test", HERE), ("no-a.test", HERE_V6)] {
        let receiver = HttpCatcher::start_on((address, 0).into(), |_| Answer::status(204)).await.expect("a receiver");
        let started = Instant::now();
        let outcome = send_through(&client, &format!("http://{host}:{}/", receiver.address().port())).await;
        assert_eq!(outcome.class, OutcomeClass::Delivered, "{host}: {outcome:?}");
        assert!(started.elapsed() < Duration::from_secs(3), "{host} took {:?}", started.elapsed());
    }
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let url = format!("smtp://no-aaaa.test:{}", server.address().port());
    let started = Instant::now();
    let outcome = Mailer::new(&mail_config(&url), &names.config()).expect("a mailer").send(MAIL).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered, "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(3), "the mail took {:?}", started.elapsed());
    server.next().await;
}

/// Docker Compose creates names with underscores. DNS allows every byte in a name.
#[tokio::test]
async fn names_that_are_no_host_names_are_asked_for() {
    let names = NameServer::start(of_a_name).await;
    let client = WebhookClient::new(&inside(), &names.config()).expect("a client");
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    for host in ["my_receiver.test", "trailing_.test", "_service.test", "a_b", "-dash-.test"] {
        let outcome = send_through(&client, &format!("http://{host}:{}/", receiver.address().port())).await;
        assert_eq!(outcome.class, OutcomeClass::Delivered, "{host}: {outcome:?}");
    }
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let url = format!("smtp://my_receiver.test:{}", server.address().port());
    let outcome = Mailer::new(&mail_config(&url), &names.config()).expect("a mailer").send(MAIL).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered, "{outcome:?}");
    server.next().await;
}

/// A drain must not wait for unanswered names until the orchestrator kills the daemon.
#[tokio::test]
async fn a_drain_and_a_second_signal_end_while_names_hang() {
    for (drain, code, said) in [("300ms", 0, "the drain's deadline passed"), ("10m", 1, "ended by a second signal")] {
        let mut names = NameServer::start(of_a_name).await;
        let outbox = Outbox::on(RedisServer::start());
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__DNS__SERVERS", &names.setting())
            .env("QUOTABELL__WEBHOOK__TIMEOUT", "10m")
            .env("QUOTABELL__SHUTDOWN__DRAIN", drain);
        let mut daemon = setup.start().await;
        for number in 0..HANGING {
            let name = format!("alice-{number}");
            let url = format!("http://hangs-{number}.test/");
            let contact = serde_json::json!([{"id": "c", "channel": "webhook", "url": url, "secret": secret(1)}]);
            outbox.set_contacts(&support::outbox::subject(&name), &contact.to_string()).await;
            let _: String = outbox.run("XADD", &["usage", "*", "subject", &name, "units", "4000"]).await;
        }
        names.was_asked_for(HANGING).await;
        daemon.signal(Signal::SIGTERM);
        daemon.says("draining").await;
        let ended = if code == 0 { daemon.ended().await } else { daemon.ended_by(Signal::SIGTERM).await };
        ended.expect_code(code, &[said]);
    }
}

/// The test does not call another machine by `http`: the public address is only named.
#[tokio::test]
async fn a_check_names_what_a_name_stands_for_and_calls_nobody() {
    let names = NameServer::start(of_a_name).await;
    let config = WebhookConfig { allow_private_networks: false, ..inside() };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    let receiver = HttpCatcher::start([Answer::status(200)]).await.expect("a receiver");
    let url = format!("http://here.test:{}/", receiver.address().port());
    assert_eq!(client.check(&url).await.class, OutcomeClass::Permanent);
    let unknown = client.check("http://nowhere.test/").await;
    assert_eq!((unknown.class, error(&unknown)), (OutcomeClass::Transient, "the name of its host is not resolved"));
}
