//! A name server on a free port of 127.0.0.1 that answers as a test configures it, and stores the questions.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use quotabell::channels::DnsConfig;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::eventually::WAIT_MAX;

/// The supported types of records.
const A: u16 = 1;
const AAAA: u16 = 28;

/// The server's data for a name.
#[derive(Debug, Clone)]
pub enum Knows {
    /// These addresses, with a TTL of zero.
    Addresses(Vec<IpAddr>),
    /// These addresses of one family, and never an answer about the other family.
    OneFamily(Vec<IpAddr>),
    /// The name does not exist.
    Nothing,
    /// No answer.
    Silence,
}

/// The server. Stops on drop.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    asked: watch::Receiver<BTreeSet<String>>,
    task: JoinHandle<()>,
}

impl NameServer {
    /// Answers each question with the result of `knows`.
    pub async fn start(mut knows: impl FnMut(&str) -> Knows + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("an address");
        let (told, asked) = watch::channel(BTreeSet::new());
        let task = tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut query).await.expect("a query");
                let question = Question::read(&query[..length]);
                told.send_modify(|asked| {
                    asked.insert(question.name.clone());
                });
                if let Some(answer) = question.answer(&knows(&question.name)) {
                    // A client may leave at any time.
                    let _ = socket.send_to(&answer, client).await;
                }
            }
        });
        Self { address, asked, task }
    }

    /// The settings that select this server.
    pub fn config(&self) -> DnsConfig {
        DnsConfig { servers: vec![self.address] }
    }

    /// The same as the value of a variable.
    pub fn setting(&self) -> String {
        format!("[\"{}\"]", self.address)
    }

    /// Waits until this number of names was asked for.
    pub async fn was_asked_for(&mut self, names: usize) {
        let asked = self.asked.wait_for(|asked| asked.len() >= names);
        tokio::time::timeout(WAIT_MAX, asked).await.expect("the names are asked for").expect("the server lives");
    }

    /// The names asked for so far, without the final dot.
    pub fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The one question of a query (RFC 1035, 4.1).
struct Question {
    id: [u8; 2],
    name: String,
    kind: u16,
    bytes: Vec<u8>,
}

impl Question {
    fn read(query: &[u8]) -> Self {
        let (mut at, mut labels) = (12, Vec::new());
        while query[at] > 0 {
            let length = usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..at + 1 + length]).to_lowercase());
            at += 1 + length;
        }
        let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
        let bytes = query[12..at + 5].to_vec();
        Self { id: [query[0], query[1]], name: labels.join("."), kind, bytes }
    }

    /// Whether the question is about this address family.
    fn asks_for(&self, address: &IpAddr) -> bool {
        self.kind == if address.is_ipv4() { A } else { AAAA }
    }

    fn answer(&self, knows: &Knows) -> Option<Vec<u8>> {
        let (code, addresses) = match knows {
            Knows::Silence => return None,
            Knows::OneFamily(addresses) if !addresses.iter().any(|address| self.asks_for(address)) => return None,
            Knows::Nothing => (3, &[][..]),
            Knows::Addresses(addresses) | Knows::OneFamily(addresses) => (0, addresses.as_slice()),
        };
        let addresses: Vec<&IpAddr> = addresses.iter().filter(|address| self.asks_for(address)).collect();
        let count = u8::try_from(addresses.len()).expect("few");
        let mut answer = self.id.to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
        answer.extend(&self.bytes);
        for address in addresses {
            let bytes = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            // Name, type, class IN, TTL zero.
            answer.extend([0xc0, 12]);
            answer.extend(self.kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 0, 0, u8::try_from(bytes.len()).expect("few")]);
            answer.extend(bytes);
        }
        Some(answer)
    }
}
