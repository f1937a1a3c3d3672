//! Emails in the reader's language on the real binary: from the subject's settings to the mailbox.

use std::collections::BTreeMap;
use std::fs;

use crate::support::contacts_api::ContactsApi;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::WAIT_MAX;
use crate::support::mail_server::ParsedMail;
use crate::support::receivers::{Phase, Reply, Times};
use serde_json::{Value, json};

/// The next email and its recipient; it must be plain ASCII in transit.
async fn next(api: &mut ContactsApi) -> (String, ParsedMail) {
    let mail = tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time");
    assert!(mail.raw.is_ascii(), "a server without 8BITMIME must be able to pass it on");
    (mail.to.concat(), ParsedMail::parse(&mail.text()))
}

async fn set(api: &ContactsApi, of: &str, locale: Option<&str>) {
    let contacts = json!([{"id": of, "channel": "email", "address": format!("{of}@b.test")}]).to_string();
    let mut fields = vec!["timezone", "Asia/Ho_Chi_Minh", "contacts", &contacts];
    fields.extend(locale.into_iter().flat_map(|locale| ["locale", locale]));
    let key = format!("quota_subject:{of}");
    let _: u64 = api.outbox.run("HSET", &[&[key.as_str()], &fields[..]].concat()).await;
}

/// A customer who can't read an alert was not alerted; an unknown or invalid locale must not stop the email.
#[tokio::test]
async fn each_subject_is_told_in_its_language_or_the_nearest_that_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("fr")).expect("created");
    fs::write(folder.path().join("fr/subject.txt"), "{{ subject }} : {{ used|thousands(' ') }} utilisés")
        .expect("written");
    let operator = json!([{"channel": "email", "address": "ops@b.test", "thresholds": [100]}]).to_string();
    let mut api = ContactsApi::start_with(|setup| {
        setup
            .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":5000}"#)
            .env("QUOTABELL__EMAIL__TEMPLATES", &folder.path().display().to_string())
            .env("QUOTABELL__EMAIL__LOCALE", "fr-CA")
            .env("QUOTABELL__OPERATOR__CONTACTS", &operator)
            .env("QUOTABELL__FALLBACK__CONTACTS", r#"[{"channel":"email","address":"fallback@b.test"}]"#)
    })
    .await;
    for (of, locale) in
        [("vi", Some("vi-VN")), ("en", Some("en-US")), ("ja", Some("ja")), ("none", None), ("bad", Some("vi_VN"))]
    {
        set(&api, of, locale).await;
        api.use_units(of, 4000).await;
    }
    let _: u64 = api.outbox.run("HSET", &["quota_subject:nobody", "locale", "vi"]).await;
    api.use_units("nobody", 4000).await;
    let mut mails = BTreeMap::new();
    for _ in 0..6 {
        let (to, mail) = next(&mut api).await;
        mails.insert(to, mail);
    }
    let of = |to: &str| {
        let mail = &mails[&format!("{to}@b.test")];
        let lang = mail.parts[1].content.split("<html lang=\"").nth(1).and_then(|rest| rest.split('"').next());
        (
            mail.header("Subject"),
            mail.parts[0].content.lines().next().unwrap_or_default().to_owned(),
            lang.map(str::to_owned),
        )
    };
    let (subject_line, text, lang) = of("vi");
    assert!(subject_line.starts_with("vi: đã dùng 80,0% hạn mức requests của ngày "), "{subject_line}");
    assert!(subject_line.ends_with(" (4.000 trên 5.000)"), "{subject_line}");
    assert!(text.starts_with("vi đã dùng 80,0% hạn mức requests của ngày "), "{text}");
    assert_eq!(lang.as_deref(), Some("vi"));
    assert!(of("en").0.starts_with("en: 80.0% of the requests quota for "), "{}", of("en").0);
    for (to, subject) in [("ja", "ja"), ("none", "none"), ("bad", "bad"), ("fallback", "nobody")] {
        let (subject_line, text, lang) = of(to);
        assert_eq!((subject_line, lang.as_deref()), (format!("{subject} : 4 000 utilisés"), Some("en")), "{to}");
        assert!(text.starts_with(&format!("{subject} has used 80.0% of its requests quota for ")), "{text}");
    }
    let told = api.daemon.says("locale is unreadable").await;
    assert!(told.contains("bad") && told.contains("vi_VN") && told.contains("is not a language tag"), "{told}");

    // The operator gets the default language for every subject.
    api.use_units("vi", 1000).await;
    let mails = [next(&mut api).await, next(&mut api).await];
    let copy = mails.iter().find(|(to, _)| to == "ops@b.test").expect("a copy");
    assert_eq!(copy.1.header("Subject"), "[copy] vi : 5 000 utilisés");
    let reached = mails.iter().find(|(to, _)| to == "vi@b.test").expect("an alert");
    assert!(reached.1.header("Subject").starts_with("vi: đã dùng hết hạn mức requests của ngày "));
    api.daemon.drain().await;
}

/// The request for consent and the notice of a disabled contact need action, so they must be in the reader's language.
#[tokio::test]
async fn requests_for_consent_and_notices_are_told_in_the_language_of_the_subject() {
    let at_once = |setup: DaemonSetup| setup.env("QUOTABELL__EMAIL__UNKNOWN_MAILBOX_AFTER", "0s");
    let mut api = ContactsApi::start_with(at_once).await;
    let _: u64 = api.outbox.run("HSET", &["quota_subject:alice", "locale", "vi"]).await;
    api.add_email("alice", "new@b.test").await;
    let (to, mail) = next(&mut api).await;
    assert_eq!(
        (to.as_str(), mail.header("Subject").as_str()),
        ("new@b.test", "Xác nhận địa chỉ này để nhận cảnh báo hạn mức của alice")
    );
    assert!(mail.parts[0].content.contains("Mã và liên kết có hiệu lực trong 10 phút."), "{}", mail.parts[0].content);

    let contacts: Value = json!([{"id": "gone", "channel": "email", "address": "gone@b.test", "thresholds": [80]},
                                 {"id": "boss", "channel": "email", "address": "boss@b.test", "thresholds": [100]}]);
    let _: u64 = api.outbox.run("HSET", &["quota_subject:alice", "contacts", &contacts.to_string()]).await;
    api.mailbox.program(Phase::Rcpt, Reply::Say("550 5.1.1 no such user"), Times::Once);
    api.use_units("alice", 80).await;
    let mails = [next(&mut api).await, next(&mut api).await];
    let notice = mails.iter().find(|(_, mail)| mail.header("Subject").contains("gone@b.test")).expect("a notice");
    assert_eq!(
        (notice.0.as_str(), notice.1.header("Subject").as_str()),
        ("boss@b.test", "alice: ngừng gửi cảnh báo hạn mức đến gone@b.test")
    );
    let text = &notice.1.parts[0].content;
    assert!(
        text.contains("vì máy chủ thư cho biết hộp thư này không tồn tại.") && text.contains("SMTP 550 5.1.1 to RCPT"),
        "{text}"
    );
    assert!(notice.1.parts[1].content.contains("hộp thư này không tồn tại"), "{}", notice.1.parts[1].content);
    api.daemon.drain().await;
}
