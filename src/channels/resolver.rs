//! Turns names into addresses without a thread: a name that no server answers for delays neither other names nor the
//! end of the process.
//!
//! `/etc/hosts` comes first, then the name servers of `/etc/resolv.conf`, or those of `[dns]`. The resolver reads both
//! files again when they change. It does not use the resolver of the system, which blocks a thread for each name, for
//! up to half a minute, and can't be canceled. Read next: [`super::dns_replies`] for the cache of answers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::dns_replies::{DnsReplies, DnsReply};
use super::hosts_file::HostsFile;

/// How long the answer of one family waits for that of the other (RFC 8305, 3). Some name servers never answer
/// questions about IPv6.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// The part of an attempt's deadline for its name, as a divisor. The connection and the response need the rest.
const DEADLINE_PARTS: u32 = 2;
/// Maximum number of times a question is repeated, whatever `/etc/resolv.conf` says: all of them fit into the deadline.
const REPETITIONS_MAX: usize = 2;

/// The section `[dns]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsConfig {
    /// The name servers to ask; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
}

/// Why a name has no address. Both failures are transient: names are registered late, and name servers recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name does not exist, or it has no address.
    #[error("DNS: no such host")]
    NoSuchHost,
    /// No name server answered, or none knew.
    #[error("DNS: no answer")]
    NoAnswer,
    /// The system could not open a socket for the query, or a file of host names.
    #[error("DNS: too many open files")]
    NoDescriptors,
}

/// Whether the process, or the machine, has no file descriptors left.
pub(super) fn lacks_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [Errno::EMFILE, Errno::ENFILE].contains(&Errno::from_raw(code)))
}

/// Resolves names.
#[derive(Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    files: SystemFiles,
    within: Duration,
    current: Mutex<Option<Current>>,
}

/// The files with the configuration of the system.
#[derive(Debug)]
struct SystemFiles {
    resolv_conf: PathBuf,
    hosts: PathBuf,
}

/// The parsed present files.
#[derive(Debug, Clone)]
struct Current {
    changed: [Option<SystemTime>; 2],
    hosts: Arc<HostsFile>,
    /// `None` if no name server is known. Clones share its connections.
    resolver: Option<TokioResolver>,
    answers: Arc<DnsReplies>,
}

impl Resolver {
    /// Creates a resolver for attempts with this deadline. Does not read the files or ask a server yet.
    pub fn new(config: &DnsConfig, deadline: Duration) -> Self {
        let files = SystemFiles { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() };
        Self::reading(files, config, deadline)
    }

    fn reading(files: SystemFiles, config: &DnsConfig, deadline: Duration) -> Self {
        let within = deadline / DEADLINE_PARTS;
        Self { servers: config.servers.clone(), files, within, current: Mutex::new(None) }
    }

    /// Addresses of a name, at most 16 of each family, IPv6 first. An address resolves to itself.
    ///
    /// # Errors
    ///
    /// [`ResolveError`], before the attempt's deadline.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let Current { hosts, resolver, answers, .. } = self.current()?;
        if let Some(listed) = hosts.addresses(host) {
            return Ok(listed.to_vec());
        }
        let name = name_of(host).ok_or(ResolveError::NoSuchHost)?;
        let resolver = resolver.ok_or(ResolveError::NoAnswer)?;
        if let Some(kept) = answers.get(&name, Instant::now()) {
            return Ok(kept);
        }
        let asked = timeout(self.within, ask(&resolver, name.clone())).await;
        let answer = asked.unwrap_or(Err(ResolveError::NoAnswer))?;
        let found = answer.addresses.clone();
        answers.keep(name, answer, Instant::now());
        Ok(found)
    }

    fn current(&self) -> Result<Current, ResolveError> {
        let SystemFiles { resolv_conf, hosts } = &self.files;
        let changed = [resolv_conf, hosts].map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok());
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current.as_ref().filter(|current| current.changed == changed) {
            return Ok(current.clone());
        }
        let hosts = Arc::new(HostsFile::parse(&contents_of(hosts)?));
        let resolver = self.build(&contents_of(resolv_conf)?).ok();
        Ok(current.insert(Current { changed, hosts, resolver, answers: Arc::default() }).clone())
    }

    fn build(&self, resolv_conf: &[u8]) -> Result<TokioResolver, NetError> {
        let (config, options) = match self.servers.as_slice() {
            [] => parse_resolv_conf(resolv_conf)?,
            servers => {
                let servers = servers.iter().map(name_server).collect();
                (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
            }
        };
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let own = builder.options_mut();
        *own = options;
        own.attempts = own.attempts.min(REPETITIONS_MAX);
        let tries = u32::try_from(own.attempts + 1).unwrap_or(u32::MAX);
        own.timeout = own.timeout.min(self.within / tries);
        // `DnsReplies` keeps addresses: hickory would keep messages of up to 64 KiB, and bounds only their number.
        own.cache_size = 0;
        // A name that `HostsFile` lists with one kind of address must not ask a name server for the other.
        own.use_hosts_file = ResolveHosts::Never;
        builder.build()
    }
}

