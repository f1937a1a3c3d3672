//! The stream reader: on a real server, and with bytes that are cut and damaged in every way.

use std::time::Duration;

use crate::support::eventually::WAIT_MAX;
use crate::support::redis_server::RedisServer;
use crate::support::xread_reply::xread_reply;
use proptest::prelude::*;
use quotabell::redis_client::{
    ErrorKind, ReadError, RedisClient, RedisEndpoint, StreamReader, TruncatedEntry, XreadReply, config::RedisConfig,
};
use quotabell::types::StreamId;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Entries as owned text, for comparisons.
type Owned = Vec<(String, Vec<(String, String)>)>;

fn target(url: &str) -> RedisEndpoint {
    let config =
        RedisConfig { url: url.into(), url_file: None, data_dir: "data".into(), embedded_port: 1, ca_file: None };
    RedisEndpoint::from_config(&config).expect("a valid URL")
}

fn owned(reply: &XreadReply) -> Owned {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    reply
        .entries()
        .map(|entry| (text(entry.id), entry.fields.map(|field| (text(field.name), text(field.value))).collect()))
        .collect()
}

async fn add(client: &RedisClient, stream: &str, id: &str, fields: &[(&str, &[u8])]) -> String {
    let mut command = redis::cmd("XADD");
    command.arg(stream).arg(id);
    for (name, value) in fields {
        command.arg(name).arg(value);
    }
    client.query(&command).await.expect("the entry is added")
}

async fn read(reader: &mut StreamReader, after: &str, count: u32) -> XreadReply {
    reader.request(after, count, None).await.expect("the request is written");
    reader.receive().await.expect("a reply")
}

/// The reader must return the appended entries: all, once, in order.
#[tokio::test]
async fn entries_are_read_in_order_and_only_after_the_given_id() {
    let server = RedisServer::start();
    let client = server.client();
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    assert_eq!(owned(&read(&mut reader, "0-0", 10).await), Owned::new());

    let binary: Vec<u8> = (0..=255).collect();
    add(&client, "usage", "5-1", &[("subject", b"alice"), ("units", b"3")]).await;
    add(&client, "usage", "5-2", &[("", b""), ("bytes", &binary)]).await;
    add(&client, "usage", "7-0", &[("subject", b"bob\r\n$3\r\n")]).await;
    let received = read(&mut reader, "0-0", 2).await;
    assert_eq!((received.entries().len(), received.last()), (2, Some(StreamId { ms: 5, seq: 2 })));
    let now: Vec<i64> = client.query(&redis::cmd("TIME")).await.expect("the time");
    assert!((now[0] * 1000 - received.server_ms()).abs() < 10_000, "{} at {now:?}", received.server_ms());
    assert_eq!(owned(&received)[0].1, [("subject", "alice"), ("units", "3")].map(|(n, v)| (n.into(), v.into())));
    let second = received.entries().nth(1).expect("two entries");
    assert_eq!(second.fields.last().expect("two fields").value, binary);

    let received = read(&mut reader, "5-2", 10).await;
    assert_eq!((received.entries().len(), received.last()), (1, Some(StreamId { ms: 7, seq: 0 })));
    assert_eq!(owned(&received)[0].1, [("subject".to_owned(), "bob\r\n$3\r\n".to_owned())]);
    assert_eq!(read(&mut reader, "7-0", 10).await.last(), None);
}

/// The caller processes one reply while the server reads the next: the first must not change.
#[tokio::test]
async fn a_reply_stays_as_it_was_while_others_come() {
    let server = RedisServer::start();
    let client = server.client();
    for id in ["1-0", "2-0", "3-0"] {
        add(&client, "usage", id, &[("subject", id.as_bytes())]).await;
    }
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    let first = read(&mut reader, "0-0", 2).await;
    let before = owned(&first);
    reader.request("2-0", 2, None).await.expect("the request is written");
    assert!(matches!(reader.request("2-0", 2, None).await, Err(ReadError::Desynchronized)));
    assert_eq!(owned(&reader.receive().await.expect("a reply"))[0].0, "3-0");
    assert_eq!((before.len(), owned(&first)), (2, before));
    assert!(matches!(reader.receive().await, Err(ReadError::Desynchronized)));
}

