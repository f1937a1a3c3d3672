//! Asks Sentinels which server is the primary.
//!
//! It asks all Sentinels at once, and the reply with the newest configuration counts: a Sentinel that was cut off still
//! names the former primary. It accepts the named server only after that server reports the role of a primary. Read
//! next: [`super::topology`], which stores the result.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::NodeConnection;
use super::deployment_error::DeploymentError;
use super::error_kind::{ErrorKind, error_kind};
use super::node::RedisNode;
use super::redis_url::RedisAddress;

/// Maximum time for a Sentinel, or for the primary that is asked for its role, to reply.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time to wait for the other Sentinels after the first reply. They need a millisecond; one that hangs must not
/// delay a failover.
const OTHERS_WAIT: Duration = Duration::from_millis(200);

/// The Sentinels of one service.
#[derive(Debug)]
pub struct Sentinels {
    service: Arc<str>,
    sentinels: Vec<Arc<Sentinel>>,
    /// A server of the service: everything except the address is the same for all.
    template: RedisNode,
    /// The newest configuration that was accepted. An older one names a former primary.
    epoch: AtomicU64,
    /// The server that was asked for its role last.
    asked: Mutex<Option<Arc<AskedPrimary>>>,
}

#[derive(Debug)]
struct AskedPrimary {
    node: Arc<RedisNode>,
    connection: NodeConnection,
}

#[derive(Debug)]
struct Sentinel {
    name: String,
    connection: NodeConnection,
    /// With the user of the data servers, for a Sentinel that requires a login although the URL has none for it.
    with_login: Option<NodeConnection>,
    demands_login: AtomicBool,
}

/// What a Sentinel reports about the primary.
#[derive(Debug)]
struct PrimaryReport {
    address: RedisAddress,
    epoch: u64,
}

impl Sentinels {
    /// The Sentinels at these addresses, each with its login. `template` is a server of the service with any address.
    ///
    /// # Errors
    ///
    /// The redis crate rejects the settings.
    pub fn new(sentinels: &[RedisNode], service: &str, template: RedisNode) -> RedisResult<Self> {
        let sentinels = sentinels.iter().map(|node| Sentinel::new(node, &template).map(Arc::new));
        Ok(Self {
            service: service.into(),
            sentinels: sentinels.collect::<RedisResult<_>>()?,
            template,
            epoch: AtomicU64::new(0),
            asked: Mutex::default(),
        })
    }

    /// A server of the service at this address.
    ///
    /// # Errors
    ///
    /// TLS is used and the host can't appear in a certificate.
    pub fn node_at(&self, address: &RedisAddress) -> RedisResult<RedisNode> {
        self.template.with_address(address.clone())
    }

    /// The primary, according to the newest reply and to the server itself.
    ///
    /// # Errors
    ///
    /// [`DeploymentError`], or an error of the named server or of its connection.
    pub async fn primary(&self) -> RedisResult<Arc<RedisNode>> {
        let report = self.newest_report().await?;
        let asked = self.connection_to(&report)?;
        let role: Vec<Value> = asked.connection.query_within(ANSWER_TIMEOUT, &redis::cmd("ROLE")).await?;
        let role = role.first().map(redis::from_redis_value_ref::<String>).transpose()?;
        if role.as_deref() != Some("master") {
            return Err(DeploymentError::NotPrimary { node: asked.node.address.to_string() }.into());
        }
        self.epoch.store(report.epoch, Ordering::Relaxed);
        Ok(Arc::clone(&asked.node))
    }

