//! Failovers by Sentinels: a primary that is killed, hangs or is told to step down, sometimes with a tail that its
//! replica never received. Subjects form trees, and a client adds grants meanwhile, some of which expire.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::checker::Findings;
use crate::support::proxy::Fault;
use crate::support::sentinel_service::SentinelService;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

/// Number of entries read before a failover, and in a lost tail.
const ENTRIES: u64 = 100;
const READS_WITHIN: Duration = Duration::from_secs(30);

/// Runs the scenario; a round is a failover. The first one and every fifth one lose a tail.
pub async fn run(trial: Trial) -> Told {
    let mut service = SentinelService::start_behind_proxies().await;
    let url = service.url("");
    let deployment = Deployment::of_trees(&url, trial).await;
    let (notices, messages) = (deployment.raise_notices().await, deployment.tell().await);
    // Settings, contacts and the past must not be in a lost tail, because nobody writes them again.
    service.replicates(0).await;
    let mut random = StdRng::seed_from_u64(trial.seed ^ 6);
    let daemons = [deployment.daemon(&url).start().await, deployment.daemon(&url).start().await];
    let load = deployment.produce(LoadKind::Trees);
    let top_ups = deployment.top_up().await;
    let (mut failovers, mut tails, mut primary) = (0, 0, 0);
    while trial.goes_on(failovers) {
        deployment.reads_on(random.random_range(1..ENTRIES), READS_WITHIN).await;
        let loses_a_tail = failovers % 5 == 0;
        if loses_a_tail {
            service.proxies[primary].set(Fault::BlackHoleReplication);
            deployment.reads_on(ENTRIES, READS_WITHIN).await;
            tails += 1;
        }
        if loses_a_tail || random.random_bool(0.5) {
            service.servers[primary].kill();
            // Bytes on the connection are lost with the primary.
            service.proxies[primary].cut();
            service.proxies[primary].set(Fault::None);
            service.primary_other_than(primary).await;
            service.servers[primary].restart();
        } else if random.random_bool(0.5) {
            let pid = Pid::from_raw(i32::try_from(service.servers[primary].pid()).expect("a process id"));
            kill(pid, Signal::SIGSTOP).expect("it runs");
            service.primary_other_than(primary).await;
            kill(pid, Signal::SIGCONT).expect("it is stopped");
        } else {
            service.fail_over(primary).await;
        }
        primary = service.settled().await;
        failovers += 1;
    }
    let mut findings = Findings::default();
    // What a lost tail took is given again by the repeated calls, and nothing is given twice.
    let (granted, absent) = top_ups.end(&mut findings).await;
    let (notices, messages) = (notices.end().await, messages.end().await);
    let mut told = deployment.compare(load).await;
    told.findings.extend(findings);
    // It waits until the ends of alerts are fanned out, which are among the entries that notices count.
    let messages = messages.compare(failovers, &mut told.findings).await;
    let notices = notices.compare(&mut told.findings).await;
    for daemon in daemons {
        daemon.drain().await;
    }
    let granted = format!("{granted} grants, {absent} of them lost or given again; {notices} notices, {messages}");
    Told { tried: format!("{failovers} failovers by Sentinels, {tails} of which lost a tail; {granted}"), ..told }
}
