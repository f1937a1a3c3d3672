//! Verification of email contacts on the real binary: no alert before consent, and only the reader of the mailbox can
//! consent.

use std::collections::BTreeSet;

use crate::support::api::Answer;
use crate::support::contacts_api::{ContactsApi, VerificationMail, wrong};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::subject;
use crate::support::receivers::{Phase, Reply, Times};
use nix::sys::signal::Signal;
use quotabell::contacts::Contact;
use quotabell::types::{Channel, DeliveryId, Keys};
use serde_json::{Value, json};

/// The whole promise: nothing before consent, and afterwards also the waiting alerts.
#[tokio::test]
async fn an_address_gets_alerts_once_its_code_was_shown_and_none_before() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    assert_eq!((mail.to.as_str(), mail.text.contains("alice")), ("alice@b.test", true));
    assert!(mail.html.contains(&mail.code) && mail.text.contains("10 minutes"), "{}", mail.text);
    assert!(!api.is_verified("alice", &id).await);

    api.use_units("alice", 80).await;
    api.daemon.says("no contact is known").await;
    api.submit_code("alice", &id, wrong(&mail.code)).await.expect_problem(403, "ask for another");
    assert!(!api.is_verified("alice", &id).await);

    let shown = api.submit_code("alice", &id, &mail.code).await;
    assert_eq!((shown.status, shown.json()), (200, json!({"id": id, "verified": true})));
    assert!(api.is_verified("alice", &id).await);
    // The first email after the request: none came before.
    assert_eq!(api.next_alert().await, "alice@b.test");
    api.use_units("alice", 20).await;
    assert_eq!(api.next_alert().await, "alice@b.test");

    api.submit_code("alice", &id, &mail.code).await.expect_problem(409, "verified already");
    api.counted("sent", 1).await;
    api.counted("verified", 1).await;
    api.counted("rejected", 1).await;
    api.daemon.drain().await;
}