    async fn newest_report(&self) -> RedisResult<PrimaryReport> {
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, service) = (Arc::clone(sentinel), Arc::clone(&self.service));
            asked.spawn(async move { sentinel.report(&service).await });
        }
        let mut newest: Option<PrimaryReport> = None;
        let mut failures: Vec<RedisError> = Vec::new();
        loop {
            let answer = match &newest {
                None => asked.join_next().await,
                Some(_) => timeout(OTHERS_WAIT, asked.join_next()).await.unwrap_or(None),
            };
            match answer {
                None => break,
                Some(Ok(Ok(report))) => {
                    if newest.as_ref().is_none_or(|newest| newest.epoch < report.epoch) {
                        newest = Some(report);
                    }
                }
                Some(Ok(Err(error))) => failures.push(error),
                // Only when the runtime stops.
                Some(Err(_)) => break,
            }
        }
        // All of them replied, so the service was set up anew and its configuration numbers restarted.
        let all_answered = failures.is_empty() && asked.is_empty();
        match newest {
            Some(report) if all_answered || report.epoch >= self.epoch.load(Ordering::Relaxed) => Ok(report),
            _ => Err(permanent_or_last(failures)),
        }
    }

    fn connection_to(&self, report: &PrimaryReport) -> RedisResult<Arc<AskedPrimary>> {
        let node = self.node_at(&report.address)?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = asked.as_ref().filter(|asked| asked.node.address == node.address) {
            return Ok(Arc::clone(asked));
        }
        let connection = NodeConnection::to(&node)?;
        let made = Arc::new(AskedPrimary { node: Arc::new(node), connection });
        *asked = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// Of several failures, one that waiting does not fix, or the last one.
fn permanent_or_last(mut failures: Vec<RedisError>) -> RedisError {
    let permanent = failures.iter().position(|error| !error_kind(error).is_transient());
    match permanent.or_else(|| failures.len().checked_sub(1)) {
        Some(at) => failures.swap_remove(at),
        None => std::io::Error::from(std::io::ErrorKind::TimedOut).into(),
    }
}

impl Sentinel {
    fn new(node: &RedisNode, template: &RedisNode) -> RedisResult<Self> {
        let with_login = match (node.login.current(), template.login.current()) {
            (None, Some(_)) => Some(NodeConnection::to(&RedisNode { login: template.login.clone(), ..node.clone() })?),
            _ => None,
        };
        Ok(Self {
            name: node.address.to_string(),
            connection: NodeConnection::to(node)?,
            with_login,
            demands_login: AtomicBool::new(false),
        })
    }

    async fn report(&self, service: &str) -> RedisResult<PrimaryReport> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(service);
        let sentinel = || self.name.clone();
        let fields: HashMap<String, String> = match self.query(&command).await {
            Ok(fields) => fields,
            Err(error) => {
                let detail = error.detail().unwrap_or_default();
                return Err(match error_kind(&error) {
                    ErrorKind::Deployment => return Err(error),
                    ErrorKind::Login | ErrorKind::Denied => {
                        DeploymentError::SentinelLogin { sentinel: sentinel(), source: error }
                    }
                    ErrorKind::Other if detail.starts_with("No such master") => {
                        let (service, known) = (service.to_owned(), self.services().await);
                        DeploymentError::UnknownService { sentinel: sentinel(), service, known }
                    }
                    ErrorKind::Other if detail.starts_with("unknown command") => {
                        DeploymentError::NotASentinel { sentinel: sentinel() }
                    }
                    _ => DeploymentError::NoSentinel { sentinel: sentinel(), source: error },
                }
                .into());
            }
        };
        let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
        let port = number("port").and_then(|port| u16::try_from(port).ok());
        match (fields.get("ip"), port, number("config-epoch")) {
            (Some(host), Some(port), Some(epoch)) => {
                Ok(PrimaryReport { address: RedisAddress::Tcp { host: host.clone(), port }, epoch })
            }
            _ => Err(DeploymentError::NotASentinel { sentinel: sentinel() }.into()),
        }
    }

    /// The names of the services that the Sentinel watches, for an error.
    async fn services(&self) -> String {
        let masters: RedisResult<Vec<HashMap<String, String>>> =
            self.query(redis::cmd("SENTINEL").arg("MASTERS")).await;
        let mut names: Vec<String> =
            masters.unwrap_or_default().into_iter().filter_map(|mut fields| fields.remove("name")).collect();
        names.sort_unstable();
        if names.is_empty() { "others".to_owned() } else { names.join(", ") }
    }

    async fn query<T: redis::FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let Some(with_login) = &self.with_login else {
            return self.connection.query_within(ANSWER_TIMEOUT, command).await;
        };
        if !self.demands_login.load(Ordering::Relaxed) {
            let reply = self.connection.query_within(ANSWER_TIMEOUT, command).await;
            match reply {
                Err(error) if error_kind(&error) == ErrorKind::Login => {
                    self.demands_login.store(true, Ordering::Relaxed);
                }
                reply => return reply,
            }
        }
        with_login.query_within(ANSWER_TIMEOUT, command).await
    }
}
