//! Two streams on one Redis, each with its own prefix of subjects: neither daemon sees the subjects of the other.

use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use quotabell::types::Keys;

/// One of two products that share the server.
struct Product {
    stream: &'static str,
    prefix: &'static str,
}

const EU: Product = Product { stream: "usage-eu", prefix: "eu:subject:" };
const US: Product = Product { stream: "usage-us", prefix: "us:subject:" };

impl Product {
    fn setup(&self, outbox: &Outbox) -> DaemonSetup {
        DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__STREAM__KEY", self.stream)
            .env("QUOTABELL__SUBJECTS__PREFIX", self.prefix)
    }

    async fn limit(&self, outbox: &Outbox, limit: &str) {
        let _: u64 = outbox.run("HSET", &[&format!("{}alice", self.prefix), "limit:requests", limit]).await;
    }

    async fn use_units(&self, outbox: &Outbox, units: &str) {
        let _: String = outbox.run("XADD", &[self.stream, "*", "subject", "alice", "units", units]).await;
    }

    /// The total of this name for this stream.
    async fn total(&self, outbox: &Outbox, name: &str) -> u64 {
        let total: Option<u64> = outbox.run("HGET", &[&Keys::new(self.stream).totals(), name]).await;
        total.unwrap_or(0)
    }

    async fn counted(&self, outbox: &Outbox, events: u64) {
        eventually("the events are counted", || async {
            (self.total(outbox, "counted").await == events).then_some(())
        })
        .await;
    }
}

/// Without separate prefixes, a limit that one product sets for `alice` would raise alerts for the other's `alice`.
#[tokio::test]
async fn daemons_with_different_prefixes_do_not_share_their_subjects() {
    let outbox = Outbox::start();
    EU.limit(&outbox, "10").await;
    let daemons: [Daemon; 2] = [EU.setup(&outbox).start().await, US.setup(&outbox).start().await];
    for product in [&EU, &US] {
        product.use_units(&outbox, "20").await;
        product.counted(&outbox, 1).await;
    }
    assert_eq!((EU.total(&outbox, "raised").await, US.total(&outbox, "raised").await), (2, 0));

    // A change under the own prefix takes effect within a second: that is the prefix that Redis reports.
    US.limit(&outbox, "5").await;
    let mut sent = 1;
    eventually("the new limit raises alerts", || {
        sent += 1;
        let sent = sent;
        let outbox = &outbox;
        async move {
            US.use_units(outbox, "1").await;
            US.counted(outbox, sent).await;
            (US.total(outbox, "raised").await == 2).then_some(())
        }
    })
    .await;
    assert_eq!(EU.total(&outbox, "raised").await, 2);
    for daemon in daemons {
        daemon.drain().await;
    }
}

/// A list must not show subjects of another product.
#[tokio::test]
async fn the_command_line_reads_and_writes_below_the_prefix() {
    let outbox = Outbox::start();
    let url = outbox.server.url();
    let command = |product: &Product, arguments: &[&str]| {
        let command = quotabell(arguments.iter().copied()).redis(&url);
        command.env("QUOTABELL__STREAM__KEY", product.stream).env("QUOTABELL__SUBJECTS__PREFIX", product.prefix).run()
    };
    command(&EU, &["subject", "set", "alice", "--limit", "requests=10"]).expect_done();
    command(&US, &["subject", "set", "bob", "--limit", "requests=20"]).expect_done();
    let stored: String = outbox.run("HGET", &["eu:subject:alice", "limit:requests"]).await;
    assert_eq!(stored, "10");
    for (product, name) in [(&EU, "alice"), (&US, "bob")] {
        let listed = command(product, &["subject", "list", "--json"]).expect_json();
        let names: Vec<&str> = listed.iter().filter_map(|subject| subject["subject"].as_str()).collect();
        assert_eq!(names, [name]);
    }
    assert!(command(&US, &["subject", "show", "alice"]).told().contains("nothing is set for subject alice"));
    command(&EU, &["subject", "remove", "alice"]).expect_done();
    let left: u64 = outbox.run("EXISTS", &["eu:subject:alice", "us:subject:bob"]).await;
    assert_eq!(left, 1);
}
