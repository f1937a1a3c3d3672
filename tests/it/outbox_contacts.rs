//! The contacts of subjects, read from a real server.

use crate::support::outbox::{Outbox, email, json, subject, webhook};
use quotabell::contacts::Contact;
use quotabell::contacts::resolver::{ContactLookup, ContactResolver, ResolvedContacts};
use quotabell::contacts::text_settings::read_locale;
use quotabell::types::{ContactId, Keys};

async fn contacts(outbox: &Outbox, field: &str) -> ResolvedContacts {
    let alice = subject("alice");
    outbox.set_contacts(&alice, field).await;
    ContactResolver::new(Keys::new("usage"), vec![email("ops")])
        .contacts_of(&outbox.client, &alice)
        .await
        .expect("readable")
}

/// The fallback is only for subjects without contacts.
#[tokio::test]
async fn the_fallback_serves_subjects_without_contacts() {
    let outbox = Outbox::start();
    let book = ContactResolver::new(Keys::new("usage"), vec![email("ops")]);
    let unknown = book.contacts_of(&outbox.client, &subject("alice")).await.expect("readable");
    assert_eq!(unknown.readable, [email("ops")]);
    for empty in ["", "[]", " [ ] "] {
        assert_eq!(contacts(&outbox, empty).await.readable, [email("ops")], "{empty:?}");
    }
    let own = [email("a"), webhook("w")];
    let read = contacts(&outbox, &json(&own)).await;
    assert_eq!((read.readable.as_slice(), read.unreadable.len()), (own.as_slice(), 0));
}

/// A broken field must neither send the alert to the operator nor count as a removal.
#[tokio::test]
async fn an_unreadable_field_is_no_contact_and_not_the_fallback() {
    let outbox = Outbox::start();
    for broken in ["{}", "[", "null", "\"a@b.test\"", "[null]", "[{\"channel\":\"sms\"}]"] {
        let read = contacts(&outbox, broken).await;
        assert!(read.readable.is_empty(), "{broken}");
        assert_eq!(read.unreadable.len(), 1, "{broken}");
        assert_eq!(read.find(&email("a").id), ContactLookup::Unreadable, "{broken}");
    }
    // The subject's key has another type.
    let bob = subject("bob");
    let () = outbox.run("SET", &[Keys::new("usage").subject(&bob).as_str(), "x"]).await;
    let read = ContactResolver::new(Keys::new("usage"), vec![email("ops")])
        .contacts_of(&outbox.client, &bob)
        .await
        .expect("readable");
    assert_eq!((read.readable.len(), read.unreadable.len()), (0, 1));
}

/// One broken element must not silence the others, and the error must not show an address.
#[tokio::test]
async fn the_readable_elements_of_an_array_are_used() {
    let outbox = Outbox::start();
    let field =
        r#"[{"id":"c_1","channel":"webhook","url":"https://secret.test/"},{"channel":"email","address":"a@b.test"}]"#;
    let read = contacts(&outbox, field).await;
    assert_eq!(read.readable, [email("a")]);
    assert_eq!(read.unreadable[0].why, "webhook contact has no \"secret\"");
    assert_eq!(read.find(&email("a").id), ContactLookup::Found(email("a")));
    assert_eq!(read.find(&ContactId::from_stored("c_1")), ContactLookup::Unreadable);
    assert_eq!(read.find(&ContactId::from_stored("c_2")), ContactLookup::NotUsable, "the broken one states another id");
}

/// A recheck uses the same contacts as fan-out: the subject's own, else the fallback.
#[tokio::test]
async fn a_contact_is_found_again_or_known_to_be_removed() {
    let outbox = Outbox::start();
    let (alice, book) = (subject("alice"), ContactResolver::new(Keys::new("usage"), vec![email("ops")]));
    let find = |contact: Contact| {
        let (book, outbox, alice) = (&book, &outbox, &alice);
        async move { book.contacts_of(&outbox.client, alice).await.expect("readable").find(&contact.id) }
    };
    assert_eq!(find(email("ops")).await, ContactLookup::Found(email("ops")));
    outbox.set_contacts(&alice, &json(&[email("a")])).await;
    assert_eq!(find(email("a")).await, ContactLookup::Found(email("a")));
    assert_eq!(find(email("ops")).await, ContactLookup::NotUsable, "it has contacts of its own now");
}

/// A contact with the id `none` would share its delivery with an alert that waits for a contact, and get nothing.
#[tokio::test]
async fn the_reserved_id_is_replaced() {
    let outbox = Outbox::start();
    let read = contacts(&outbox, r#"[{"id":"none","channel":"email","address":"a@b.test"}]"#).await;
    assert_eq!(read.readable, [email("a")]);
}

/// A team without a language of its own is asked for its consent in that of its organization, as it gets its alerts.
#[tokio::test]
async fn a_locale_is_that_of_the_nearest_level_that_has_one() {
    let outbox = Outbox::start();
    let keys = outbox.keys.clone().with_separator("/".parse().expect("a separator"));
    let locale = async || {
        let read = read_locale(&outbox.client, &keys, &subject("acme/a/k")).await.expect("readable");
        read.map(|locale| locale.to_string())
    };
    assert_eq!(locale().await, None);
    for (level, stored) in [("acme", "vi"), ("acme/a", "de"), ("acme/a/k", "en")] {
        let _: u64 = outbox.run("HSET", &[&format!("quota_subject:{level}"), "locale", stored]).await;
        assert_eq!(locale().await.as_deref(), Some(stored));
    }
}
