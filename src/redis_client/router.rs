//! Sends each command to the primary that serves its key.
//!
//! A server that does not serve the key returns a redirect and runs nothing; the router then sends the command to the
//! server that the redirect names. It resends nothing else. After a lost connection it returns the error, because the
//! command may have run; the redis crate's cluster connection would resend it, and would resend a whole pipeline after
//! one redirect.
//!
//! While a slot moves, the new node has the keys that have arrived, and the old node no longer has them (ASK). The
//! router follows with a single command. A script or a transaction waits until the slot has moved, because either node
//! has only some of the keys. Read next: [`super::topology`], which knows the primary of each slot.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::task::JoinSet;

use super::connection::NodeConnection;
use super::error_kind::{ErrorKind, error_kind};
use super::hash_slots::HashSlot;
use super::node::RedisNode;
use super::redirect::{Redirect, RedirectKind, add_asking, has_name};
use super::redis_url::RedisAddress;
use super::topology::Topology;

/// Maximum number of redirects of one call. Two are usual after a failover; without a bound two nodes that disagree
/// would redirect it forever.
const REDIRECTS_MAX: u32 = 5;

/// The connections of one client to its servers.
#[derive(Debug)]
pub struct Router {
    topology: Arc<Topology>,
    /// The server of commands without a key.
    default_slot: HashSlot,
    connections: Arc<RwLock<HashMap<RedisAddress, Arc<NodeConnection>>>>,
}

/// A call that redirects may send to another server.
#[derive(Debug, Clone, Copy)]
pub struct RoutedCall<'a> {
    router: &'a Router,
    /// The slot of a call without a key.
    default_slot: HashSlot,
    limit: Option<Duration>,
}

/// The target of a command.
#[derive(Debug, Clone)]
struct CommandTarget {
    node: Arc<RedisNode>,
    /// The slot is still moving to this node: send ASKING before the command.
    asking: bool,
}

/// A command of a pipeline without a reply so far.
#[derive(Debug)]
struct OpenCommand {
    at: usize,
    slot: HashSlot,
    /// The target of a redirect; `None`: the topology decides.
    to: Option<CommandTarget>,
}

/// Commands in one write to one server.
struct NodeWrite {
    to: CommandTarget,
    slot: HashSlot,
    open: Vec<OpenCommand>,
}

impl Router {
    /// A router whose commands without a key go to the server of `default_key`.
    pub fn new(topology: Arc<Topology>, default_key: &str) -> Self {
        Self { topology, default_slot: HashSlot::of_key(default_key.as_bytes()), connections: Arc::default() }
    }

    /// A router on the same connections whose commands without a key go to the server of `default_key`.
    pub fn routed_by(&self, default_key: &str) -> Self {
        let (topology, connections) = (Arc::clone(&self.topology), Arc::clone(&self.connections));
        Self { topology, default_slot: HashSlot::of_key(default_key.as_bytes()), connections }
    }

    /// The server of commands without a key.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the server.
    pub async fn default_server(&self) -> RedisResult<RedisAddress> {
        Ok(self.topology.primary_of(self.default_slot).await?.address.clone())
    }

    /// A new connection to the server of commands without a key.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the server.
    pub async fn connect_to_default(&self) -> RedisResult<NodeConnection> {
        NodeConnection::to(&*self.topology.primary_of(self.default_slot).await?)
    }

    /// A connection to each server that holds keys.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the servers.
    pub async fn primaries(&self) -> RedisResult<Vec<Arc<NodeConnection>>> {
        let map = self.topology.map().await?;
        map.primaries().iter().map(|node| self.connection(node)).collect()
    }