/// Mail software opens every link: only the button may count, and pressing it twice must show success.
#[tokio::test]
async fn a_confirm_link_shows_a_page_and_its_button_verifies_once() {
    let mut api = ContactsApi::start().await;
    let odd = "%3Cb%3E%22%26";
    let id = api.add_email(odd, "alice@b.test").await;
    let mail = api.next_verification().await;
    assert!(mail.html.contains("&lt;b&gt;&quot;&amp;") && !mail.html.contains("<b>\""), "{}", mail.html);
    let path = mail.path.expect("a link");
    assert_eq!(path.len(), "/confirm/".len() + 43, "256 bits: {path}");

    for method in ["GET", "HEAD", "GET"] {
        let page = api.caller.send(method, &path, &[], "").await;
        assert_eq!(page.status, 200);
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'nonce-"), "{policy}");
        assert!(policy.contains("form-action 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    }
    let other = api.caller.get("/confirm/nobodys").await;
    let without_nonce = |page: &Answer| page.text.split("nonce=").map(|part| part[34..].to_owned()).collect::<Vec<_>>();
    assert_eq!(without_nonce(&other)[1..], without_nonce(&api.caller.get(&path).await)[1..], "a page tells a token");
    assert!(!api.is_verified("<b>\"&", &id).await, "looking at it changed something");

    let done = api.caller.send("POST", &path, &[("content-type", "application/x-www-form-urlencoded")], "").await;
    assert_eq!(done.status, 200, "{}", done.text);
    assert!(done.text.contains("Confirmed") && done.text.contains("&lt;b&gt;&quot;&amp;"), "{}", done.text);
    assert!(!done.text.contains("<b>\""), "{}", done.text);
    assert!(api.is_verified("<b>\"&", &id).await);

    for used in [path.as_str(), "/confirm/nobodys"] {
        let again = api.caller.send("POST", used, &[], "").await;
        assert_eq!(again.status, 410);
        assert!(again.text.contains("used already, or has run out"), "{}", again.text);
    }
    api.daemon.drain().await;
}

/// A million guesses would find six digits: five are allowed, and another email restarts with another code.
#[tokio::test]
async fn after_five_wrong_guesses_the_right_code_is_refused_too() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let first = api.next_verification().await;
    let wrong = wrong(&first.code);
    for _ in 0..5 {
        api.submit_code("alice", &id, wrong).await.expect_problem(403, "ask for another");
    }
    let refused = api.submit_code("alice", &id, &first.code).await;
    assert_eq!(refused.text, api.submit_code("alice", &id, wrong).await.text, "an answer tells the right code");
    assert!(!api.is_verified("alice", &id).await);

    assert_eq!(api.request_verification("alice", &id).await.status, 202);
    let second = api.next_verification().await;
    if second.code != first.code {
        api.submit_code("alice", &id, &first.code).await.expect_problem(403, "ask for another");
    }
    assert_eq!(api.submit_code("alice", &id, &second.code).await.status, 200);
    api.daemon.drain().await;
}

/// Nobody may fill another person's mailbox: not by repeated requests, by removing and adding, by changed letters or by
/// other subjects.
#[tokio::test]
async fn an_address_is_asked_so_often_and_no_more() {
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    let id = api.add_email("alice", "victim@b.test").await;
    api.next_verification().await;
    assert_eq!(api.request_verification("alice", &id).await.status, 202);
    api.next_verification().await;
    let full = api.request_verification("alice", &id).await;
    full.expect_problem(429, "too often");
    // One kind of problem has one title (RFC 9457 3.1.3), also for checks.
    assert_eq!(full.json()["title"], "Request cannot be satisfied as assigned quota has been exceeded");
    let seconds: u64 = full.header("retry-after").expect("when").parse().expect("seconds");
    assert!((3500..=3600).contains(&seconds), "{seconds}");

    api.remove_existing("alice", &id).await;
    for (of, address) in [("alice", "victim@b.test"), ("bob", "victim@b.test"), ("carol", "Victim@B.test")] {
        let answer = api.try_add(of, &json!({"channel": "email", "address": address})).await;
        answer.expect_problem(429, "too often");
        assert!(api.contacts(of).await.is_empty(), "what was refused was written");
    }
    api.counted("throttled", 4).await;
    // Others are not delayed, and the victim got nothing more.
    api.add_email("alice", "other@b.test").await;
    assert_eq!(api.next_verification().await.to, "other@b.test");
    api.daemon.drain().await;
}

/// If Redis stalls for a moment, a customer must not lose a link.
#[tokio::test]
async fn a_confirm_link_that_met_a_stall_can_be_pressed_again() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let path = api.next_verification().await.path.expect("a link");
    api.signal_redis(Signal::SIGSTOP);
    assert_eq!(api.press_link(&path).await.status, 503);
    api.signal_redis(Signal::SIGCONT);
    assert!(!api.is_verified("alice", &id).await);
    let again = eventually("Redis is found again", || async {
        let page = api.press_link(&path).await;
        (page.status != 503).then_some(page)
    })
    .await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert!(api.is_verified("alice", &id).await);
    assert_eq!(api.press_link(&path).await.status, 410);
    api.counted("verified", 1).await;
    api.daemon.drain().await;
}

/// A dump of Redis must contain nothing that verifies; and everything must expire.
#[tokio::test]
async fn redis_holds_only_digests_and_each_ends() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    assert_eq!(api.request_verification("alice", &id).await.status, 202);
    let second = api.next_verification().await;
    api.submit_code("alice", &id, wrong(&second.code)).await;
    api.add_email("bob", "bob@b.test").await;
    api.next_verification().await;
    let token = |mail: &VerificationMail| mail.path.clone().expect("a link").replace("/confirm/", "");
    let texts = api.texts("*").await;
    assert!(texts.len() > 10, "{texts:?}");
    for secret in [&mail.code, &token(&mail), &second.code, &token(&second)] {
        let held: Vec<&String> = texts.iter().filter(|text| text.contains(secret.as_str())).collect();
        assert!(held.is_empty(), "{secret} stands in {held:?}");
    }
    let names: Vec<String> = api.outbox.run("KEYS", "quota_verify_*").await;
    let kinds: BTreeSet<&str> = names.iter().filter_map(|name| name.split(':').next()).collect();
    let all = ["code", "guesses", "link", "open", "requests", "sent"];
    assert_eq!(kinds, all.map(|kind| format!("quota_verify_{kind}")).iter().map(String::as_str).collect());
    for name in &names {
        assert!(name.contains(":{usage}:"), "{name}");
        let lives_ms: i64 = api.outbox.run("PTTL", name).await;
        // Sent items are known while the contact waits: two lifetimes of 10 minutes, and a day.
        let most_ms = if name.starts_with("quota_verify_sent") { 87_600_000 } else { 3_600_000 };
        assert!((1..=most_ms).contains(&lives_ms), "{name} lives {lives_ms} ms");
    }
    api.daemon.drain().await;
}

