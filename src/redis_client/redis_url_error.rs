//! Errors in a Redis URL, and what is allowed instead. Never holds any part of the URL.

/// What is wrong with a URL, and what is allowed.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    #[error(
        "not a URL ({0}); allowed: redis://[user][:password]@host[:port][/database], where a user or password writes \
         characters like / ? # @ : % percent-encoded (%23 for #)"
    )]
    NotAUrl(#[source] url::ParseError),
    #[error(
        "unknown scheme; allowed: embedded, redis://, rediss://, redis+unix://, unix://, redis+sentinel://, \
         rediss+sentinel://, redis+cluster:// and rediss+cluster://"
    )]
    Scheme,
    #[error("no host; allowed: redis://host, redis://host:port, redis://[ipv6-address]:port")]
    NoHost,
    #[error(
        "several hosts; allowed: one host after redis:// and rediss://, a list after redis+sentinel:// and redis+cluster://"
    )]
    SeveralHosts,
    #[error("the list of hosts is empty or has an empty place; allowed: host:port,host2:port2")]
    EmptyHost,
    #[error("the list of hosts has one that is neither a name nor an address; allowed: host:port,[ipv6-address]:port")]
    Host,
    #[error(
        "the list of hosts has a port that is no number from 1 to 65535; allowed: host:port,host2:port2 (a / in a user \
         or password is written %2F)"
    )]
    ListPort,
    #[error(
        "no service; allowed: redis+sentinel://host:26379,host2:26379/service/0, with the name under which the \
         Sentinels watch the primary"
    )]
    NoService,
    #[error(
        "what follows the service is not a database number; allowed: redis+sentinel://host:26379/service/0 (a / in a \
         user or password is written %2F)"
    )]
    SentinelDatabase,
    #[error(
        "unknown parameter; allowed: sentinel_user and sentinel_pass after the database (a ? in a user or password is \
         written %3F)"
    )]
    SentinelParameter,
    #[error(
        "a cluster has no database but 0; allowed: redis+cluster://host:7000,host2:7001 (a / in a user or password is \
         written %2F)"
    )]
    ClusterDatabase,
    #[error("a parameter; allowed: none in a cluster URL (a ? in a user or password is written %3F)")]
    ClusterParameter,
    #[error("port 0; allowed: 1 to 65535")]
    Port,
    #[error(
        "what follows the host is not a database number; allowed: redis://host:port/0 (a / in a user or password is written %2F)"
    )]
    Database,
    #[error(
        "unknown parameter; allowed: db, user and pass after redis+unix:///path? (a ? in a user or password is written %3F)"
    )]
    Parameter,
    #[error("a part after #; allowed: none (a # in a user or password is written %23)")]
    Fragment,
    #[error("broken percent-encoding; allowed: % followed by two hex digits (a % itself is written %25), giving UTF-8")]
    Encoding,
    #[error("no absolute path of a socket; allowed: redis+unix:///path/to/redis.sock?db=0&user=name&pass=password")]
    Path,
}
