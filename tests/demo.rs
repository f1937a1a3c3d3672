//! The demonstration: the real binary with everything that it starts, and that it leaves nothing behind.

mod support;

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use quotabell::types::keys::bucket;
use quotabell::types::{Day, Keys, Metric, UnixMs};
use support::binary::{Finished, Quotabell, quotabell};
use tempfile::TempDir;

/// The demonstration with its own folder for temporary files, in which remains are visible.
fn demo<'a>(options: impl IntoIterator<Item = &'a str>, place: &TempDir) -> Quotabell {
    let path = std::env::var_os("PATH").expect("a PATH to find redis-server on");
    quotabell(["demo", "--fast"].into_iter().chain(options)).env("PATH", path).env("TMPDIR", place.path())
}

fn left_in(place: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path()).expect("readable");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The process ids in its output: `(pid 4711)`.
fn pids(text: &str) -> Vec<Pid> {
    let numbers = text.split("(pid ").skip(1).filter_map(|rest| rest.split(')').next()?.parse().ok());
    let mut pids: Vec<Pid> = numbers.map(Pid::from_raw).collect();
    pids.sort();
    pids.dedup();
    pids
}

fn assert_gone(pids: &[Pid]) {
    for pid in pids {
        assert_eq!(signal::kill(*pid, None), Err(Errno::ESRCH), "process {pid} still runs");
    }
}

/// People see the demonstration first: it must work, and must leave nothing behind.
#[test]
fn every_number_is_as_expected_and_nothing_is_left() {
    let place = tempfile::tempdir().expect("a folder");
    let Finished { code, stdout, stderr } = demo([], &place).run();
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(stderr, "");
    assert!(!stdout.contains("WRONG") && !stdout.contains('\x1b'), "{stdout}");
    for row in [
        "  alice, requests ",
        "  carol 100 % of 3000/day, email + webhook ",
        "  counter_overflow ",
        "  ids seen before ",
        "  heidi 80 % of 3500/month, webhook ",
        "  ivan end of 1000/day, webhook ",
        "  ivan 100 % of 4000/day, webhook ",
        "  judy forecast of 1300/day, webhook ",
        "  minutes from forecast to limit ",
        "  reason of the end ",
        "  digest ",
        "  acme, credits ",
        "  acme 80 % of 20000/total, email + webhook ",
        "  kills survived  ",
    ] {
        assert!(stdout.lines().any(|line| line.starts_with(row) && line.contains("  ok")), "{row} in {stdout}");
    }
    for part in ["kill -9", "receiver answered 503, attempt 2", "signature ok, attempt 3", "to ops@example.com"] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    let pids = pids(&stdout);
    assert_eq!(pids.len(), 3, "redis and two daemons in {stdout}");
    assert_gone(&pids);
    assert_eq!(left_in(&place), Vec::<PathBuf>::new());
}

/// Programs read the summary as JSON, and `--keep` keeps the folder with the logs. All numbers must also match with
/// partitions.
#[test]
fn the_summary_is_json_and_the_folder_is_kept_on_request() {
    let place = tempfile::tempdir().expect("a folder");
    let finished = demo(["--json", "--keep", "--partitions", "4"], &place).run();
    let told = finished.stderr.clone();
    let summary = finished.expect_json().remove(0);
    assert_eq!(summary["ok"], true, "{summary}");
    let checks = summary["checks"].as_array().expect("checks");
    assert!(checks.len() > 35 && checks.iter().all(|check| check["ok"] == true), "{summary}");
    assert_gone(&pids(&told));
    let kept = left_in(&place);
    assert_eq!(kept.len(), 1, "{kept:?}");
    for file in ["demo.toml", "daemon-1.log", "daemon-2.log", "redis"] {
        assert!(kept[0].join(file).exists(), "{file}");
    }
}

/// People press Ctrl-C in the middle: a server that kept running would be found weeks later.
#[test]
fn an_interrupt_in_the_middle_stops_everything() {
    let place = tempfile::tempdir().expect("a folder");
    let mut running = Running::start(&place, &[]);
    // At this point Redis and the second daemon are running.
    let told = running.told_until(TAKEN_OVER);
    let demo = i32::try_from(running.child.id()).expect("a process id");
    signal::kill(Pid::from_raw(demo), Signal::SIGINT).expect("the demo runs");
    let finished = running.finish();
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.starts_with("error: interrupted\nhint: "), "{}", finished.stderr);
    let pids = pids(&told);
    assert_eq!(pids.len(), 3, "{told}");
    assert_gone(&pids);
    assert_eq!(left_in(&place), Vec::<PathBuf>::new());
}

