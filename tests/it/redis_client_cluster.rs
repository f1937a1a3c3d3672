//! The client in a cluster: every command reaches the node of its key, also while slots move, and none that may have
//! run is sent twice.

use std::collections::HashMap;

use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::{ErrorKind, RedisClient, RedisEndpoint, Script, StreamReader, error_kind};
use quotabell_throttle::{Lease, LeaseDecision};
use redis::RedisResult;

use crate::support::redis_cluster::RedisCluster;

fn endpoint(url: &str) -> RedisEndpoint {
    let config =
        RedisConfig { url: url.into(), url_file: None, data_dir: "unused".into(), embedded_port: 1, ca_file: None };
    RedisEndpoint::from_config(&config).expect("a good URL")
}

fn client(cluster: &RedisCluster) -> RedisClient {
    endpoint(&cluster.url("")).client("usage").expect("a client")
}

async fn set(client: &RedisClient, key: &str) {
    let () = client.query(redis::cmd("SET").arg(key).arg(key)).await.expect("it is set");
}

/// The node of each of these keys, according to the nodes.
async fn held(cluster: &RedisCluster, keys: &[String]) -> HashMap<usize, usize> {
    let mut held = HashMap::new();
    for key in keys {
        let node = cluster.primary_of(key).await;
        assert_eq!(cluster.try_on::<u8>(node, &["EXISTS", key]).await, Ok(1), "{key}");
        *held.entry(node).or_default() += 1;
    }
    held
}

/// Settings of subjects are on every node: a pipeline to one node would find a third of them.
#[tokio::test]
async fn pipelines_transactions_and_scripts_reach_the_nodes_of_their_keys() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster);
    let keys: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    let mut pipeline = redis::pipe();
    for key in &keys {
        pipeline.cmd("SET").arg(key).arg(key).ignore().cmd("GET").arg(key);
    }
    let values: Vec<String> = client.pipe(&pipeline).await.expect("all are answered");
    assert_eq!(values, keys, "in the order in which they were asked");
    assert_eq!(held(&cluster, &keys).await.len(), 3, "on all nodes");

    let mut transaction = redis::pipe();
    transaction.atomic();
    for key in &keys {
        transaction.cmd("APPEND").arg(key).arg("!").ignore().cmd("GET").arg(key);
    }
    let values: Vec<String> = client.pipe(&transaction).await.expect("one for each slot");
    assert_eq!(values, keys.iter().map(|key| format!("{key}!")).collect::<Vec<_>>());

    let script = Script::new("#!lua\nreturn redis.call('GET', KEYS[1])");
    for (key, expected) in keys.iter().zip(&values) {
        assert_eq!(script.call().key(key).run::<String>(&client).await.as_ref(), Ok(expected));
    }
    // A new script that no node knows, loaded in the pipeline that calls it.
    let other = Script::new("#!lua\nreturn redis.call('STRLEN', KEYS[1])");
    let mut pipeline = redis::pipe();
    pipeline.cmd("SCRIPT").arg("LOAD").arg(other.source()).ignore();
    for key in &keys {
        pipeline.cmd("EVALSHA").arg(other.sha1()).arg(1).arg(key);
    }
    let lengths: Vec<usize> = client.pipe(&pipeline).await.expect("it is known wherever it is called");
    assert_eq!(lengths, values.iter().map(String::len).collect::<Vec<_>>());

    // The script of a limiter is loaded at the node of its key.
    let lease = Lease::new("node-1", std::time::Duration::from_secs(60));
    for key in &keys {
        let key = format!("lease of {{{key}}}");
        assert_eq!(lease.acquire(&mut client.connection(), &key).await, Ok(LeaseDecision::Acquired), "{key}");
    }

    let mut mixed = redis::pipe();
    mixed.cmd("LPUSH").arg("k0").arg("x").cmd("GET").arg("k1");
    let error = client.pipe::<redis::Value>(&mixed).await.expect_err("k0 is no list");
    assert_eq!(error_kind(&error), ErrorKind::WrongType, "{error}");
    let replies: Vec<RedisResult<String>> = client.pipe(mixed.ignore_errors()).await.expect("replies");
    assert!(replies[0].is_err() && replies[1].as_deref() == Ok("k1!"), "{replies:?}");
}