    fn connection(&self, node: &RedisNode) -> RedisResult<Arc<NodeConnection>> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connections.get(&node.address) {
            return Ok(Arc::clone(connection));
        }
        drop(connections);
        let made = Arc::new(NodeConnection::to(node)?);
        let known = self.topology.known();
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        // When a new server appears, drop connections to servers that are no longer primaries.
        connections.retain(|address, _| {
            known.as_ref().is_none_or(|map| map.primaries().iter().any(|node| node.address == *address))
        });
        Ok(Arc::clone(connections.entry(node.address.clone()).or_insert(made)))
    }

    /// Tells the topology what an error says about the server that sent it.
    fn note(&self, node: &RedisNode, error: &RedisError) {
        let is_down = error.code() == Some("CLUSTERDOWN");
        if is_down || matches!(error_kind(error), ErrorKind::Unreachable | ErrorKind::ReadOnly) {
            self.topology.suspect(&node.address);
        }
    }

    /// As [`Self::note`], for a reply in a pipeline.
    fn note_reply(&self, node: &RedisNode, reply: &Value) {
        if let Value::ServerError(error) = reply {
            self.note(node, &error.clone().into());
        }
    }

    /// The target of a redirect from `from`. `named` are the nodes in the redirects of the same pipeline.
    async fn destination(
        &self,
        from: &RedisNode,
        redirect: Redirect,
        named: &mut Vec<Arc<RedisNode>>,
    ) -> RedisResult<CommandTarget> {
        let Redirect { kind, host, port } = redirect;
        let host = match &from.address {
            // A node that does not know the other's address means its own host.
            RedisAddress::Tcp { host: own, .. } if host.is_empty() => own.clone(),
            _ => host,
        };
        let asking = kind == RedirectKind::Ask;
        let address = RedisAddress::Tcp { host, port };
        if let Some(node) = named.iter().find(|node| node.address == address) {
            return Ok(CommandTarget { node: Arc::clone(node), asking });
        }
        let node = match asking {
            true => self.topology.other(&address)?,
            false => self.topology.moved(&address).await?,
        };
        named.push(Arc::clone(&node));
        Ok(CommandTarget { node, asking })
    }
}

impl<'a> RoutedCall<'a> {
    /// A call without a time limit.
    pub const fn new(router: &'a Router) -> Self {
        Self { router, default_slot: router.default_slot, limit: None }
    }

    /// A single command with the time limit `limit`.
    pub const fn within(router: &'a Router, limit: Duration) -> Self {
        Self { router, default_slot: router.default_slot, limit: Some(limit) }
    }

    /// A command without a key that goes to the server of `other`.
    pub fn beside(router: &'a Router, other: &Cmd) -> Self {
        Self { router, default_slot: HashSlot::of_command(other).unwrap_or(router.default_slot), limit: None }
    }

    async fn query(self, command: &Cmd) -> RedisResult<Value> {
        let slot = HashSlot::of_command(command).unwrap_or(self.default_slot);
        let mut to = CommandTarget { node: self.router.topology.primary_of(slot).await?, asking: false };
        let mut redirects = 0;
        loop {
            let error = match self.send(&to, command).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            self.router.note(&to.node, &error);
            let redirect = Redirect::from_error(command, &error).filter(|_| redirects < REDIRECTS_MAX);
            let Some(redirect) = redirect else { return Err(error) };
            to = self.router.destination(&to.node, redirect, &mut Vec::new()).await?;
            redirects += 1;
        }
    }

    async fn send(self, to: &CommandTarget, command: &Cmd) -> RedisResult<Value> {
        let connection = self.router.connection(&to.node)?;
        if to.asking {
            let mut pipeline = redis::pipe();
            add_asking(&mut pipeline, command);
            return connection.pipe::<(Value,)>(&pipeline).await.map(|(reply,)| reply);
        }
        match self.limit {
            Some(limit) => connection.query_within(limit, command).await,
            None => connection.query(command).await,
        }
    }

