//! The client and answers of Sentinels: outdated, late, missing, and without a primary.

use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::{ErrorKind, ReadError, RedisClient, RedisEndpoint, StreamReader, error_kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::eventually::eventually;
use crate::support::redis_server::RedisServer;

/// A Sentinel whose answers the test controls.
struct SaidBySentinel {
    port: u16,
    answer: watch::Sender<Said>,
}

#[derive(Clone, Copy)]
enum Said {
    Primary {
        port: u16,
        epoch: u64,
    },
    /// It hangs: it answers after its next change.
    Nothing,
}

impl SaidBySentinel {
    async fn start(said: Said) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (answer, told) = watch::channel(said);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(answer_all(connection, told.clone()));
            }
        });
        Self { port, answer }
    }

    fn says(&self, said: Said) {
        self.answer.send_replace(said);
    }
}

async fn answer_all(mut connection: TcpStream, mut told: watch::Receiver<Said>) {
    let mut asked = [0; 512];
    while let Ok(1..) = connection.read(&mut asked).await {
        let said = told.wait_for(|said| matches!(said, Said::Primary { .. })).await.map(|said| *said);
        let Ok(Said::Primary { port, epoch }) = said else { return };
        let mut reply = "*6\r\n".to_owned();
        for word in ["ip", "127.0.0.1", "port", &port.to_string(), "config-epoch", &epoch.to_string()] {
            reply.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        if connection.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn endpoint(sentinels: &[&SaidBySentinel]) -> RedisEndpoint {
    let hosts: Vec<String> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
    let config = RedisConfig {
        url: format!("redis+sentinel://{}/mymaster", hosts.join(",")).into(),
        url_file: None,
        data_dir: "unused".into(),
        embedded_port: 1,
        ca_file: None,
    };
    RedisEndpoint::from_config(&config).expect("a good URL")
}

/// The port of the server that answers.
async fn answering(client: &RedisClient) -> Result<u16, redis::RedisError> {
    let info: String = client.query(redis::cmd("INFO").arg("server")).await?;
    let port = info.lines().find_map(|line| line.strip_prefix("tcp_port:")).expect("a port");
    Ok(port.trim().parse().expect("a number"))
}

/// A Sentinel that was cut off still names the former primary: writes there would be lost.
#[tokio::test]
async fn the_newest_configuration_is_believed_and_no_older_one_after_it() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let says_old = Said::Primary { port: old.port(), epoch: 3 };
    let says_new = Said::Primary { port: new.port(), epoch: 4 };
    let sentinels = [SaidBySentinel::start(says_old).await, SaidBySentinel::start(says_new).await];
    let endpoint = endpoint(&[&sentinels[0], &sentinels[1]]);
    let client = endpoint.client("usage").expect("a client");
    assert_eq!(answering(&client).await, Ok(new.port()));
    // Only the Sentinel that was cut off answers. The current primary has no known problem, so the client keeps it.
    sentinels[1].says(Said::Nothing);
    StreamReader::connect(&endpoint, "usage").await.expect_err("only an older configuration is told");
    assert_eq!(answering(&client).await, Ok(new.port()));
    // Both agree: the service was set up anew.
    sentinels[1].says(says_old);
    StreamReader::connect(&endpoint, "usage").await.expect("connected");
    assert_eq!(answering(&client).await, Ok(old.port()));
}

/// The server that a Sentinel names may not be the primary yet, or no longer.
#[tokio::test]
async fn a_server_that_says_it_is_a_replica_is_waited_for() {
    let (primary, replica) = (RedisServer::start_to_be_followed(), RedisServer::start());
    let port = primary.port().to_string();
    let () = replica.client().query(redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&port)).await.expect("it follows");
    let sentinel = SaidBySentinel::start(Said::Primary { port: replica.port(), epoch: 1 }).await;
    let endpoint = endpoint(&[&sentinel]);
    let client = endpoint.client("usage").expect("a client");
    let error = answering(&client).await.expect_err("a replica");
    assert_eq!(error_kind(&error), ErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains(&replica.port().to_string()), "{error}");
    let error = StreamReader::connect(&endpoint, "usage").await.expect_err("a replica");
    assert!(matches!(error, ReadError::NoPrimary { .. }) && error.error_kind() == ErrorKind::ReadOnly, "{error:?}");
    let () = replica.client().query(redis::cmd("REPLICAOF").arg("NO").arg("ONE")).await.expect("promoted");
    assert_eq!(answering(&client).await, Ok(replica.port()));
}

/// A primary that was cut off still answers. Only the Sentinels know, so the client keeps asking them: both kinds of
/// connection leave the primary although nothing fails.
#[tokio::test]
async fn connections_leave_a_primary_that_was_replaced_and_still_answers() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinel = SaidBySentinel::start(Said::Primary { port: old.port(), epoch: 1 }).await;
    let endpoint = endpoint(&[&sentinel]);
    let stop = CancellationToken::new();
    let watching = tokio::spawn(endpoint.clone().watch(stop.clone()));
    let client = endpoint.client("usage").expect("a client");
    let mut reader = StreamReader::connect(&endpoint, "usage").await.expect("connected");
    assert_eq!(answering(&client).await, Ok(old.port()));
    sentinel.says(Said::Primary { port: new.port(), epoch: 2 });
    eventually("the client goes to the new primary", || async {
        (answering(&client).await == Ok(new.port())).then_some(())
    })
    .await;
    let error = reader.request("0-0", 1, None).await.expect_err("replaced");
    assert!(matches!(error, ReadError::Replaced) && error.error_kind() == ErrorKind::Moved, "{error:?}");
    StreamReader::connect(&endpoint, "usage").await.expect("connected").request("0-0", 1, None).await.expect("written");
    stop.cancel();
    watching.await.expect("it ends");
}