/// The time of a blocked read must be that of its end, or the batch would look older than it is.
#[tokio::test]
async fn a_blocked_read_ends_with_an_entry_or_with_its_time() {
    let server = RedisServer::start();
    let client = server.client();
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    let begun: Vec<i64> = client.query(&redis::cmd("TIME")).await.expect("the time");
    let begun_ms = begun[0] * 1000 + begun[1] / 1000;
    reader.request("$", 10, Some(Duration::from_millis(150))).await.expect("the request is written");
    let received = reader.receive().await.expect("a reply");
    assert_eq!(received.last(), None);
    assert!(received.server_ms() >= begun_ms + 150, "{} began at {begun_ms}", received.server_ms());

    reader.request("$", 10, Some(Duration::from_secs(30))).await.expect("the request is written");
    wait_for_blocked(&client).await;
    let id = add(&client, "usage", "*", &[("subject", b"alice")]).await;
    let received = reader.receive().await.expect("a reply");
    assert_eq!(received.last().map(|id| id.to_string()), Some(id));
    assert!(received.server_ms() >= i64::try_from(received.last().expect("one entry").ms).expect("a time"));
}

async fn wait_for_blocked(client: &RedisClient) {
    let blocked = async {
        loop {
            let info: String = client.query(redis::cmd("INFO").arg("clients")).await.expect("INFO");
            if info.contains("blocked_clients:1") {
                return;
            }
        }
    };
    tokio::time::timeout(WAIT_MAX, blocked).await.expect("the reader blocks");
}

/// A caller that stops waiting (a signal, a lost lease) and waits again must not lose or repeat bytes.
#[tokio::test]
async fn a_receive_that_is_given_up_goes_on_where_it_was() {
    let server = RedisServer::start();
    let client = server.client();
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    reader.request("0-0", 10, Some(Duration::from_secs(30))).await.expect("the request is written");
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_millis(5), reader.receive()).await.expect_err("nothing to read yet");
    }
    add(&client, "usage", "1-0", &[("subject", b"alice")]).await;
    assert_eq!(reader.receive().await.expect("a reply").entries().len(), 1);
}

/// One huge entry must be read without keeping its memory.
#[tokio::test]
async fn a_huge_reply_is_read_and_its_memory_given_back() {
    let server = RedisServer::start();
    let client = server.client();
    let value = vec![b'x'; 15 * 1024 * 1024];
    add(&client, "usage", "1-0", &[("subject", &value)]).await;
    add(&client, "usage", "2-0", &[("subject", b"alice")]).await;
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    let received = read(&mut reader, "0-0", 1).await;
    assert!(received.bytes() > value.len(), "{}", received.bytes());
    assert_eq!(
        received.entries().next().and_then(|entry| entry.fields.last()).expect("a field").value.len(),
        value.len()
    );
    assert_eq!(owned(&read(&mut reader, "1-0", 1).await)[0].0, "2-0");
    assert!(reader.capacity() <= 9 * 1024 * 1024, "{}", reader.capacity());
}

/// The server builds a whole reply before it sends it: with large entries after small ones it would hold all of them
/// twice.
#[tokio::test]
async fn the_server_ends_a_reading_rather_than_hold_more_than_a_subscriber_may_have() {
    const MIB: usize = 1 << 20;
    let server = RedisServer::start();
    let client = server.client();
    let value = vec![b'x'; MIB];
    for id in 1..=100 {
        add(&client, "usage", &format!("{id}-0"), &[("payload", &value)]).await;
    }
    let memory = async |field: &str| -> usize {
        let info: String = client.query(redis::cmd("INFO").arg("memory")).await.expect("INFO");
        let value = info.split(&format!("{field}:")).nth(1).expect("a field").lines().next();
        value.and_then(|value| value.parse().ok()).expect("a number")
    };
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    assert!(reader.unbounded().is_none());
    let () = client.query(redis::cmd("CONFIG").arg("RESETSTAT")).await.expect("reset");
    let before = memory("used_memory").await;
    reader.request("0-0", 2000, None).await.expect("the request is written");
    let error = reader.receive().await.expect_err("beyond the limit");
    assert_eq!(error.error_kind(), ErrorKind::Unreachable, "{error}");
    let added = memory("used_memory_peak").await - before;
    assert!((32 * MIB..40 * MIB).contains(&added), "{added}");
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    assert_eq!(read(&mut reader, "0-0", 16).await.entries().len(), 16);
}

