//! The shell blocks of the documents, run in their order against a real daemon, and the output that the documents show.
//!
//! A `sh` block runs as typed, in one session for each document: exported variables stay, `ID` is the newest delivery,
//! and free ports take the place of the documented ones. A `text` block after it shows its whole output, or that of the
//! terminal that the prose between them names ("terminal 1"). Times, ids and secrets are masked, and `...` stands for
//! any text. A block that must not run follows a comment, `<!-- not run: REASON -->`.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::support::receivers::{Answer, HttpCatcher};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use regex::Regex;
use tempfile::TempDir;

use crate::support::eventually::WAIT_MAX;
use crate::support::redis_server::free_port;

/// The documented ports of Redis, the HTTP server, mails and webhooks.
const PORTS: [&str; 4] = ["6399", "9464", "1025", "8025"];
/// Commands that only read. The test repeats them until they show what the document shows, as a reader would.
const READS: &[&str] =
    &["deliveries ", "contact list", "subject show", "usage ", "explain ", "alerts", "history ", "top "];
/// Commands that run until they are stopped, with the last line of their start.
const TERMINALS: &[(&str, &str)] = &[("listen", "webhooks: ..."), ("run", "...quotabell is ready...")];
/// The start of the quick start, for documents that continue from there.
const STARTED: &str = "```sh\nquotabell listen --config config/quickstart.toml\n```\n\
    ```sh\nquotabell run --config config/quickstart.toml\n```\n\
    ```sh\nexport QUOTABELL_CONFIG=config/quickstart.toml\n```\n";
const MASKS: &[(&str, &str)] = &[
    (r"whsec_[A-Za-z0-9+/]{32,}=*", "SECRET"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"\b(\d{4}-)?\d\d-\d\d( \d\d:\d\d|T\d\dZ)?\b", "DATE"),
    (r"\b\d{13}-\d+", "ENTRY"),
    (r"\b(alert_|delivery_|c_)?[0-9a-f]{8,}\b", "ID"),
    (r"\b\d+ ?(ms|s|m|h|d)\b", "DURATION"),
    (r"  +", "  "),
    (r" +\n", "\n"),
];

/// A fenced block, and the prose before it.
struct Block<'a> {
    prose: &'a str,
    language: &'a str,
    text: &'a str,
}

fn blocks(markdown: &str) -> Vec<Block<'_>> {
    let pieces: Vec<&str> = markdown.split("```").collect();
    let mut blocks = Vec::new();
    for pair in pieces.chunks_exact(2) {
        let (language, text) = pair[1].split_once('\n').expect("a fence has lines");
        blocks.push(Block { prose: pair[0], language, text });
    }
    blocks
}

/// The text with what differs from run to run masked.
fn masked(text: &str) -> String {
    let mask = |text: String, (pattern, name): &(&str, &str)| {
        Regex::new(pattern).expect("a valid pattern").replace_all(&text, *name).into_owned()
    };
    MASKS.iter().fold(text.trim_end().to_owned(), mask)
}

/// The pattern of a text that a document shows. `...` is any text in a line, and any lines between two.
fn pattern(shown: &str) -> String {
    regex::escape(&masked(shown)).replace("\n\\.\\.\\.\n", "\n(?s:.*)\n").replace(r"\.\.\.", ".*")
}

fn has(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).expect("a valid pattern").is_match(text)
}

/// A command that runs until it is stopped.
struct Terminal {
    child: Child,
    command: &'static str,
}

impl Drop for Terminal {
    /// A daemon stops its Redis when it drains; `listen` ends as by Ctrl-C.
    fn drop(&mut self) {
        let signal = if self.command == "run" { Signal::SIGTERM } else { Signal::SIGINT };
        let pid = i32::try_from(self.child.id()).expect("a process id");
        let _ = kill(Pid::from_raw(pid), signal);
        let _ = self.child.wait();
    }
}

