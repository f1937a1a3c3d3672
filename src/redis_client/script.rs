//! Calling Lua scripts: by hash, with the source sent when the server does not know it yet.

use std::borrow::Cow;

use redis::{Arg, Cmd, FromRedisValue, RedisResult, ToRedisArgs};

use super::client::RedisClient;
use super::prelude;

/// How often a script is loaded for one call: between loading and calling it, the server may be replaced or be told to
/// forget its scripts.
const LOADS_MAX: u32 = 5;
/// As many digits as a number of keys has at most.
const COUNT_BYTES: usize = 20;

/// A script and the hash under which the server knows it.
#[derive(Debug)]
pub struct Script {
    source: Cow<'static, str>,
    sha1: String,
}

/// Another script that a script calls as a function: `name(KEYS, ARGV)`, tables as the other's header lists them,
/// returns its reply.
#[derive(Debug, Clone, Copy)]
pub struct ScriptFunction {
    /// Its name in Lua.
    pub name: &'static str,
    /// The other script, as it would be loaded by itself.
    pub source: &'static str,
}

impl Script {
    /// Takes the source, usually by `include_str!`.
    pub fn new(source: &'static str) -> Self {
        Self::from_source(Cow::Borrowed(source))
    }

    /// A script that uses the functions of `prelude.lua`. Its second line is a comment, as the title of each of ours
    /// is.
    pub fn with_prelude(source: &'static str) -> Self {
        Self::from_source(Cow::Owned(prelude::prepended(source, "")))
    }

    /// The same with functions that `more` defines, for scripts that have those in common. Each of its comments has a
    /// line of its own.
    pub fn with_preludes(source: &'static str, more: &'static str) -> Self {
        Self::from_source(Cow::Owned(prelude::prepended(source, more)))
    }

    /// A script that calls others as functions, all of it one atomic step. Each other script stays the one place of its
    /// rule.
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

    /// Begins a call.
    pub fn call(&self) -> ScriptCall<'_> {
        ScriptCall { script: self, keys: Cmd::new(), arguments: Cmd::new() }
    }
}

/// A call that is being put together. Keys and arguments may be added in turn.
#[derive(Debug)]
pub struct ScriptCall<'a> {
    script: &'a Script,
    /// No commands, but what keeps words in one piece of memory.
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

    /// Runs the script. Where the server does not know it (a restart, SCRIPT FLUSH), loads it and runs it again.
    ///
    /// # Errors
    ///
    /// As [`RedisClient::query`]. After a broken connection the script may or may not have run; each of ours is safe to
    /// run again.
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
    /// The source, for callers that load it by themselves.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The hash, for callers that write `EVALSHA` by themselves.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

/// Runs a prepared `EVALSHA` of `script`, loading the script where the server does not know it.
///
/// # Errors
///
/// As [`ScriptCall::run`].
pub async fn run<T: FromRedisValue>(client: &RedisClient, script: &Script, command: &Cmd) -> RedisResult<T> {
    for _ in 0..LOADS_MAX {
        match client.query(command).await {
            Err(error) if error.code() == Some("NOSCRIPT") => client.load_script(&script.source, command).await?,
            reply => return reply,
        }
    }
    client.query(command).await
}