/// While a slot moves its keys are on either node. Commands find them; a script that would see only some does not run.
#[tokio::test]
async fn a_slot_that_moves_is_followed_and_no_script_sees_half_of_it() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster);
    let keys: Vec<String> = (0..6).map(|n| format!("{{usage}}.{n}")).collect();
    for key in &keys {
        set(&client, key).await;
    }
    let to = (cluster.primary_of("usage").await + 1) % 3;
    let moving = cluster.begin_move("usage", to).await;
    cluster.move_keys(&moving, 3).await;
    let mut pipeline = redis::pipe();
    for key in &keys {
        pipeline.cmd("GET").arg(key);
        let value: Option<String> = client.query(redis::cmd("GET").arg(key)).await.expect("it is at one of both");
        assert_eq!(value.as_ref(), Some(key));
    }
    assert_eq!(client.pipe::<Vec<String>>(&pipeline).await.as_ref(), Ok(&keys));
    set(&client, "{usage}.new").await;

    let script = Script::new("#!lua\nreturn redis.call('EXISTS', KEYS[1])");
    let undeclared = Script::new("#!lua\nreturn redis.call('EXISTS', ARGV[1])");
    // Known to every node, so that none is refused for another reason.
    for node in 0..cluster.nodes.len() {
        for source in [script.source(), undeclared.source()] {
            let _: String = cluster.try_on(node, &["SCRIPT", "LOAD", source]).await.expect("it is loaded");
        }
    }
    let mut sent_away = 0;
    for key in &keys {
        match script.call().key(key).run::<u8>(&client).await {
            Ok(exists) => assert_eq!(exists, 1),
            Err(error) => {
                assert_eq!(error_kind(&error), ErrorKind::NotReady, "{error}");
                sent_away += 1;
            }
        }
    }
    assert_eq!(sent_away, 3, "as many as have moved");
    // A script that touches an undeclared key fails inside.
    let mut refused = 0;
    for declared in &keys {
        for key in &keys {
            if let Err(error) = undeclared.call().key(declared).arg(key).run::<u8>(&client).await {
                assert_eq!(error_kind(&error), ErrorKind::NotReady, "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 3 * 6 + 3 * 3);

    cluster.end_move(moving).await;
    for key in &keys {
        assert_eq!(script.call().key(key).run::<u8>(&client).await, Ok(1));
    }
    assert_eq!(client.pipe::<Vec<String>>(&pipeline).await.as_ref(), Ok(&keys));
    assert_eq!(held(&cluster, &keys).await, [(to, 6)].into());
}

/// An event that is appended twice is counted twice: if a slot moves during a pipeline, only the rest is resent.
#[tokio::test]
async fn what_has_run_before_the_slot_moved_is_not_run_again() {
    let cluster = RedisCluster::start().await;
    let client = client(&cluster);
    let mut events = 0;
    let mut append = async |count: u64| {
        let mut pipeline = redis::pipe();
        for _ in 0..count {
            pipeline.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice");
        }
        let ids: Vec<String> = client.pipe(&pipeline).await.expect("they are appended");
        assert_eq!(ids.len() as u64, count);
        events += count;
    };
    append(10).await;
    for _ in 0..4 {
        let to = (cluster.primary_of("usage").await + 1) % 3;
        let moving = cluster.begin_move("usage", to).await;
        append(10).await;
        // The stream moves in the middle of the pipeline.
        let (moved, ()) = tokio::join!(cluster.move_keys(&moving, 10), append(2000));
        assert!(moved);
        append(10).await;
        tokio::join!(cluster.end_move(moving), append(2000));
    }
    append(10).await;
    let length: u64 = client.query(redis::cmd("XLEN").arg("usage")).await.expect("the stream");
    assert_eq!(length, events);
}

/// The reader has no router: it must fail with an error that means "connect again", and then find the other node.
#[tokio::test]
async fn the_reader_of_a_stream_that_moved_connects_to_its_new_node() {
    let cluster = RedisCluster::start().await;
    let endpoint = endpoint(&cluster.url(""));
    let client = client(&cluster);
    let mut xadd = redis::cmd("XADD");
    xadd.arg("usage").arg("*").arg("a").arg("b");
    let first: String = client.query(&xadd).await.expect("appended");
    let mut reader = StreamReader::connect(&endpoint, "usage").await.expect("connected");
    reader.request("0-0", 10, None).await.expect("written");
    assert_eq!(reader.receive().await.expect("a reply").entries().len(), 1);

    let to = (cluster.primary_of("usage").await + 1) % 3;
    let moving = cluster.begin_move("usage", to).await;
    while cluster.move_keys(&moving, 10).await {}
    reader.request(&first, 10, None).await.expect("written");
    let error = reader.receive().await.expect_err("it has left");
    assert_eq!(error.error_kind(), ErrorKind::NotReady, "{error}");
    cluster.end_move(moving).await;
    reader.request(&first, 10, None).await.expect("written");
    let error = reader.receive().await.expect_err("it is elsewhere");
    assert_eq!(error.error_kind(), ErrorKind::Moved, "{error}");

    let _: String = client.query(&xadd).await.expect("appended");
    let mut reader = StreamReader::connect(&endpoint, "usage").await.expect("connected");
    reader.request(&first, 10, None).await.expect("written");
    assert_eq!(reader.receive().await.expect("a reply").entries().len(), 1);
}
