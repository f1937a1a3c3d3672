//! The users of Redis, as in the documents.

use std::path::Path;

use quotabell::redis_client::RedisClient;

/// The tests' value for the documents' placeholder of the password.
pub const PASSWORD: &str = "s3cret";

/// The words after `ACL SETUSER` of a user in docs/operations.md, with the tests' password.
pub fn documented_user(name: &str) -> Vec<String> {
    documented("docs/operations.md", &format!("ACL SETUSER {name} "))
}

/// The line with this beginning and its continuation lines, without its first two words.
pub fn documented(document: &str, beginning: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(path).expect("the document is there");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(beginning));
    let start = lines.next().unwrap_or_else(|| panic!("{document} has no {beginning:?}"));
    let rest = lines.take_while(|line| line.starts_with(' '));
    let text = std::iter::once(start).chain(rest).collect::<Vec<_>>().join(" ");
    text.split_whitespace().skip(2).map(|word| word.replace("PASSWORD", PASSWORD)).collect()
}

/// Creates a user with these words on a server.
pub async fn set_user(client: &RedisClient, words: &[String]) {
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg(words);
    let () = client.query(&command).await.expect("a user that the server understands");
}

/// Fails if the server has refused any command.
pub async fn expect_nothing_refused(client: &RedisClient) {
    let refused: Vec<redis::Value> = client.query(redis::cmd("ACL").arg("LOG")).await.expect("a log");
    assert!(refused.is_empty(), "{refused:#?}");
}
