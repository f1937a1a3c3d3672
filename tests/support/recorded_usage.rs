//! Counters and alerts on their own server, written as commits write them.

use quotabell::redis_client::RedisClient;
use quotabell::types::{
    Alert, BillingDay, BillingMonth, BillingStart, Keys, Metric, Period, PeriodSpan, RaisedRecord, UnixMs, Window, keys,
};

use super::redis_server::RedisServer;

/// A server with the keys of one partition.
pub struct RecordedUsage {
    pub server: RedisServer,
    pub client: RedisClient,
    pub keys: Keys,
}

impl RecordedUsage {
    pub fn start() -> Self {
        let server = RedisServer::start();
        Self { client: server.client(), server, keys: Keys::new("usage") }
    }

    pub async fn now(&self) -> UnixMs {
        self.client.server_time().await.expect("TIME works")
    }

    /// The current period of each window.
    pub async fn periods(&self, zone: &str, billing_day: u8) -> [PeriodSpan; Window::ALL.len()] {
        self.billed_periods(zone, 1, billing_day).await
    }

    /// The same for a subject with this billing month and day.
    pub async fn billed_periods(&self, zone: &str, month: u8, day: u8) -> [PeriodSpan; Window::ALL.len()] {
        let zone = zone.parse().expect("a zone");
        let (month, day) = (BillingMonth::new(month).expect("a month"), BillingDay::new(day).expect("a day"));
        let (billing, now) = (BillingStart { month, day }, self.now().await);
        Window::ALL.map(|window| PeriodSpan::containing(window, zone, billing, now).expect("in range"))
    }

    /// Sets fields of a subject.
    pub async fn set(&self, subject: &str, fields: &[(&str, &str)]) {
        let () = self
            .client
            .query(redis::cmd("HSET").arg(format!("quota_subject:{subject}")).arg(fields))
            .await
            .expect("set");
    }

    pub async fn count(&self, subject: &str, metric: &str, period: impl Into<Period>, used: u64) {
        let (metric, period): (Metric, Period) = (metric.parse().expect("legal"), period.into());
        let mut pipeline = redis::pipe();
        pipeline.cmd("SADD").arg(self.keys.metrics(period)).arg(metric.as_str()).ignore();
        let counters = self.keys.usage(&metric, period, keys::bucket(subject));
        pipeline.cmd("HSET").arg(counters).arg(subject).arg(used).ignore();
        let () = self.client.pipe(&pipeline).await.expect("written");
    }

    /// Stores the record of an alert that follows these earlier ones.
    pub async fn raise(&self, alert: &Alert, earlier: &[&Alert]) {
        let before = earlier.iter().fold(None, |before, alert| Some(RaisedRecord::after(before, (*alert).clone())));
        self.write(&RaisedRecord::after(before, alert.clone()), alert.subject.as_str()).await;
    }

    /// Stores the record of an alert in the hash of another subject, as if both had the same bucket.
    pub async fn raise_in_the_hash_of(&self, subject: &str, alert: &Alert) {
        self.write(&RaisedRecord::after(None, alert.clone()), subject).await;
    }

    async fn write(&self, record: &RaisedRecord, in_the_hash_of: &str) {
        let alert = &record.alert;
        let record = serde_json::to_string(record).expect("JSON");
        let raised = self.keys.raised(&alert.metric, alert.period, keys::bucket(in_the_hash_of));
        let field = Keys::raised_field(alert.threshold, &alert.subject);
        let mut pipeline = redis::pipe();
        pipeline.cmd("SADD").arg(self.keys.metrics(alert.period)).arg(alert.metric.as_str()).ignore();
        pipeline.cmd("HSET").arg(raised).arg(field).arg(record).ignore();
        let () = self.client.pipe(&pipeline).await.expect("written");
    }
}
