//! A real server whose scripts use a clock that the test sets, so that time is a part of a random schedule and replies
//! are exact to the microsecond.
//!
//! A relay is between the caller and the server. It inserts `clocked_server.lua` before each script that is loaded, and
//! appends the clock to the arguments of each call; everything else passes unchanged. So a test uses the public API and
//! unchanged code on a real server. The relay can also send a call twice, as after a lost reply.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::redis_server::RedisServer;

const PRELUDE: &str = include_str!("clocked_server.lua");
/// A time in this century, us.
pub const CLOCK_START_US: u64 = 1_763_715_600_000_000;

/// The server, the relay, and the clock.
pub struct ClockedServer {
    server: RedisServer,
    port: u16,
    state: Arc<ClockState>,
    /// A connection without the relay, to inspect the server.
    direct: Mutex<redis::Connection>,
}

/// The settings of the test.
#[derive(Debug)]
struct ClockState {
    now_us: AtomicU64,
    twice: AtomicBool,
    /// The hash of a script for the caller, and for the server.
    scripts: Mutex<HashMap<Vec<u8>, String>>,
}

impl ClockedServer {
    /// Starts a server at [`CLOCK_START_US`].
    pub fn start() -> Self {
        let server = RedisServer::start();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(ClockState {
            now_us: AtomicU64::new(CLOCK_START_US),
            twice: AtomicBool::new(false),
            scripts: Mutex::default(),
        });
        let (shared, server_port) = (Arc::clone(&state), server.port());
        std::thread::spawn(move || {
            for caller in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                // If either side ends, the connection ends.
                std::thread::spawn(move || relay(&caller, server_port, &state));
            }
        });
        let direct = Mutex::new(server.sync_client().get_connection().expect("a connection"));
        Self { server, port, state, direct }
    }

    /// A client whose scripts use the clock.
    pub fn client(&self) -> redis::Client {
        redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a valid URL")
    }

    /// The port of the relay, for a client of another language.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client without the relay, to inspect the server.
    pub fn direct(&self) -> redis::Client {
        self.server.sync_client()
    }

    /// Sets the clock to this moment, us.
    pub fn set_clock(&self, now_us: u64) {
        self.state.now_us.store(now_us, Ordering::SeqCst);
    }

    /// Whether each later call is sent twice; the second reply is returned.
    pub fn send(&self, sent: Sent) {
        self.state.twice.store(sent == Sent::Twice, Ordering::SeqCst);
    }

    /// Fails if the key exists without an expiry.
    pub fn expect_end(&self, key: &str) {
        let mut direct = self.direct.lock().expect("no test panicked");
        let mut exists = |key: &str| redis::cmd("EXISTS").arg(key).query::<bool>(&mut direct).expect("EXISTS");
        assert!(!exists(key) || exists(&format!("{key}:ends")), "{key} has no end");
    }
}

/// How often the relay sends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Normally.
    Once,
    /// As after a lost reply.
    Twice,
}

/// Relays commands and replies, one after another, until either side ends.
fn relay(caller: &TcpStream, server_port: u16, state: &ClockState) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server_port))?;
    caller.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut commands, mut replies) = (BufReader::new(caller), BufReader::new(&server));
    loop {
        let command = read_command(&mut commands)?;
        // The caller compares the hash of what it has loaded with the hash of its own text.
        let loaded = (command[0] == b"SCRIPT").then(|| hash(&String::from_utf8_lossy(&command[2])));
        let command = state.adapted(command);
        let packed = packed(&command);
        let is_call = command[0] == b"EVALSHA";
        (&server).write_all(&packed)?;
        let mut reply = read_reply(&mut replies)?;
        // A server that did not know the script has not run it.
        if is_call && state.twice.load(Ordering::SeqCst) && !reply.starts_with(b"-NOSCRIPT") {
            (&server).write_all(&packed)?;
            reply = read_reply(&mut replies)?;
        }
        if let Some(hash) = loaded {
            reply = format!("$40\r\n{hash}\r\n").into_bytes();
        }
        (&mut &*caller).write_all(&reply)?;
    }
}

impl ClockState {
    /// The command for the server.
    fn adapted(&self, mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut scripts = self.scripts.lock().expect("no relay panicked");
        if command[0] == b"SCRIPT" {
            let source = String::from_utf8(command[2].clone()).expect("a script is text");
            let (flags, body) = source.split_once('\n').expect("a script has a first line");
            let adapted = format!("{flags}\n{PRELUDE}\n{body}");
            scripts.insert(hash(&source).into_bytes(), hash(&adapted));
            command[2] = adapted.into_bytes();
        } else if command[0] == b"EVALSHA" {
            if let Some(hash) = scripts.get(&command[1]) {
                command[1] = hash.clone().into_bytes();
            }
            command.push(self.now_us.load(Ordering::SeqCst).to_string().into_bytes());
        }
        command
    }
}

fn hash(script: &str) -> String {
    redis::Script::new(script).get_hash().to_owned()
}

fn packed(command: &[Vec<u8>]) -> Vec<u8> {
    let mut packed = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        packed.extend(format!("${}\r\n", word.len()).into_bytes());
        packed.extend(word);
        packed.extend(b"\r\n");
    }
    packed
}

fn read_command(from: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let words = number(&read_line(from)?);
    (0..words)
        .map(|_| {
            let length = usize::try_from(number(&read_line(from)?)).expect("a length");
            let mut word = vec![0; length + 2];
            from.read_exact(&mut word)?;
            word.truncate(length);
            Ok(word)
        })
        .collect()
}

/// One reply in its wire form.
fn read_reply(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut reply = read_line(from)?;
    match reply[0] {
        b'$' => {
            let length = usize::try_from(number(&reply) + 2).unwrap_or(0);
            // A null bulk string has no bytes and no line end.
            let length = if length < 2 { 0 } else { length };
            let mut body = vec![0; length];
            from.read_exact(&mut body)?;
            reply.extend(body);
        }
        b'*' => {
            for _ in 0..number(&reply) {
                reply.extend(read_reply(from)?);
            }
        }
        _ => {}
    }
    Ok(reply)
}

fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    match from.read_until(b'\n', &mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}

/// The number behind the first byte of a line.
fn number(line: &[u8]) -> i64 {
    String::from_utf8_lossy(&line[1..]).trim().parse().expect("a number")
}
