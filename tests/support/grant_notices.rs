//! Notices before units of a grant expire, raised as the script of the ledger raises them.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use quotabell::contacts::Contact;
use quotabell::outbox::{FanOutReply, FanOutRequest, FanOutSource, Recipients, fan_out};
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{ContactId, DeliveryId, DeploymentId, GrantId, GrantNotice, Subject, Units, UnixMs, Window};

use super::outbox::Outbox;

/// 400 of 1,000 prepaid requests of this subject expire then; the same id every time.
pub fn grant_notice(subject: &Subject, expires_at: UnixMs) -> GrantNotice {
    let grant: GrantId = "welcome-2026".parse().expect("a legal id");
    GrantNotice {
        id: GrantNotice::id_of(&DeploymentId::from_stored("sample"), subject, &grant),
        subject: subject.clone(),
        metric: "requests".parse().expect("legal"),
        window: Window::Total,
        grant,
        note: Some("order <77> & more".to_owned()),
        units: Units::new(1000).expect("legal units"),
        remaining: 400,
        expires_at: Rfc3339(expires_at),
        limit: 5000,
        used: 4600,
        plan: "free".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        // 2026-11-21 08:37:00.123 UTC.
        raised_at: Rfc3339(UnixMs(1_795_250_220_123)),
    }
}

/// The id of this notice's delivery to the contact with this id.
pub fn notice_delivery(notice: &GrantNotice, contact: &str) -> DeliveryId {
    DeliveryId::of_notification(&notice.id, &ContactId::from_stored(contact))
}

impl Outbox {
    /// Puts a notice into the outbox and returns the entry's id.
    pub async fn raise_notice(&self, notice: &GrantNotice) -> String {
        let json = serde_json::to_string(notice).expect("JSON");
        self.run("XADD", &[self.keys.outbox().as_str(), "*", "grant_expires", &json]).await
    }

    /// Raises a notice and fans it out.
    pub async fn fan_out_notice(&self, notice: &GrantNotice, contacts: &[Contact]) {
        let (entry, json) = (self.raise_notice(notice).await, serde_json::to_vec(notice).expect("JSON"));
        let (source, notification) = (FanOutSource::Outbox { entry: &entry }, notice.into());
        let recipients = Recipients { contacts: contacts.to_vec(), ..Recipients::default() };
        let requests = [FanOutRequest { source, notification, json: &json, recipients: &recipients }];
        let replies = fan_out(&self.client, &self.keys, &requests).await.expect("fan-out works");
        assert!(matches!(replies[..], [FanOutReply::Done(_)]), "{replies:?}");
    }
}