/// A token or code must work only once. A caller that confirms a moment later must still see success.
#[tokio::test]
async fn of_sixteen_who_race_one_has_the_token_and_one_the_code() {
    let mut api = ContactsApi::start().await;
    let by_link = api.add_email("alice", "alice@b.test").await;
    let path = api.next_verification().await.path.expect("a link");
    let pressed = race(16, || api.press_link(&path)).await;
    let said = |text: &str| pressed.iter().filter(|page| page.text.contains(text)).count();
    assert_eq!(said("<h1>Confirmed</h1>"), 1, "{pressed:?}");
    assert_eq!(said("<h1>Confirmed already</h1>") + said("used already, or has run out"), 15, "{pressed:?}");
    assert!(api.is_verified("alice", &by_link).await);
    api.counted("verified", 1).await;
    assert_eq!(api.press_link(&path).await.status, 410);

    let by_code = api.add_email("bob", "bob@b.test").await;
    let code = api.next_verification().await.code;
    let shown = race(16, || api.submit_code("bob", &by_code, &code)).await;
    assert_eq!(shown.iter().filter(|answer| answer.status == 200).count(), 1, "{shown:?}");
    assert!(api.is_verified("bob", &by_code).await);
    api.daemon.drain().await;
}

/// The responses to many concurrent callers.
async fn race<F: Future<Output = Answer>>(racers: usize, call: impl Fn() -> F) -> Vec<Answer> {
    let mut racing: Vec<_> = (0..racers).map(|_| Box::pin(call())).collect();
    let mut answers = Vec::new();
    // All are started before any is awaited.
    std::future::poll_fn(|context| {
        racing.retain_mut(|call| match call.as_mut().poll(context) {
            std::task::Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            std::task::Poll::Pending => true,
        });
        if racing.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers
}

/// Consent is for one address: an address that later got the id was never asked.
#[tokio::test]
async fn an_address_that_changed_meanwhile_is_not_verified() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    let moved = format!(r#"[{{"id":"{id}","channel":"email","address":"evil@b.test","verified":false}}]"#);
    api.outbox.set_contacts(&subject("alice"), &moved).await;
    api.submit_code("alice", &id, &mail.code).await.expect_problem(403, "ask for another");
    let pressed = api.caller.send("POST", &mail.path.expect("a link"), &[], "").await;
    assert_eq!(pressed.status, 410);
    assert!(!api.is_verified("alice", &id).await);
    api.daemon.drain().await;
}

/// A removed address must not return because an email was on its way, and must be addable again.
#[tokio::test]
async fn what_was_sent_to_a_contact_that_was_removed_verifies_nothing() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let first = api.next_verification().await;
    let stored = Value::from(api.contacts("alice").await);
    api.remove_existing("alice", &id).await;
    let hash: u64 = api.outbox.run("EXISTS", Keys::new("usage").subject(&subject("alice"))).await;
    assert_eq!(hash, 0, "a subject is left over of which nothing is known");
    api.remove("alice", &id).await.expect_problem(404, "no such contact");
    api.submit_code("alice", &id, &first.code).await.expect_problem(404, "no such contact");

    // If added again at once, it is asked again; the link of the earlier email is invalid.
    assert_eq!(api.add_email("alice", "alice@b.test").await, id);
    let second = api.next_verification().await;
    let (first_link, second_link) = (first.path.expect("a link"), second.path.expect("a link"));
    assert_eq!(api.caller.send("POST", &first_link, &[], "").await.status, 410);
    api.counted("rejected", 1).await;
    assert!(!api.is_verified("alice", &id).await);
    assert_eq!(api.caller.send("POST", &second_link, &[], "").await.status, 200);
    assert!(api.is_verified("alice", &id).await);
    api.remove_existing("alice", &id).await;
    assert!(api.contacts("alice").await.is_empty());

    // The earlier code stays valid if there is no newer one: the platform stored the contact again itself.
    let bob = api.add_email("bob", "bob@b.test").await;
    let VerificationMail { code, .. } = api.next_verification().await;
    api.remove_existing("bob", &bob).await;
    let again = stored.to_string().replace("alice@", "bob@").replace(&id, &bob);
    assert!(again.contains("nonce"), "{again}");
    api.outbox.set_contacts(&subject("bob"), &again).await;
    api.submit_code("bob", &bob, &code).await.expect_problem(403, "ask for another");
    assert!(!api.is_verified("bob", &bob).await);
    // The limit on requests to an address does not restart.
    for _ in 0..2 {
        api.remove_existing("bob", &bob).await;
        api.add_email("bob", "bob@b.test").await;
        api.next_verification().await;
    }
    api.remove_existing("bob", &bob).await;
    let fourth =
        api.caller.post("/v1/subjects/bob/contacts", &json!({"channel": "email", "address": "bob@b.test"})).await;
    fourth.expect_problem(429, "too often");
    assert!(api.contacts("bob").await.is_empty());
    assert!(!api.daemon.has_said("alice@b.test") && api.daemon.has_said("contact is removed"));
    api.daemon.drain().await;
}

/// Repeated removing and adding must not fill a mailbox.
#[tokio::test]
async fn adds_that_race_with_removals_bring_no_more_messages_than_are_allowed() {
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "3/1h")).await;
    let body = json!({"channel": "email", "address": "victim@b.test"});
    let id = Contact::email("victim@b.test").id.to_string();
    for _ in 0..10 {
        let (first, removed, second) =
            tokio::join!(api.try_add("alice", &body), api.remove("alice", &id), api.try_add("alice", &body));
        assert!([204, 404].contains(&removed.status));
        assert!([first.status, second.status].iter().all(|status| [202, 409, 429].contains(status)));
    }
    api.add_email("last", "last@b.test").await;
    let mut victims = 0;
    while api.next_verification().await.to == "victim@b.test" {
        victims += 1;
    }
    assert!(victims <= 3, "{victims} messages");
    api.daemon.drain().await;
}