    /// The replies to all commands in order, including errors.
    async fn pipe(self, pipeline: &Pipeline) -> RedisResult<Vec<Value>> {
        let is_transaction = pipeline.is_transaction();
        let commands: Vec<&Cmd> = pipeline.cmd_iter().collect();
        let mut replies = vec![Value::Nil; commands.len()];
        let (mut open, loads) = self.take_apart(&commands, is_transaction);
        let mut redirects = 0;
        while !open.is_empty() {
            let mut running = JoinSet::new();
            for batch in self.batches(open, is_transaction).await? {
                let connection = self.router.connection(&batch.to.node)?;
                let sent = batch.pipeline(&commands, &loads, is_transaction);
                running.spawn(async move { (batch, connection.pipe::<Value>(&sent).await) });
            }
            open = Vec::new();
            let (mut failed, mut named) = (None, Vec::new());
            while let Some(done) = running.join_next().await {
                let (NodeWrite { to: from, open: sent, .. }, reply) = done.expect("a connection does not panic");
                let may_follow = redirects < REDIRECTS_MAX;
                let values = match reply {
                    Ok(Value::Array(values)) => values,
                    Ok(_) => return Err((redis::ErrorKind::UnexpectedReturnType, "a pipeline answers no list").into()),
                    Err(error) => {
                        self.router.note(&from.node, &error);
                        match Redirect::of_transaction(&error).filter(|_| may_follow) {
                            Some(redirect) => {
                                let to = self.router.destination(&from.node, redirect, &mut named).await?;
                                open.extend(sent.into_iter().map(|command| command.sent_to(to.clone())));
                            }
                            None => failed = Some(error),
                        }
                        continue;
                    }
                };
                let mut values = values.into_iter();
                for (at, value) in loads.iter().zip(values.by_ref().take(loads.len())) {
                    replies[*at] = value;
                }
                for (command, value) in sent.into_iter().zip(values) {
                    self.router.note_reply(&from.node, &value);
                    match Redirect::in_pipeline(commands[command.at], &value).filter(|_| may_follow) {
                        Some(redirect) => {
                            let to = self.router.destination(&from.node, redirect, &mut named).await?;
                            open.push(command.sent_to(to));
                        }
                        None => replies[command.at] = value,
                    }
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            open.sort_by_key(|command| command.at);
            redirects += 1;
        }
        Ok(replies)
    }

    /// Separates the commands that go to the server of their key from those that load a script on every server
    /// involved.
    fn take_apart(self, commands: &[&Cmd], is_transaction: bool) -> (Vec<OpenCommand>, Vec<usize>) {
        let is_load = |at: &usize| !is_transaction && has_name(commands[*at], "SCRIPT");
        let (loads, others): (Vec<usize>, Vec<usize>) = (0..commands.len()).partition(is_load);
        let open = |at: usize| {
            let slot = HashSlot::of_command(commands[at]).unwrap_or(self.default_slot);
            OpenCommand { at, slot, to: None }
        };
        match others.is_empty() {
            true => (loads.into_iter().map(open).collect(), Vec::new()),
            false => (others.into_iter().map(open).collect(), loads),
        }
    }

    /// One batch per server, or per slot in a transaction.
    async fn batches(self, open: Vec<OpenCommand>, is_transaction: bool) -> RedisResult<Vec<NodeWrite>> {
        let mut batches: Vec<NodeWrite> = Vec::new();
        for mut command in open {
            let to = match command.to.take() {
                Some(to) => to,
                None => CommandTarget { node: self.router.topology.primary_of(command.slot).await?, asking: false },
            };
            let fits = |batch: &NodeWrite| match is_transaction {
                true => batch.slot == command.slot,
                false => batch.to.asking == to.asking && batch.to.node.address == to.node.address,
            };
            match batches.iter_mut().find(|batch| fits(batch)) {
                Some(batch) => batch.open.push(command),
                None => batches.push(NodeWrite { to, slot: command.slot, open: vec![command] }),
            }
        }
        Ok(batches)
    }
}

impl OpenCommand {
    fn sent_to(self, to: CommandTarget) -> Self {
        Self { to: Some(to), ..self }
    }
}

impl NodeWrite {
    /// The pipeline to write, which returns each error in the place of its reply.
    fn pipeline(&self, commands: &[&Cmd], loads: &[usize], is_transaction: bool) -> Pipeline {
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for at in loads {
            pipeline.add_command(commands[*at].clone());
        }
        for command in &self.open {
            match self.to.asking {
                true => add_asking(&mut pipeline, commands[command.at]),
                false => _ = pipeline.add_command(commands[command.at].clone()),
            }
        }
        if is_transaction {
            pipeline.atomic();
        }
        pipeline
    }
}

/// The redis crate assembles the replies in the form that the caller wants.
impl ConnectionLike for RoutedCall<'_> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.default_slot = HashSlot::of_command(command).unwrap_or(self.default_slot);
        Box::pin(self.query(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        _offset: usize,
        _count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let replies = self.pipe(pipeline).await?;
            Ok(if pipeline.is_transaction() { vec![Value::Array(replies)] } else { replies })
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
