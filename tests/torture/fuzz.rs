//! Entries of random fields and bytes: each must be counted or refused, with the model's reason, and none may stop the
//! stream.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::redis_server::RedisServer;

use crate::load::{LoadKind, Words};
use crate::trial::{Deployment, Told, Trial};

/// Entries per round, each round on its own server, because at most 100,000 refused events are kept.
const ENTRIES: u64 = 20_000;
const NAMES: [&[u8]; 6] = [b"subject", b"units", b"credit", b"metric", b"ts", b"id"];
/// Numbers at the bounds of rules, and texts that other parsers accept as numbers.
const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "2",
    "00007",
    "9007199254740991",
    "9007199254740990",
    "9007199254740992",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "-0",
    "+1",
    "1.0",
    "1e3",
    "0x10",
    " 5",
    "5 ",
    "nan",
    "inf",
    "\u{0661}",
    "1_000",
    "",
];

/// Runs the scenario in rounds of [`ENTRIES`].
pub async fn run(trial: Trial) -> Told {
    let mut told = Told::default();
    let mut rounds = 0;
    while rounds == 0 || trial.goes_on(rounds) {
        let server = RedisServer::start();
        let trial = Trial { seed: trial.seed.wrapping_add(rounds), ..trial };
        let deployment = Deployment::open(&server.url(), trial).await;
        let daemon = deployment.daemon(&server.url()).start().await;
        let load = deployment.produce(LoadKind::Fuzzed(ENTRIES));
        told.extend(deployment.compare(load).await);
        daemon.drain().await;
        rounds += 1;
    }
    Told { tried: format!("{} fuzzed entries", rounds * ENTRIES), ..told }
}

/// Generates entries, the same for the same seed and clock.
pub struct FuzzedEntries(StdRng);

impl FuzzedEntries {
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// The next entry: names and values.
    pub fn entry(&mut self, now_ms: i64) -> Words {
        let mut words = Words::new();
        // Most have a subject, because otherwise nothing would be counted.
        if self.0.random_bool(0.97) {
            words.extend([b"subject".to_vec(), self.subject()]);
        }
        for _ in 0..self.0.random_range(0..4) {
            let name = match self.0.random_range(0..20) {
                0 => self.bytes(12),
                1 => b"Units".to_vec(),
                _ => NAMES[self.0.random_range(0..NAMES.len())].to_vec(),
            };
            let value = self.value(&name, now_ms);
            words.extend([name, value]);
        }
        if words.is_empty() {
            words.extend([self.bytes(3), self.bytes(3)]);
        }
        words
    }

    fn subject(&mut self) -> Vec<u8> {
        match self.0.random_range(0..40) {
            0 => self.bytes(300),
            1 => Vec::new(),
            2 => vec![b'x'; self.0.random_range(255..258)],
            3 => "é".repeat(self.0.random_range(126..130)).into_bytes(),
            4 => format!("a{}b", char::from_u32(self.0.random_range(0..0xd800)).unwrap_or(' ')).into_bytes(),
            _ => format!("s{}", self.0.random_range(0..60)).into_bytes(),
        }
    }

    fn value(&mut self, name: &[u8], now_ms: i64) -> Vec<u8> {
        if self.0.random_bool(0.1) {
            return self.bytes(40);
        }
        match name {
            b"units" | b"credit" if self.0.random_bool(0.7) => self.0.random_range(1..30_u32).to_string().into_bytes(),
            b"units" | b"credit" => self.number(),
            b"metric" if self.0.random_bool(0.8) => [&b"requests"[..], b"tokens"][self.0.random_range(0..2)].to_vec(),
            b"metric" => {
                let letters: Vec<char> = "az09_.-AZ:é ".chars().collect();
                let length = [1, 3, 63, 64, 65][self.0.random_range(0..5)];
                (0..length).map(|_| letters[self.0.random_range(0..letters.len())]).collect::<String>().into_bytes()
            }
            b"ts" => self.time(now_ms),
            b"id" if self.0.random_bool(0.7) => format!("id{}", self.0.random_range(0..2_000)).into_bytes(),
            b"id" => vec![0; self.0.random_range(0..131)],
            _ => self.subject(),
        }
    }

    fn number(&mut self) -> Vec<u8> {
        NUMBERS[self.0.random_range(0..NUMBERS.len())].as_bytes().to_vec()
    }

    /// Mostly near now, sometimes far away or in forms that only resemble times.
    fn time(&mut self, now_ms: i64) -> Vec<u8> {
        let near = now_ms - self.0.random_range(-200_000..100_000_000);
        let text = match self.0.random_range(0..12) {
            0 => return self.number(),
            1 => self.0.random_range(0..i64::MAX).to_string(),
            2 => format!("{near:020}"),
            3 => "2026-11-21".into(),
            4 => "2026-11-21T10:00:60Z".into(),
            5 => "0001-01-01T00:00:00+23:59".into(),
            6 => "9999-12-31T23:59:59-23:59".into(),
            7..10 => near.to_string(),
            _ => {
                let offset = chrono::FixedOffset::east_opt(self.0.random_range(-86_000..86_000) / 60 * 60);
                let at = chrono::DateTime::from_timestamp_millis(near).expect("a time");
                at.with_timezone(&offset.expect("below a day")).to_rfc3339()
            }
        };
        text.into_bytes()
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let length = self.0.random_range(0..=longest);
        (0..length).map(|_| self.0.random()).collect()
    }
}