/// What a reader has open: a folder, ports and terminals.
struct Session {
    terminals: Vec<Terminal>,
    folder: TempDir,
    ports: [(&'static str, u16); 4],
}

impl Session {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let session = Self { terminals: Vec::new(), folder, ports: PORTS.map(|port| (port, free_port())) };
        let [redis, http, smtp, webhooks] = session.ports.map(|(_, port)| port);
        let path = |name: &str| session.folder.path().join(name);
        fs::create_dir(path("config")).and_then(|()| fs::create_dir(path("bin"))).expect("folders");
        let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/quickstart.toml");
        let quickstart = fs::read_to_string(quickstart).expect("it is there");
        fs::write(path("config/quickstart.toml"), session.with_real_ports(&quickstart)).expect("written");
        // A list must show the first attempt, however slow the machine is: the second one comes late.
        let environment = format!(
            "export PATH=\"$PWD/bin:$PATH\" QUOTABELL__RETRY__FIRST=1h QUOTABELL__REDIS__EMBEDDED_PORT={redis} \
             QUOTABELL__HTTP__LISTEN=127.0.0.1:{http} QUOTABELL__CONSOLE__LISTEN=off\n"
        );
        fs::write(path("environment"), environment).expect("written");
        let program = format!(
            "#!/bin/sh\n[ \"$1\" != listen ] || set -- \"$@\" --smtp {smtp} --http {webhooks}\nexec {} \"$@\"\n",
            env!("CARGO_BIN_EXE_quotabell")
        );
        fs::write(path("bin/quotabell"), program).expect("written");
        fs::set_permissions(path("bin/quotabell"), fs::Permissions::from_mode(0o755)).expect("executable");
        session
    }

    fn with_real_ports(&self, text: &str) -> String {
        let replace = |text: String, (documented, real): &(&str, u16)| {
            let word = Regex::new(&format!(r"\b{documented}\b")).expect("a valid pattern");
            word.replace_all(&text, real.to_string()).into_owned()
        };
        self.ports.iter().fold(text.to_owned(), replace)
    }

    fn with_documented_ports(&self, text: &str) -> String {
        let replace = |text: String, (documented, real): &(&str, u16)| {
            text.replace(&format!(":{real}"), &format!(":{documented}"))
        };
        self.ports.iter().fold(text.to_owned(), replace)
    }

    /// Bash with what earlier blocks exported.
    fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.arg("-euc").arg(format!(". ./environment\n{script}")).current_dir(self.folder.path());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
        command
    }

    /// Runs a script to its end and returns what it printed.
    fn run(&self, script: &str) -> Result<String, String> {
        let script = format!("exec 2>&1\n{script}\nexport -p > environment");
        let output = self.bash(&script).output().expect("bash runs");
        let printed = self.with_documented_ports(&String::from_utf8_lossy(&output.stdout));
        if output.status.success() {
            Ok(printed)
        } else {
            Err(format!("{}, having printed:\n{printed}", output.status))
        }
    }

    /// Starts a command in a terminal of its own, in place of the one that runs it already.
    fn open(&mut self, command: &'static str, script: &str) {
        self.terminals.retain(|terminal| terminal.command != command);
        let file = File::create(self.folder.path().join(format!("{command}.txt"))).expect("a file");
        let mut bash = self.bash(&format!("exec {script}"));
        bash.stderr(file.try_clone().expect("a second handle")).stdout(file);
        self.terminals.push(Terminal { child: bash.spawn().expect("bash runs"), command });
    }

    /// Runs the blocks of a document, and says which one does not do what the document shows.
    fn follow(&mut self, document: &str) -> Result<(), String> {
        let blocks = blocks(document);
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
            if is_excused(block.prose)? {
                continue;
            }
            let shown = blocks.get(at + 1).filter(|next| next.language == "text");
            self.block(block.text, shown).map_err(|reason| format!("{}{reason}", block.text))?;
        }
        Ok(())
    }

    fn block(&mut self, text: &str, shown: Option<&Block>) -> Result<(), String> {
        let script = self.with_real_ports(text);
        let starts = |(name, _): &&(&str, &str)| text.starts_with(&format!("quotabell {name} "));
        if let Some((command, started)) = TERMINALS.iter().find(starts) {
            self.open(command, script.trim());
            return self.expect_on(command, shown.map_or(started, |shown| shown.text));
        }
        let script = if script.contains(" ID") { self.with_newest_delivery(&script)? } else { script };
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let printed = self.run(&script)?;
            let Some(shown) = shown else { return Ok(()) };
            if let Some(command) = terminal_of(shown.prose) {
                return self.expect_on(command, shown.text);
            }
            if has(&masked(&printed), &format!("^{}$", pattern(shown.text))) {
                return Ok(());
            }
            if !only_reads(text) || Instant::now() > deadline {
                return Err(difference(shown.text, &printed));
            }
        }
    }

    fn with_newest_delivery(&self, script: &str) -> Result<String, String> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let listed = self.run("quotabell deliveries list --limit 1 --json")?;
            if let Ok(delivery) = serde_json::from_str::<serde_json::Value>(&listed) {
                return Ok(script.replace(" ID", &format!(" {}", delivery["id"].as_str().expect("an id"))));
            }
            if Instant::now() > deadline {
                return Err("there is no delivery".to_owned());
            }
        }
    }

    /// Waits until a terminal shows these lines, with any lines before and after them. Documents leave out the times of
    /// log lines. Messages may arrive in any order.
    fn expect_on(&self, command: &str, shown: &str) -> Result<(), String> {
        let output = self.folder.path().join(format!("{command}.txt"));
        let lines = |message: &str| format!("(?m)^(TIME +)?{}$", pattern(message).replace('\n', "\n(TIME +)?"));
        let messages: Vec<String> = messages(shown).iter().map(|message| lines(message)).collect();
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let printed = self.with_documented_ports(&fs::read_to_string(&output).unwrap_or_default());
            let mut left = masked(&printed);
            // Two documented messages need two printed ones.
            let is_there = |message: &String| {
                let found = Regex::new(message).expect("a valid pattern").find(&left).map(|found| found.range());
                found.map(|range| left.replace_range(range, "")).is_some()
            };
            if messages.iter().all(is_there) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(difference(shown, &printed));
            }
        }
    }
}