/// A late result of a message to a removed contact must not affect a contact that was added later.
#[tokio::test]
async fn what_is_left_of_a_removed_contact_voids_no_code() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    api.next_verification().await;
    let codes: Vec<String> = api.outbox.run("KEYS", "quota_verify_code:*").await;
    let void: String = api.outbox.run("GET", &codes[0]).await;
    api.remove_existing("alice", &id).await;
    api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    let () = api.outbox.run("SET", &[codes[0].as_str(), &void]).await;
    assert_eq!(api.submit_code("alice", &id, &mail.code).await.status, 200);
    api.daemon.drain().await;
}

/// Until the operator has repaired unreadable contacts, a customer must not lose the link or the code.
#[tokio::test]
async fn while_contacts_cannot_be_read_no_link_and_no_code_is_used_up() {
    let mut api = ContactsApi::start().await;
    for (of, broken) in [("alice", Some("{")), ("bob", Some("{}")), ("carol", None)] {
        let id = api.add_email(of, &format!("{of}@b.test")).await;
        let VerificationMail { code, path, .. } = api.next_verification().await;
        let path = path.expect("a link");
        let stored = Value::from(api.contacts(of).await).to_string();
        let key = Keys::new("usage").subject(&subject(of));
        match broken {
            Some(broken) => api.outbox.set_contacts(&subject(of), broken).await,
            None => {
                let _: u64 = api.outbox.run("DEL", &key).await;
                let () = api.outbox.run("SET", &[key.as_str(), "not a hash"]).await;
            }
        }
        let guesses: Vec<String> = api.outbox.run("KEYS", "quota_verify_guesses:*").await;
        for shown in [[wrong(&code); 5].as_slice(), &[code.as_str()]].concat() {
            api.submit_code(of, &id, shown).await.expect_problem(409, "can't be read");
        }
        assert_eq!(api.press_link(&path).await.status, 503, "{of}");
        let after: Vec<String> = api.outbox.run("KEYS", "quota_verify_guesses:*").await;
        assert_eq!(after.len(), guesses.len(), "a guess was counted");
        let _: u64 = api.outbox.run("DEL", &key).await;
        api.outbox.set_contacts(&subject(of), &stored).await;
        if of == "alice" {
            assert_eq!(api.submit_code(of, &id, &code).await.status, 200);
        } else {
            assert_eq!(api.press_link(&path).await.status, 200);
            api.submit_code(of, &id, &code).await.expect_problem(409, "verified already");
        }
        assert!(api.is_verified(of, &id).await);
    }
    api.daemon.drain().await;
}