/// Asks for both families at the same time, and uses the answers that arrive up to a short delay after the first
/// addresses.
async fn ask(resolver: &TokioResolver, name: Name) -> Result<DnsReply, ResolveError> {
    let mut v6 = pin!(resolver.lookup(name.clone(), RecordType::AAAA));
    let mut v4 = pin!(resolver.lookup(name, RecordType::A));
    let (first, second) = tokio::select! {
        first = &mut v6 => { let second = after(&first, v4).await; (first, second) }
        first = &mut v4 => { let second = after(&first, v6).await; (first, second) }
    };
    let mut found: Vec<_> = [Some(first), second].into_iter().flatten().collect();
    // IPv6 first: a client that connects to several addresses prefers the family of the first one.
    found.sort_by_key(|found| found.as_ref().is_ok_and(|lookup| lookup.query().query_type() == RecordType::A));
    let answer = DnsReply::from_lookups(found.iter().flatten());
    if !answer.addresses.is_empty() {
        return Ok(answer);
    }
    let errors = || found.iter().filter_map(|found| found.as_ref().err());
    let is_known_absent = errors().any(NetError::is_nx_domain) || errors().all(NetError::is_no_records_found);
    let has_no_socket = || errors().any(|error| matches!(error, NetError::Io(error) if lacks_descriptors(error)));
    Err(match is_known_absent {
        true => ResolveError::NoSuchHost,
        false if has_no_socket() => ResolveError::NoDescriptors,
        false => ResolveError::NoAnswer,
    })
}

/// The contents of a system file. A missing file counts as empty, which is not an error. A file that could not be
/// opened without a free descriptor is read again: otherwise it would count as empty until it changes.
fn contents_of(file: &Path) -> Result<Vec<u8>, ResolveError> {
    match std::fs::read(file) {
        Err(error) if lacks_descriptors(&error) => Err(ResolveError::NoDescriptors),
        read => Ok(read.unwrap_or_default()),
    }
}

/// Waits for the second answer while that is useful after the first one; `None` if it did not arrive in time.
async fn after(
    first: &Result<Lookup, NetError>,
    second: impl Future<Output = Result<Lookup, NetError>>,
) -> Option<Result<Lookup, NetError>> {
    match first {
        Ok(lookup) if has_address(lookup) => timeout(RESOLUTION_DELAY, second).await.ok(),
        // The name does not exist, so it has no address of the other family either.
        Err(error) if error.is_nx_domain() => None,
        Ok(_) | Err(_) => Some(second.await),
    }
}

fn has_address(lookup: &Lookup) -> bool {
    lookup.answers().iter().any(|record| record.data.ip_addr().is_some())
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    server.connections.iter_mut().for_each(|connection| connection.port = address.port());
    server
}

/// The name for DNS: any bytes between the dots. Only names beyond ASCII must follow rules, those of IDNA.
fn name_of(host: &str) -> Option<Name> {
    if !host.is_ascii() {
        return Name::from_utf8(host).ok();
    }
    let relative = host.strip_suffix('.').unwrap_or(host);
    let mut name = Name::from_labels(relative.split('.').map(str::as_bytes)).ok()?;
    // The search domains of /etc/resolv.conf apply to a name without a dot at the end.
    name.set_fqdn(relative.len() < host.len());
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without name servers can reach the names of its `/etc/hosts`. An earlier version resolved nothing
    /// there.
    #[tokio::test]
    async fn the_hosts_file_counts_without_a_name_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = SystemFiles { resolv_conf: folder.path().join("absent"), hosts: folder.path().join("hosts") };
        std::fs::write(&files.hosts, "127.0.0.1 my_receiver.internal\n").expect("written");
        let (empty, hosts) = (folder.path().join("resolv.conf"), files.hosts.clone());
        std::fs::write(&empty, "# nothing\n").expect("written");
        for resolv_conf in [files.resolv_conf, empty] {
            let files = SystemFiles { resolv_conf, hosts: hosts.clone() };
            let resolver = Resolver::reading(files, &DnsConfig::default(), Duration::from_secs(15));
            let found = resolver.addresses("My_Receiver.internal.").await;
            assert_eq!(found, Ok(vec![IpAddr::from([127, 0, 0, 1])]));
            assert_eq!(resolver.addresses("elsewhere.test").await, Err(ResolveError::NoAnswer));
        }
    }

    /// Docker Compose creates names with underscores, and other systems create worse ones.
    #[test]
    fn a_name_is_any_bytes_between_dots() {
        for (host, labels) in [("my_db", 1), ("a_.b-.test", 3), ("-.test.", 2), ("b\u{fc}ro.test", 2), ("a+b.test", 2)]
        {
            let name = name_of(host).expect(host);
            assert_eq!((name.iter().count(), name.is_fqdn()), (labels, host.ends_with('.')), "{host}");
        }
        for host in ["", ".", "a..test", &"x".repeat(64), &"x.".repeat(200)] {
            assert_eq!(name_of(host), None, "{host}");
        }
    }
}