/// Whether a comment excuses the block from running. The comment must say why.
fn is_excused(prose: &str) -> Result<bool, String> {
    let last = prose.trim_end().lines().last().unwrap_or_default();
    match last.strip_prefix("<!-- not run:").and_then(|rest| rest.strip_suffix("-->")) {
        Some(reason) if reason.trim().is_empty() => Err("a block is not run and does not say why".to_owned()),
        reason => Ok(reason.is_some()),
    }
}

/// The command whose terminal the prose names.
fn terminal_of(prose: &str) -> Option<&'static str> {
    let prose = prose.to_lowercase();
    [("terminal 1", "listen"), ("terminal 2", "run")].iter().find(|(name, _)| prose.contains(name)).map(|named| named.1)
}

/// The messages of a terminal with `listen`, each from its line `--- webhook` or `--- mail`; other text is one message.
fn messages(shown: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = shown.match_indices("\n--- ").map(|(at, _)| at + 1).collect();
    starts.insert(0, 0);
    let ends = starts.iter().skip(1).copied().chain([shown.len()]);
    let messages = starts.iter().zip(ends).map(|(start, end)| shown[*start..end].trim_end());
    messages.map(|message| message.strip_suffix("\n...").unwrap_or(message)).collect()
}

fn only_reads(text: &str) -> bool {
    let commands = text.lines().map(|line| line.strip_prefix("quotabell ").unwrap_or_default());
    commands.into_iter().all(|command| READS.iter().any(|read| command.starts_with(read)))
}

fn difference(shown: &str, printed: &str) -> String {
    format!("is shown with\n{}\n\nand prints\n{}", masked(shown), masked(printed))
}

/// Runs the blocks of `before` and then those of the document.
fn expect_followed(path: &str, before: &str) {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("it is there");
    let mut session = Session::start();
    session.follow(before).unwrap_or_else(|reason| panic!("before {path}: {reason}"));
    session.follow(&document).unwrap_or_else(|reason| panic!("{path}: {reason}"));
}

/// The README is all that most people read: a command there that fails ends their first minute.
#[test]
fn the_commands_of_the_readme_do_what_it_shows() {
    expect_followed("README.md", "");
}

/// A newcomer compares each line, and takes a difference for a fault.
#[test]
fn the_commands_of_the_quick_start_print_what_it_shows() {
    expect_followed("docs/quick-start.md", "");
}

/// Platforms copy these commands into their scripts.
#[test]
fn the_commands_of_the_page_about_subjects_print_what_it_shows() {
    expect_followed("docs/subjects.md", STARTED);
}

/// Producers begin with these commands.
#[test]
fn the_commands_of_the_page_about_sending_print_what_it_shows() {
    expect_followed("docs/sending.md", STARTED);
}

/// An operator types these commands while something is broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_about_delivery_print_what_it_shows() {
    let refusal = Answer::status(404).header("webhook-delivery", "abort-message");
    let receiver = HttpCatcher::start([refusal]).await.expect("a receiver");
    let dead = format!(
        "```sh\nquotabell subject set alice --email alice@example.com\n\
         quotabell subject set acme --webhook {}\n\
         quotabell emit --subject acme --units 4000\n```\n\
         ```sh\nquotabell deliveries list --state dead\n```\n```text\nID...\n...  dead  ...\n```\n",
        receiver.url("/hook")
    );
    expect_followed("docs/delivery.md", &format!("{STARTED}{dead}"));
}

/// The tests above must be able to fail: at a wrong output, a command that fails and an excuse without a reason.
#[test]
fn a_wrong_output_in_a_document_is_noticed() {
    let follow = |document: &str| Session::start().follow(document);
    assert_eq!(
        follow("```sh\necho 4 at 2026-11-21T08:37:00Z\n```\n```text\n4 at 2030-01-01T00:00:00.5Z\n```\n"),
        Ok(())
    );
    assert_eq!(follow("```sh\nprintf 'a\\nb\\nc d\\n'\n```\n```text\na\n...\nc ...\n```\n"), Ok(()));
    for (document, reason) in [
        ("```sh\necho 4\n```\n```text\n5\n```\n", "is shown with\n5"),
        ("```sh\necho 4\n```\n```text\n4\n5\n```\n", "and prints\n4"),
        ("```sh\nexport A=4\n```\n```sh\n[ $A = 5 ]\n```\n", "exit status: 1"),
        ("<!-- not run: -->\n```sh\necho\n```\n", "does not say why"),
    ] {
        let error = follow(document).expect_err(document);
        assert!(error.contains(reason), "{document}: {error}");
    }
}
