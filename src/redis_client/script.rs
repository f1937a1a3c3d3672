//! Calls Lua scripts by hash, and loads the source if the server does not know it.

use std::borrow::Cow;

use redis::{Arg, Cmd, FromRedisValue, RedisResult, ToRedisArgs};

use super::client::RedisClient;
use super::prelude;

/// Maximum number of loads per call: the server may be replaced or may flush its scripts between a load and the call.
const LOADS_MAX: u32 = 5;
/// Maximum number of digits of a key count.
const COUNT_BYTES: usize = 20;

/// A script and the hash that identifies it on the server.
#[derive(Debug)]
pub struct Script {
    source: Cow<'static, str>,
    sha1: String,
}

/// A script that another script calls as a function: `name(KEYS, ARGV)`, with tables as in its header; returns its
/// reply.
#[derive(Debug, Clone, Copy)]
pub struct ScriptFunction {
    /// Its name in Lua.
    pub name: &'static str,
    /// The source of the called script.
    pub source: &'static str,
}

impl Script {
    /// Creates a script from its source, usually from `include_str!`.
    pub fn new(source: &'static str) -> Self {
        Self::from_source(Cow::Borrowed(source))
    }

    /// A script that uses the functions of `prelude.lua`. Its second line must be a comment, such as the title.
    pub fn with_prelude(source: &'static str) -> Self {
        Self::from_source(Cow::Owned(prelude::prepended(source, "")))
    }

    /// Like [`Self::with_prelude`], with further shared functions in `more`. Each comment in `more` needs its own line.
    pub fn with_preludes(source: &'static str, more: &'static str) -> Self {
        Self::from_source(Cow::Owned(prelude::prepended(source, more)))
    }

    /// A script that calls others as functions, in one atomic step. Each rule stays in one script.
    pub fn with_functions(source: &'static str, functions: &[ScriptFunction]) -> Self {
        let (flags, body) = source.split_once('\n').unwrap_or((source, ""));
        let mut text = format!("{flags}\n");
        for ScriptFunction { name, source } in functions {
            let (_flags, body) = source.split_once('\n').unwrap_or((source, ""));
            text.push_str(&format!("local function {name}(KEYS, ARGV)\n{body}\nend\n"));
        }
        text.push_str(body);
        Self::from_source(Cow::Owned(text))
    }

    fn from_source(source: Cow<'static, str>) -> Self {
        Self { sha1: redis::Script::new(&source).get_hash().to_owned(), source }
    }

    /// Starts a call.
    pub fn call(&self) -> ScriptCall<'_> {
        ScriptCall { script: self, keys: Cmd::new(), arguments: Cmd::new() }
    }
}

/// A call under construction. Keys and arguments may be added in any order.
#[derive(Debug)]
pub struct ScriptCall<'a> {
    script: &'a Script,
    /// Not commands: the type stores words in one piece of memory.
    keys: Cmd,
    arguments: Cmd,
}

impl ScriptCall<'_> {
    /// Adds the next key.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        self.keys.arg(key.as_ref());
        self
    }

    /// Adds the next argument (or several, for a slice).
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.arguments.arg(argument);
        self
    }

    /// Runs the script. If the server does not know it (after a restart or SCRIPT FLUSH), loads it and runs it again.
    ///
    /// # Errors
    ///
    /// Like [`RedisClient::query`]. If the connection broke, the script may have run; all our scripts are safe to run
    /// again.
    pub async fn run<T: FromRedisValue>(self, client: &RedisClient) -> RedisResult<T> {
        let words = self.keys.args_iter().chain(self.arguments.args_iter()).filter_map(|word| match word {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        });
        let keys = self.keys.args_iter().len();
        let head = ["EVALSHA", &self.script.sha1];
        let bytes = words.clone().chain(head.map(str::as_bytes)).map(<[u8]>::len).sum::<usize>();
        let mut command = Cmd::with_capacity(words.clone().count() + 3, bytes + COUNT_BYTES);
        command.arg(&head).arg(keys);
        for word in words {
            command.arg(word);
        }
        run(client, self.script, &command).await
    }
}

impl Script {
    /// The source, for callers that load it themselves.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The hash, for callers that send `EVALSHA` themselves.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

/// Runs a prepared `EVALSHA` of `script`, and loads the script if the server does not know it.
///
/// # Errors
///
/// Like [`ScriptCall::run`].
pub async fn run<T: FromRedisValue>(client: &RedisClient, script: &Script, command: &Cmd) -> RedisResult<T> {
    for _ in 0..LOADS_MAX {
        match client.query(command).await {
            Err(error) if error.code() == Some("NOSCRIPT") => client.load_script(&script.source, command).await?,
            reply => return reply,
        }
    }
    client.query(command).await
}