/// People want to look around after the summary: the link must log them in, and Ctrl-C must still stop everything.
#[test]
fn it_ends_in_the_console_on_request() {
    let place = tempfile::tempdir().expect("a folder");
    let mut running = Running::start(&place, &["--console"]);
    let told = running.told_until("For another login: ");
    let link = told.lines().find(|line| line.contains("/login?login=")).expect("a link");
    let (address, _) = link.trim_start_matches("http://").split_once('/').expect("a path");
    let login = &link[7 + address.len()..];
    assert!(page(address, login).contains("Log in for 12 hours"), "{told}");
    let overview = page(address, "/");
    assert!(overview.contains("carol") && overview.contains("1 daemon, 1 partition"), "{overview}");
    // What people try there: why a webhook failed, who did what, a link to the portal.
    let refused = Instant::now();
    while !page(address, "/deliveries?state=dead").contains("HTTP 422") {
        assert!(refused.elapsed() < Duration::from_secs(20), "no delivery is dead: {told}");
    }
    assert!(page(address, "/log").contains("setSubject"), "the log of actions is empty");
    let (path, secret) = login.split_once('?').expect("a secret");
    let form = "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin";
    let head = format!("{form}\r\nContent-Length: {}\r\n", secret.len());
    let answer = request(address, &format!("POST {path}"), &head, secret);
    let cookie = answer.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a session");
    let subject = request(address, "GET /subject?id=lena", &format!("Cookie: {cookie}\r\n"), "");
    assert!(subject.contains("Make a link"), "{subject}");
    // The printed command gives another login, and codes in emails can be read.
    let (_, again) = told.split_once("For another login: ").expect("a command");
    let mut words = again.split_whitespace();
    let program = words.next().expect("a program");
    let words: Vec<&str> = words.collect();
    let another = Command::new(program).args(&words).output().expect("it starts");
    assert!(String::from_utf8_lossy(&another.stdout).contains("/login?login="), "{another:?}");
    let to = ["send-test", "--email", "colleague@example.com"];
    let sent = Command::new(program).args(to).args(&words[1..]).output().expect("it starts");
    assert!(sent.status.success(), "{sent:?}");
    running.told_until("Email to colleague@example.com: ");
    running.told_until("  Threshold ");
    let demo = i32::try_from(running.child.id()).expect("a process id");
    signal::kill(Pid::from_raw(demo), Signal::SIGINT).expect("the demo runs");
    let finished = running.finish();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_gone(&pids(&told));
    assert!(TcpStream::connect(address).is_err(), "the console still answers");
    assert_eq!(left_in(&place), Vec::<PathBuf>::new());
}

/// A page of the console.
fn page(address: &str, path: &str) -> String {
    request(address, &format!("GET {path}"), "", "")
}

fn request(address: &str, target: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the console listens");
    let request = format!("{target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("writable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    answer
}

/// A summary that can't fail shows nothing: the test adds one unit to a counter during the traffic.
#[test]
fn a_count_that_is_off_by_one_is_marked_and_fails() {
    let place = tempfile::tempdir().expect("a folder");
    let mut running = Running::start(&place, &[]);
    let told = running.told_until(TAKEN_OVER);
    let line = told.lines().find(|line| line.starts_with("redis ")).expect("a line about redis");
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).expect("where redis is");
    let folder = left_in(&place).pop().expect("the demo's folder");
    let password = std::fs::read_to_string(folder.join("redis/redis-password")).expect("a password");
    add_one_unit(&format!(":{password}@{address}"));
    let finished = running.finish();
    assert_eq!(finished.code, 1, "{}", finished.stdout);
    let wrong: Vec<&str> = finished.stdout.lines().filter(|line| line.contains("WRONG")).collect();
    assert_eq!(wrong.len(), 1, "{}", finished.stdout);
    assert!(wrong[0].contains("alice, requests") && wrong[0].contains("8,000") && wrong[0].contains("8,001"));
    assert!(finished.stderr.starts_with("error: 1 of "), "{}", finished.stderr);
    assert_gone(&pids(&told));
    assert_eq!(left_in(&place), Vec::<PathBuf>::new());
}

fn add_one_unit(address: &str) {
    let client = redis::Client::open(format!("redis://{address}")).expect("a URL");
    let mut redis = client.get_connection().expect("a connection");
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query(&mut redis).expect("the time");
    let day = Day::in_utc(UnixMs(seconds * 1000)).expect("a day");
    let counter = Keys::new("usage").usage(&Metric::default(), day, bucket("alice"));
    redis::cmd("HINCRBY").arg(counter).arg("alice").arg(1).exec(&mut redis).expect("a counter");
}

/// The line when the second daemon is ready.
const TAKEN_OVER: &str = "continues with what is in Redis";

/// A running demonstration whose output is read. Stopped on drop.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(place: &TempDir, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_quotabell"))
            .args(["demo", "--fast"])
            .args(options)
            .env("TMPDIR", place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, lines }
    }

    /// Reads up to a line with this text.
    fn told_until(&mut self, part: &str) -> String {
        let mut told = String::new();
        while !told.contains(part) {
            told.push_str(&self.lines.next().expect("it goes on").expect("UTF-8"));
            told.push('\n');
        }
        told
    }

    /// Waits for its end and returns the rest of stdout.
    fn finish(mut self) -> Finished {
        let lines: Vec<String> = self.lines.by_ref().map(|line| line.expect("UTF-8")).collect();
        let mut stderr = String::new();
        let mut said = self.child.stderr.take().expect("stderr is piped");
        said.read_to_string(&mut stderr).expect("UTF-8");
        let code = self.child.wait().expect("it ends").code().expect("by itself");
        Finished { code, stdout: lines.join("\n"), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Stopped by a signal instead of a kill, because it has servers to stop.
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

/// On a machine without a Redis server, the error must say how to install one.
#[test]
fn without_a_server_it_says_how_to_get_one() {
    let place = tempfile::tempdir().expect("a folder");
    let finished = demo([], &place).env("PATH", place.path()).run();
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("apt-get install redis-server"), "{}", finished.stderr);
    assert!(finished.stderr.contains("\nhint: "), "{}", finished.stderr);
    assert_eq!(left_in(&place), Vec::<PathBuf>::new());
}
