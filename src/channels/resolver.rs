//! From names to addresses, without a thread: a name that nobody answers for holds up neither other names nor the end
//! of the process.
//!
//! `/etc/hosts` first, then the name servers of `/etc/resolv.conf`, or those of `[dns]`. Both files are read again when
//! they change. The system's own resolver is not used: it blocks a thread for each name, for up to half a minute, and
//! can't be cancelled.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use serde::{Deserialize, Serialize};

/// The files that say what the system knows.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// The longest time for which an answer is used again, whatever its name server says: a receiver that moves is found by
/// then.
const ANSWER_KEPT_MAX: Duration = Duration::from_secs(60);
/// The most answers that are kept.
const ANSWERS_MAX: u64 = 1024;

/// The section `[dns]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsConfig {
    /// The name servers that are asked; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
}

/// Why a name has no address. Both may pass: names are registered late, and name servers come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name servers know no such name, or no address of it.
    #[error("DNS: no such host")]
    NoSuchHost,
    /// No name server answered, or none could say.
    #[error("DNS: no answer")]
    NoAnswer,
}

/// Resolves names.
#[derive(Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    current: Mutex<Option<Current>>,
}

/// What was made of the files as they are now.
#[derive(Clone)]
struct Current {
    changed: [Option<SystemTime>; FILES.len()],
    hosts: Arc<Hosts>,
    /// Shares its connections and answers with its clones.
    resolver: TokioResolver,
}

impl Resolver {
    /// Reads nothing yet, and asks nobody.
    pub fn new(config: &DnsConfig) -> Self {
        Self { servers: config.servers.clone(), current: Mutex::new(None) }
    }

    /// All addresses of a name, or of an address its own. Knows no deadline but those of the name servers: the caller's
    /// comes first.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let name = Name::from_utf8(host).map_err(|_| ResolveError::NoSuchHost)?;
        let Current { hosts, resolver, .. } = self.current()?;
        let listed = listed(&hosts, &name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let found = resolver.lookup_ip(name).await.map_err(|error| resolve_error(&error))?;
        Ok(found.iter().collect())
    }

    fn current(&self) -> Result<Current, ResolveError> {
        let changed = FILES.map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok());
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current.as_ref().filter(|current| current.changed == changed) {
            return Ok(current.clone());
        }
        // Without either file there is nothing to know, and names have no answer.
        let hosts = Arc::new(Hosts::from_system().unwrap_or_default());
        let resolver = self.build().map_err(|_| ResolveError::NoAnswer)?;
        Ok(current.insert(Current { changed, hosts, resolver }).clone())
    }

    fn build(&self) -> Result<TokioResolver, NetError> {
        let (config, options) = match self.servers.as_slice() {
            [] => read_system_conf()?,
            servers => {
                let servers = servers.iter().map(name_server).collect();
                (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
            }
        };
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let own = builder.options_mut();
        *own = options;
        own.cache_size = ANSWERS_MAX;
        (own.positive_max_ttl, own.negative_max_ttl) = (Some(ANSWER_KEPT_MAX), Some(ANSWER_KEPT_MAX));
        // They are read here: a name that is listed with one kind of address must not ask a name server for the other.
        own.use_hosts_file = ResolveHosts::Never;
        builder.build()
    }
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("changed", &self.changed).finish_non_exhaustive()
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connection = |protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = address.port();
        connection
    };
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    server.connections = vec![connection(ProtocolConfig::Udp), connection(ProtocolConfig::Tcp)];
    server
}

/// The addresses of a name in `/etc/hosts`.
fn listed(hosts: &Hosts, name: &Name) -> Vec<IpAddr> {
    let of = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
    let found = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
    found
        .flat_map(|found| found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
        .collect()
}

fn resolve_error(error: &NetError) -> ResolveError {
    if error.is_no_records_found() { ResolveError::NoSuchHost } else { ResolveError::NoAnswer }
}