/// A typing error of form, such as a copied space, must not cost one of five guesses.
#[tokio::test]
async fn what_is_no_code_costs_no_guess() {
    let mut api = ContactsApi::start().await;
    let id = api.add_email("alice", "alice@b.test").await;
    let VerificationMail { code, .. } = api.next_verification().await;
    let mut told = BTreeSet::new();
    for bad in ["", " ", "12345", "1234567", "12345a", "123 456", "１２３４５６", "no code at all"] {
        for contact in [&id, "c_0"] {
            let answer = api.submit_code("alice", contact, bad).await;
            answer.expect_problem(400, "code: must be 6 digits");
            told.insert(answer.text);
        }
    }
    assert_eq!(told.len(), 1);
    let guesses: Vec<String> = api.outbox.run("KEYS", "quota_verify_guesses:*").await;
    assert!(guesses.is_empty(), "a guess was counted");
    assert_eq!(api.submit_code("alice", &id, &format!(" {code}\n")).await.status, 200);
    api.daemon.drain().await;
}

/// If a message was announced, it must arrive although the mail server refuses it for a moment.
#[tokio::test]
async fn a_verification_is_tried_again_until_it_arrives_or_expires() {
    let later = |setup: DaemonSetup| {
        let setup = setup.env("QUOTABELL__RETRY__FIRST", "30s").env("QUOTABELL__RETRY__MAX_INTERVAL", "30s");
        setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")
    };
    let mut api = ContactsApi::start_with(later).await;
    api.mailbox.program(Phase::Rcpt, Reply::Say("451 later"), Times::Once);
    let id = api.add_email("alice", "alice@b.test").await;
    api.counted("failed", 1).await;
    assert!(!api.daemon.has_said("alice@b.test"), "the log names the address");
    api.make_all_due().await;
    let mail = api.next_verification().await;
    assert_eq!(api.submit_code("alice", &id, &mail.code).await.status, 200);
    api.ended("delivered", 1).await;

    // Nobody waits for it any more.
    api.mailbox.program(Phase::Rcpt, Reply::Say("451 later"), Times::Once);
    api.add_email("bob", "bob@b.test").await;
    api.counted("failed", 2).await;
    let queued = api.outbox.queued().await;
    let key = api.outbox.keys.delivery(&DeliveryId::from_stored(queued.first().expect("one waits")));
    let request: String = api.outbox.run("HGET", &[key.as_str(), "verification"]).await;
    let mut request: Value = serde_json::from_str(&request).expect("JSON");
    let lifetime_ms = request["expires_at_ms"].as_i64().expect("ms") - request["requested_at_ms"].as_i64().expect("ms");
    assert_eq!(lifetime_ms, 600_000, "verification.lifetime");
    request["expires_at_ms"] = json!(request["requested_at_ms"]);
    let _: u64 = api.outbox.run("HSET", &[key.as_str(), "verification", &request.to_string()]).await;
    api.make_all_due().await;
    api.ended("expired", 1).await;

    // A permanently refused email is not retried.
    api.mailbox.program(Phase::Message, Reply::Say("552 5.3.4 too big"), Times::Once);
    api.add_email("carol", "nobody@b.test").await;
    api.ended("dead", 1).await;
    api.nothing_else_was_sent().await;
    api.outbox.assert_balanced().await;
    api.daemon.drain().await;
}