/// An entry beyond the server's limit for subscribers must be recognized and refused, without storing its content.
#[tokio::test]
async fn an_entry_that_is_too_long_is_read_no_further() {
    const BOUND: usize = 16 << 20;
    let server = RedisServer::start();
    let client = server.client();
    add(&client, "usage", "1-0", &[("subject", b"alice")]).await;
    add(&client, "usage", "2-0", &[("subject", b"bob"), ("payload", &vec![b'x'; BOUND]), ("ts", b"5")]).await;
    // The bytes around one field: the head, the id, names and lengths.
    let around = "*2\r\n$3\r\n3-0\r\n*2\r\n$1\r\np\r\n$16777216\r\n\r\n".len();
    add(&client, "usage", "3-0", &[("p", &vec![b'x'; BOUND - around])]).await;
    add(&client, "usage", "4-0", &[("p", &vec![b'x'; BOUND - around + 1])]).await;
    add(&client, "usage", "5-0", &[("subject", b"carol"), ("payload", &vec![b'x'; 3 * BOUND])]).await;
    let endpoint = target(&server.url());
    let failed = async |mut reader: StreamReader, after: &str, count| {
        reader.request(after, count, None).await.expect("the request is written");
        let error = reader.receive().await.expect_err("too long");
        assert!(reader.capacity() <= 4 * BOUND, "{}", reader.capacity());
        error
    };
    let limited = async || StreamReader::connect(&endpoint, "usage").await.expect("a connection");
    let unbounded = async || StreamReader::connect_unbounded(&endpoint, "usage").await.expect("a connection");
    let of = |strings: &[&[u8]]| strings.iter().map(|string| string.to_vec()).collect::<Vec<_>>();
    let cut = vec![b'x'; 1024];
    assert!(matches!(failed(limited().await, "0-0", 2).await, ReadError::TooLong { .. }), "alice comes first");
    match failed(limited().await, "1-0", 1).await {
        // Entries behind the large one may have arrived with it.
        ReadError::LongEntry(TruncatedEntry { id: StreamId { ms: 2, seq: 0 }, strings }) => {
            assert_eq!(strings[..4], of(&[b"subject", b"bob", b"payload", &cut]));
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(read(&mut limited().await, "2-0", 1).await.entries().len(), 1, "as long as one may be");
    assert!(matches!(failed(limited().await, "3-0", 1).await, ReadError::LongEntry(_)), "one byte more");
    assert_eq!(failed(limited().await, "4-0", 1).await.error_kind(), ErrorKind::Unreachable, "the server hangs up");
    match failed(unbounded().await, "4-0", 1).await {
        ReadError::LongEntry(entry) => {
            assert_eq!(
                entry,
                TruncatedEntry {
                    id: StreamId { ms: 5, seq: 0 },
                    strings: of(&[b"subject", b"carol", b"payload", &cut])
                }
            );
        }
        error => panic!("{error:?}"),
    }
}

/// An error reply must be classified, and must not desynchronize the reader.
#[tokio::test]
async fn errors_of_the_server_are_told_by_kind_and_leave_the_reader_in_step() {
    let server = RedisServer::start();
    let client = server.client();
    let () = client.query(redis::cmd("SET").arg("text").arg("x")).await.expect("set");
    let mut reader = StreamReader::connect(&target(&server.url()), "text").await.expect("a connection");
    reader.request("0-0", 1, None).await.expect("the request is written");
    let error = reader.receive().await.expect_err("the key is no stream");
    assert_eq!(error.error_kind(), ErrorKind::WrongType, "{error}");
    let () = client.query(redis::cmd("DEL").arg("text")).await.expect("del");
    add(&client, "text", "1-0", &[("subject", b"alice")]).await;
    assert_eq!(read(&mut reader, "0-0", 1).await.entries().len(), 1);
    reader.request("not an id", 1, None).await.expect("the request is written");
    assert_eq!(reader.receive().await.expect_err("no id").error_kind(), ErrorKind::Other);

    let permissions = ["reset", "on", ">s3cret", "~*", "-@all", "+xread"];
    let () = client.query(redis::cmd("ACL").arg("SETUSER").arg("bob").arg(&permissions)).await.expect("a user");
    let url = server.url().replace("redis://", "redis://bob:s3cret@");
    let mut bob = StreamReader::connect(&target(&url), "text").await.expect("a user without CLIENT connects");
    assert!(bob.unbounded().expect("bob may not subscribe").to_string().contains("SUBSCRIBE"));
    bob.request("0-0", 1, None).await.expect("the request is written");
    let error = bob.receive().await.expect_err("bob may not ask for the time");
    assert_eq!(error.error_kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("TIME"), "{error}");
}

/// The end of the server must end the wait at once with a transient error.
#[tokio::test]
async fn a_server_that_dies_while_a_read_blocks_is_away() {
    let mut server = RedisServer::start();
    let client = server.client();
    let mut reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    reader.request("0-0", 1, Some(Duration::from_secs(60))).await.expect("the request is written");
    wait_for_blocked(&client).await;
    server.kill();
    let ended = tokio::time::timeout(WAIT_MAX, reader.receive()).await.expect("no wait for the block");
    assert_eq!(ended.expect_err("it is gone").error_kind(), ErrorKind::Unreachable);
    let refused = StreamReader::connect(&target(&server.url()), "usage").await.expect_err("nobody listens");
    assert_eq!(refused.error_kind(), ErrorKind::Unreachable, "{refused}");
}

/// The bytes, in these pieces, as the reply to one request.
async fn answered(pieces: &[&[u8]]) -> Result<(XreadReply, Owned), ReadError> {
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let mut reader = StreamReader::over(ours, "usage");
    reader.request("0-0", 10, Some(Duration::from_millis(1))).await?;
    swallow_request(&mut theirs).await;
    let feed = async {
        for piece in pieces {
            theirs.write_all(piece).await.expect("the reader lives");
            // The reader runs until it needs more, so that each piece is a separate read.
            tokio::task::yield_now().await;
        }
        drop(theirs);
    };
    let (received, ()) = tokio::join!(reader.receive(), feed);
    received.map(|received| {
        let entries = owned(&received);
        (received, entries)
    })
}

async fn swallow_request(theirs: &mut DuplexStream) {
    let mut request = vec![0; 4096];
    let length = theirs.read(&mut request).await.expect("a request");
    assert!(request[..length].ends_with(b"$4\r\nTIME\r\n"), "one write holds both commands");
}

const TIME: &str = "*2\r\n$10\r\n1763715600\r\n$6\r\n123999\r\n";

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

/// Redis returns nil for the fields of a deleted entry; other servers use other forms.
#[test]
fn nil_fields_and_all_ways_to_say_nothing_are_understood() {
    let deleted = format!("*1\r\n*2\r\n$5\r\nusage\r\n*2\r\n*2\r\n$3\r\n1-0\r\n*-1\r\n*2\r\n$3\r\n2-0\r\n*0\r\n{TIME}");
    let (received, entries) = run(answered(&[deleted.as_bytes()])).expect("a reply");
    assert_eq!((received.entries().len(), received.last()), (2, Some(StreamId { ms: 2, seq: 0 })));
    assert_eq!(received.server_ms(), 1_763_715_600_123);
    assert_eq!(received.bytes(), deleted.len() - TIME.len());
    assert_eq!(entries, [("1-0".to_owned(), vec![]), ("2-0".to_owned(), vec![])]);
    for nothing in ["*-1\r\n", "_\r\n", "%1\r\n$5\r\nusage\r\n*0\r\n", "*0\r\n", "*1\r\n*2\r\n$5\r\nusage\r\n*0\r\n"] {
        let reply = format!("{nothing}{TIME}");
        let (received, entries) = run(answered(&[reply.as_bytes()])).expect("a reply");
        assert_eq!((received.entries().len(), received.last(), received.bytes()), (0, None, nothing.len()));
        assert!(entries.is_empty());
    }
}

/// A broken reply must be an error: neither a panic nor an endless wait nor an arbitrary allocation.
#[test]
fn broken_replies_are_refused() {
    let entry = "*1\r\n*2\r\n$5\r\nusage\r\n*1\r\n";
    for broken in [
        "+OK\r\n".to_owned(),
        "*2\r\n".to_owned(),
        "*1\r\n*3\r\n".to_owned(),
        "*1\r\n*2\r\n$-1\r\n".to_owned(),
        format!("{entry}*3\r\n"),
        format!("{entry}*2\r\n$3\r\n1-0\r\n*3\r\n"),
        format!("{entry}*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nabc"),
        format!("{entry}*2\r\n$3\r\n1-0\r\n*2\r\n$536870913\r\n"),
        "*1\r\n*2\r\n$5\r\nusage\r\n*4294967296\r\n".to_owned(),
        format!("{entry}*2\r\n$3\r\n1+0\r\n*0\r\n{TIME}"),
        format!("{entry}*2\r\n$23\r\n1-18446744073709551616x\r\n*0\r\n{TIME}"),
        "*-1\r\n*2\r\n$1\r\nx\r\n$1\r\n0\r\n".to_owned(),
        "*-1\r\n*2\r\n$19\r\n9223372036854775807\r\n$1\r\n0\r\n".to_owned(),
        "*-1\r\n:1\r\n".to_owned(),
    ] {
        let error = run(answered(&[broken.as_bytes()])).expect_err(&broken);
        assert!(matches!(error, ReadError::Protocol(_)), "{broken:?}: {error}");
        assert_eq!(error.error_kind(), ErrorKind::Other);
    }
    assert!(matches!(run(answered(&[b"*1\r\n"])), Err(ReadError::Closed)));
}

fn reply(entries: &Owned) -> Vec<u8> {
    let entries = entries.iter().map(|(id, fields)| (id.clone(), fields.as_slice()));
    xread_reply(entries, Duration::new(1_763_715_600, 123_999_000))
}

fn any_entries() -> impl Strategy<Value = Owned> {
    let id = (any::<u64>(), any::<u64>()).prop_map(|(ms, seq)| format!("{ms}-{seq}"));
    let text = || proptest::string::string_regex("[a-z$*\r\n0-9é-]{0,12}").expect("a pattern");
    proptest::collection::vec((id, proptest::collection::vec((text(), text()), 0..4)), 1..6)
}

/// Splits bytes at these places.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
    places.sort_unstable();
    places.dedup();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    /// The network splits replies anywhere.
    #[test]
    fn any_cut_of_a_reply_gives_the_same_entries(
        entries in any_entries(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = reply(&entries);
        let (received, read) = run(answered(&cut(&bytes, &cuts))).expect("a whole reply");
        prop_assert_eq!(received.entries().len(), entries.len());
        prop_assert_eq!(received.bytes(), bytes.len() - TIME.len());
        prop_assert_eq!(read, entries.clone());
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(run(answered(&single)).expect("a whole reply").1, entries);
    }

    /// Arbitrary bytes must never end the process.
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = run(answered(&[&bytes]));
    }

    /// Neither may a reply with a few damaged bytes, which gets further into the parser.
    #[test]
    fn a_damaged_reply_never_panics(
        entries in any_entries(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = reply(&entries);
        for (place, byte) in &damage {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        let _ = run(answered(&[&bytes]));
    }
}

/// A batch is committed only to the server process that it was read from.
#[tokio::test]
async fn the_reader_knows_the_process_that_it_reads_from() {
    let server = RedisServer::start();
    let info: String = server.client().query(redis::cmd("INFO").arg("server")).await.expect("INFO");
    let reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    let run_id = reader.run_id().expect("it is told");
    assert!(run_id.len() == 40 && info.contains(&format!("run_id:{run_id}\r\n")), "{run_id}");
    // A user without the right to ask can still read.
    let () = server.client().query(redis::cmd("ACL").arg(&["SETUSER", "default", "-info"])).await.expect("set");
    let reader = StreamReader::connect(&target(&server.url()), "usage").await.expect("a connection");
    assert_eq!(reader.run_id(), None);
}
