//! The kind of a server, from one INFO, and whether it is supported.

use std::cmp::Ordering;
use std::fmt;

use redis::RedisError;

use super::client::RedisClient;

/// The server software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerSoftware {
    /// Redis, and compatible servers that report themselves as Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl ServerSoftware {
    /// The oldest supported version: it has `EVALSHA` scripts with flags and the lag of consumer groups.
    pub const fn min_version(self) -> ServerVersion {
        match self {
            Self::Redis => ServerVersion { major: 7, minor: 0, patch: 0 },
            Self::Valkey => ServerVersion { major: 7, minor: 2, patch: 0 },
        }
    }
}

impl fmt::Display for ServerSoftware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis",
            Self::Valkey => "Valkey",
        })
    }
}

/// A version, such as 7.0.15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl ServerVersion {
    /// Parses `7.0.15`; missing numbers are 0, and text behind the third number (`-rc1`) is ignored.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-']).map(|number| number.parse::<u32>().ok());
        Some(Self {
            major: numbers.next()??,
            minor: numbers.next().flatten().unwrap_or(0),
            patch: numbers.next().flatten().unwrap_or(0),
        })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Whether the server accepts writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerRole {
    /// It does.
    Primary,
    /// It replicates another server; it may be promoted.
    Replica,
}

/// A server's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// The software.
    pub software: ServerSoftware,
    /// Its version.
    pub version: ServerVersion,
    /// Its policy when memory is full.
    pub maxmemory_policy: String,
    /// New at each start of the process.
    pub run_id: String,
    /// Its process id, as the server reports it.
    pub process_id: u32,
    /// Whether it accepts writes.
    pub role: ServerRole,
    /// Whether it is still loading its data and answers nothing else.
    pub loading: bool,
    /// Whether it writes an append-only file.
    pub aof_enabled: bool,
    /// Whether it is a node of a cluster.
    pub cluster_enabled: bool,
}

/// Why a server's description is unavailable.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("ask redis for INFO")]
    Redis(#[from] RedisError),
    #[error("the server is a Sentinel, which holds no data")]
    Sentinel,
    #[error("INFO of redis has no readable field {field}; needed: Redis {} or Valkey {} or later", ServerSoftware::Redis.min_version(), ServerSoftware::Valkey.min_version())]
    Missing { field: &'static str },
}

impl InspectError {
    /// What to do, unless the connection is the problem.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Sentinel => {
                "name the service that the Sentinels watch: redis.url = \"redis+sentinel://host:26379,host2:26379/mymaster/0\""
            }
            Self::Redis(_) | Self::Missing { .. } => "set redis.url to a server of Redis 7.0, Valkey 7.2 or later",
        }
    }
}

/// Why a server is not supported. Waiting does not fix it.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedServer {
    #[error("{software} {version} is too old; needed: {} or later", .software.min_version())]
    TooOld { software: ServerSoftware, version: ServerVersion },
    #[error("maxmemory-policy is {policy}, which removes counters and flags when memory is full; needed: noeviction")]
    Evicting { policy: String },
}

impl UnsupportedServer {
    /// How to fix it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::TooOld { .. } => "upgrade the server, or point redis.url at one that is new enough",
            Self::Evicting { .. } => {
                "set it with `redis-cli config set maxmemory-policy noeviction` and in the server's configuration file"
            }
        }
    }
}

/// Whether a supported server can serve now. Waiting may change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerReadiness {
    /// It does.
    Ready,
    /// It is a replica until it is promoted.
    Replica,
    /// It is loading its data.
    Loading,
}

impl ServerInfo {
    /// Checks that the server is supported: new enough, and without eviction. A replica is judged like any other.
    ///
    /// # Errors
    ///
    /// The reason.
    pub fn check_supported(&self) -> Result<(), UnsupportedServer> {
        if self.version.cmp(&self.software.min_version()) == Ordering::Less {
            return Err(UnsupportedServer::TooOld { software: self.software, version: self.version });
        }
        if self.maxmemory_policy != "noeviction" {
            return Err(UnsupportedServer::Evicting { policy: self.maxmemory_policy.clone() });
        }
        Ok(())
    }

    /// Whether the server can serve now.
    pub const fn readiness(&self) -> ServerReadiness {
        match (self.loading, self.role) {
            (true, _) => ServerReadiness::Loading,
            (false, ServerRole::Replica) => ServerReadiness::Replica,
            (false, ServerRole::Primary) => ServerReadiness::Ready,
        }
    }

