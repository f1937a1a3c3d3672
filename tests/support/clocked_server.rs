//! A real server whose scripts go by a clock that the test sets, so that time is part of a random schedule and
//! answers can be compared to the microsecond.
//!
//! Between the caller and the server stands a relay. It puts `clocked_server.lua` before each script that is loaded,
//! and the clock behind the arguments of each call; the rest passes as it is. So the public API is what is tested, on a
//! real server, with nothing of ours changed. It can also send a call twice, as a connection does whose answer was
//! lost.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quotabell::redis_client::RedisClient;

use super::redis_server::RedisServer;

const PRELUDE: &str = include_str!("clocked_server.lua");
/// Some time of this century, us.
pub const CLOCK_START_US: u64 = 1_763_715_600_000_000;

/// The server, the relay, and the clock.
#[derive(Debug)]
pub struct ClockedServer {
    server: RedisServer,
    port: u16,
    state: Arc<ClockState>,
    /// Past the relay, to look at what stands in the server.
    direct: RedisClient,
}

/// What the test has set.
#[derive(Debug)]
struct ClockState {
    now_us: AtomicU64,
    twice: AtomicBool,
    /// The hash of a script as the caller knows it, and as the server does.
    scripts: Mutex<HashMap<Vec<u8>, String>>,
}

impl ClockedServer {
    /// A server, at [`CLOCK_START_US`].
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
                // Either side's end is the connection's end.
                std::thread::spawn(move || relay(&caller, server_port, &state));
            }
        });
        let direct = server.client();
        Self { server, port, state, direct }
    }

    /// A client whose scripts go by the clock.
    pub fn client(&self) -> RedisClient {
        RedisClient::new(redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a valid URL"))
    }

    /// The port of the relay, for a client of another language.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client past the relay, to look at what stands in the server.
    pub fn direct(&self) -> RedisClient {
        self.server.client()
    }

    /// Sets the clock to this moment, us.
    pub fn set_clock(&self, now_us: u64) {
        self.state.now_us.store(now_us, Ordering::SeqCst);
    }

    /// Whether each call from now on is sent twice, and the second answer returned.
    pub fn send(&self, sent: Sent) {
        self.state.twice.store(sent == Sent::Twice, Ordering::SeqCst);
    }

    /// Fails when the key is there and has no end.
    pub async fn expect_end(&self, key: &str) {
        let exists = async |key: &str| self.direct.query::<bool>(redis::cmd("EXISTS").arg(key)).await.expect("EXISTS");
        assert!(!exists(key).await || exists(&format!("{key}:ends")).await, "{key} has no end");
    }
}

/// How often a call reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// As it should.
    Once,
    /// As after a lost answer.
    Twice,
}

/// Passes commands to the server and replies back, one after the other, until either side is gone.
fn relay(caller: &TcpStream, server_port: u16, state: &ClockState) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server_port))?;
    caller.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut commands, mut replies) = (BufReader::new(caller), BufReader::new(&server));
    loop {
        let command = state.adapted(read_command(&mut commands)?);
        let packed = packed(&command);
        let is_call = command[0] == b"EVALSHA";
        (&server).write_all(&packed)?;
        let mut reply = read_reply(&mut replies)?;
        // A server that did not know the script has not run it.
        if is_call && state.twice.load(Ordering::SeqCst) && !reply.starts_with(b"-NOSCRIPT") {
            (&server).write_all(&packed)?;
            reply = read_reply(&mut replies)?;
        }
        (&mut &*caller).write_all(&reply)?;
    }
}

impl ClockState {
    /// The command as the server is to see it.
    fn adapted(&self, mut command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut scripts = self.scripts.lock().expect("no relay panicked");
        if command[0] == b"SCRIPT" {
            let source = String::from_utf8(command[2].clone()).expect("a script is text");
            let (flags, body) = source.split_once('\n').expect("a script has a first line");
            let adapted = format!("{flags}\n{PRELUDE}\n{body}");
            let hash = |text: &str| redis::Script::new(text).get_hash().to_owned();
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

/// One reply, as it stands on the wire.
fn read_reply(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut reply = read_line(from)?;
    match reply[0] {
        b'$' => {
            let length = usize::try_from(number(&reply) + 2).unwrap_or(0);
            // A bulk string that is null has no bytes and no end of line.
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

/// What stands behind the first byte of a line.
fn number(line: &[u8]) -> i64 {
    String::from_utf8_lossy(&line[1..]).trim().parse().expect("a number")
}
