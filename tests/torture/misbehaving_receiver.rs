//! A webhook receiver at thousands of addresses of this machine; some of them answer wrongly in every possible way.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The value of `Retry-After`.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Answers,
    Fails,
    AsksToWait,
    Resets,
    /// Reads the request and never answers.
    Hangs,
    /// Closes in the middle of the status line.
    Breaks,
    /// Starts a response whose headers never end.
    Drips,
}

impl Behaviour {
    const MISBEHAVIOURS: [Self; 6] =
        [Self::Fails, Self::AsksToWait, Self::Resets, Self::Hangs, Self::Breaks, Self::Drips];
}

/// A request.
#[derive(Debug, Clone)]
pub struct Post {
    /// The path without its slash: the subject.
    pub subject: String,
    pub webhook_id: String,
    /// The daemon that sent it, from the number in the body.
    pub daemon: usize,
    pub arrived: Instant,
    /// When it was answered with 2xx.
    pub delivered: Option<Instant>,
}

/// The receiver. Stops on drop.
pub struct MisbehavingReceiver {
    pub port: u16,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<()>,
}

/// The received requests.
#[derive(Debug, Default)]
struct Kept {
    posts: Vec<Post>,
    /// When each subject's first request arrived.
    told: HashMap<String, Instant>,
}

impl MisbehavingReceiver {
    /// Starts it. Requests for the subjects in `misbehaving` are answered correctly half of the time.
    pub async fn start(misbehaving: HashSet<String>, seed: u64) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (misbehaving, random) = (Arc::new(misbehaving), Arc::new(Mutex::new(StdRng::seed_from_u64(seed))));
        let keep = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            // Dropped with this task, which ends the conversations.
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while clients.try_join_next().is_some() {}
                let (misbehaving, random, kept) = (Arc::clone(&misbehaving), Arc::clone(&random), Arc::clone(&keep));
                clients.spawn(async move {
                    let behave = |subject: &str| {
                        let mut random = random.lock().expect("no panic before");
                        match misbehaving.contains(subject) && random.random_bool(0.5) {
                            true => *Behaviour::MISBEHAVIOURS.choose(&mut *random).expect("there are some"),
                            false => Behaviour::Answers,
                        }
                    };
                    // Clients that leave early are a part of the test.
                    let _ = serve(stream, behave, &kept).await;
                });
            }
        });
        Self { port, kept, task }
    }

    /// The subjects with a request, and the time of the first one.
    pub fn told(&self) -> HashMap<String, Instant> {
        self.kept().told.clone()
    }

    /// Number of subjects with a request.
    pub fn told_count(&self) -> u64 {
        self.kept().told.len() as u64
    }

    /// All requests, in order.
    pub fn posts(&self) -> Vec<Post> {
        self.kept().posts.clone()
    }

    /// Number of requests.
    pub fn post_count(&self) -> usize {
        self.kept().posts.len()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic before")
    }
}

impl Drop for MisbehavingReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, behave: impl Fn(&str) -> Behaviour, kept: &Mutex<Kept>) -> std::io::Result<()> {
    let Request { subject, webhook_id, daemon } = hear(&mut stream).await?;
    let behaviour = behave(&subject);
    let post = Post { subject, webhook_id, daemon, arrived: Instant::now(), delivered: None };
    let at = {
        let Kept { posts, .. } = &mut *kept.lock().expect("no panic before");
        posts.push(post);
        posts.len() - 1
    };
    match behaviour {
        Behaviour::Answers => {
            // Recorded before the last byte is sent, so that later requests are recorded later.
            {
                let Kept { posts, told } = &mut *kept.lock().expect("no panic before");
                let now = Instant::now();
                posts[at].delivered = Some(now);
                told.entry(posts[at].subject.clone()).or_insert(now);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
        }
        Behaviour::Fails => {
            stream.write_all(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n").await?;
        }
        Behaviour::AsksToWait => {
            let answer =
                format!("HTTP/1.1 503 Later\r\nretry-after: {}\r\ncontent-length: 0\r\n\r\n", RETRY_AFTER.as_secs());
            stream.write_all(answer.as_bytes()).await?;
        }
        Behaviour::Resets => {
            stream.set_zero_linger()?;
            return Ok(());
        }
        Behaviour::Breaks => {
            stream.write_all(b"HTTP/1.1 20").await?;
        }
        Behaviour::Hangs => {
            stream.read_u8().await?;
        }
        Behaviour::Drips => {
            stream.write_all(b"HTTP/1.1 204 No Content\r\n").await?;
            let mut interval = tokio::time::interval(Duration::from_millis(20));
            loop {
                interval.tick().await;
                stream.write_all(b"x: y\r\n").await?;
            }
        }
    }
    stream.shutdown().await?;
    // Until the client leaves, so that unread bytes are not reset.
    while stream.read(&mut [0; 256]).await? > 0 {}
    Ok(())
}

/// The recorded part of a request.
struct Request {
    subject: String,
    webhook_id: String,
    daemon: usize,
}

/// Reads a whole request.
async fn hear(stream: &mut TcpStream) -> std::io::Result<Request> {
    let mut held = Vec::new();
    let end = loop {
        if let Some(end) = held.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut held).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&held[..end]).into_owned();
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while held.len() < end + 4 + length {
        if stream.read_buf(&mut held).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default();
    let body: serde_json::Value = serde_json::from_slice(&held[end + 4..])?;
    let daemon = body["daemon"].as_u64().and_then(|number| usize::try_from(number).ok());
    Ok(Request {
        subject: path.trim_start_matches('/').to_owned(),
        webhook_id: header("webhook-id").unwrap_or_default(),
        daemon: daemon.ok_or(std::io::ErrorKind::InvalidData)?,
    })
}