/// A message that expired needs no action: it must not alarm the operator like a dead delivery.
#[tokio::test]
async fn a_verification_whose_next_attempt_would_come_too_late_expires_and_is_not_dead() {
    let slow = |setup: DaemonSetup| {
        let setup = setup.env("QUOTABELL__RETRY__FIRST", "3m").env("QUOTABELL__RETRY__MAX_INTERVAL", "3m");
        setup.env("QUOTABELL__VERIFICATION__LIFETIME", "1m")
    };
    let api = ContactsApi::start_with(slow).await;
    api.mailbox.program(Phase::Rcpt, Reply::Say("451 later"), Times::Once);
    api.add_email("alice", "alice@b.test").await;
    api.counted("failed", 1).await;
    api.ended("expired", 1).await;
    let totals = api.outbox.assert_balanced().await;
    assert_eq!((totals.expired, totals.dead, totals.dead_kept, totals.pending), (1, 0, 0, 0));
    api.daemon.drain().await;
}

/// An accepted request must survive the daemon that accepted it.
#[tokio::test]
async fn a_verification_survives_the_daemon_that_accepted_it() {
    let one_a_minute = |setup: DaemonSetup| setup.env("QUOTABELL__EMAIL__PER_MINUTE", "1");
    let mut api = ContactsApi::start_with(one_a_minute).await;
    api.add_email("alice", "alice@b.test").await;
    api.next_verification().await;
    let id = api.add_email("bob", "bob@b.test").await;
    api.counted("throttled", 1).await;
    let mut api = api.restart_after_kill(|setup| setup).await;
    api.make_all_due().await;
    let mail = api.next_verification().await;
    assert_eq!(mail.to, "bob@b.test");
    assert_eq!(api.submit_code("bob", &id, &mail.code).await.status, 200);
    api.daemon.drain().await;
}

/// A needless message must not be sent: the contact was removed, verified, or replaced.
#[tokio::test]
async fn a_verification_that_became_void_is_cancelled() {
    let one_a_minute = |setup: DaemonSetup| setup.env("QUOTABELL__EMAIL__PER_MINUTE", "1");
    let mut api = ContactsApi::start_with(one_a_minute).await;
    let verified = api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    assert_eq!(api.request_verification("alice", &verified).await.status, 202);
    let removed = api.add_email("bob", "bob@b.test").await;
    let moved = api.add_email("carol", "carol@b.test").await;
    api.counted("throttled", 3).await;

    assert_eq!(api.submit_code("alice", &verified, &mail.code).await.status, 200);
    api.remove_existing("bob", &removed).await;
    let evil = format!(r#"[{{"id":"{moved}","channel":"email","address":"evil@b.test","verified":false}}]"#);
    api.outbox.set_contacts(&subject("carol"), &evil).await;
    let _: u64 = api.outbox.run("DEL", api.outbox.keys.cap(Channel::Email, None)).await;
    api.make_all_due().await;
    api.ended("cancelled", 3).await;
    api.nothing_else_was_sent().await;
    api.outbox.assert_balanced().await;
    api.daemon.drain().await;
}