    /// Parses the text of INFO.
    fn parse(info: &str) -> Result<Self, InspectError> {
        let field = |name: &'static str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(str::trim).ok_or(InspectError::Missing { field: name })
        };
        // Valkey has its own name for the field, unless it is configured to look like Redis.
        if ["redis_mode", "server_mode"].into_iter().any(|name| field(name).is_ok_and(|mode| mode == "sentinel")) {
            return Err(InspectError::Sentinel);
        }
        // Valkey also reports the Redis version that it is compatible with.
        let (software, name) = match field("valkey_version") {
            Ok(_) => (ServerSoftware::Valkey, "valkey_version"),
            Err(_) => (ServerSoftware::Redis, "redis_version"),
        };
        let set = |name| field(name).is_ok_and(|value| value == "1");
        Ok(Self {
            software,
            version: ServerVersion::parse(field(name)?).ok_or(InspectError::Missing { field: name })?,
            maxmemory_policy: field("maxmemory_policy")?.to_owned(),
            run_id: field("run_id")?.to_owned(),
            process_id: field("process_id")?.parse().map_err(|_| InspectError::Missing { field: "process_id" })?,
            role: if field("role")? == "master" { ServerRole::Primary } else { ServerRole::Replica },
            loading: set("loading"),
            aof_enabled: set("aof_enabled"),
            cluster_enabled: set("cluster_enabled"),
        })
    }
}

/// Asks the server for its description. Works while it loads, and for a user who may not read its configuration.
///
/// # Errors
///
/// INFO failed or lacks a field.
pub async fn inspect(client: &RedisClient) -> Result<ServerInfo, InspectError> {
    // INFO names no section, because servers before 7.0 accept only one, and the error must name their version.
    let info: Vec<u8> = client.query(&redis::cmd("INFO")).await?;
    ServerInfo::parse(&String::from_utf8_lossy(&info))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nprocess_id:12\r\nrun_id:abc\r\nloading:0\r\n\
                        maxmemory_policy:noeviction\r\nrole:master\r\naof_enabled:1\r\ncluster_enabled:0\r\n";

    fn judged(info: &str) -> Result<(), UnsupportedServer> {
        ServerInfo::parse(info).expect("complete").check_supported()
    }

    /// A server that is too old or evicts keys would lose counts silently.
    #[test]
    fn servers_are_judged_by_version_and_policy() {
        let valkey = |version| format!("{INFO}valkey_version:{version}\r\n");
        assert_eq!(judged(INFO), Ok(()));
        assert_eq!(judged(&INFO.replace("7.0.15", "255.255.255")), Ok(()));
        assert_eq!(judged(&valkey("7.2.0-rc1")), Ok(()));
        for (info, said) in [
            (INFO.replace("7.0.15", "6.2.19"), "Redis 6.2.19 is too old; needed: 7.0.0 or later"),
            (valkey("7.1.9"), "Valkey 7.1.9 is too old; needed: 7.2.0 or later"),
            (
                INFO.replace("noeviction", "allkeys-lru"),
                "maxmemory-policy is allkeys-lru, which removes counters and flags when memory is full; needed: noeviction",
            ),
        ] {
            assert_eq!(judged(&info).expect_err("unfit").to_string(), said);
        }
    }

    /// A replica may be promoted: if the daemon refused it for good, a standby would not start in a failover.
    #[test]
    fn a_replica_is_fit_and_not_ready() {
        let parsed = |info: &str| ServerInfo::parse(info).expect("complete");
        assert_eq!(parsed(INFO).readiness(), ServerReadiness::Ready);
        let replica = parsed(&INFO.replace("role:master", "role:slave"));
        assert_eq!((replica.check_supported(), replica.readiness()), (Ok(()), ServerReadiness::Replica));
        assert_eq!(parsed(&INFO.replace("loading:0", "loading:1")).readiness(), ServerReadiness::Loading);
    }

    /// A Sentinel answers INFO without the memory section: the error must name it, not a missing field.
    #[test]
    fn a_sentinel_is_told_by_each_software() {
        for mode in ["redis_mode", "server_mode"] {
            let error =
                ServerInfo::parse(&format!("valkey_version:8.1.8\r\n{mode}:sentinel\r\n")).expect_err("no data");
            assert!(matches!(error, InspectError::Sentinel), "{error}");
        }
    }

    /// The error must name a proxy that returns half of INFO, not an old server.
    #[test]
    fn a_missing_field_is_named() {
        let error = ServerInfo::parse(&INFO.replace("run_id", "other")).expect_err("incomplete");
        assert!(error.to_string().contains("run_id"));
    }
}
