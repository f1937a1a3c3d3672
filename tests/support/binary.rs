//! Runs the real binary to its end, in a separate environment.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::pty::{OpenptyResult, openpty};

/// The result of one run.
#[derive(Debug)]
pub struct Finished {
    /// The exit code.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Finished {
    /// Stdout of a successful run.
    pub fn expect_done(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }

    /// Stdout of a successful run, as JSON Lines.
    pub fn expect_json(self) -> Vec<serde_json::Value> {
        self.expect_done().lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
    }

    /// Stdout, stderr and exit code as one text for a snapshot.
    pub fn told(&self) -> String {
        format!("{}{}exit {}", self.stdout, self.stderr, self.code)
    }
}

/// The binary with its arguments. It inherits nothing from the tests' environment.
#[derive(Debug)]
pub struct Quotabell {
    command: Command,
    stdin: String,
}

/// Prepares a run of `quotabell`.
pub fn quotabell<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Quotabell {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quotabell"));
    command.args(arguments).env_clear();
    Quotabell { command, stdin: String::new() }
}

impl Quotabell {
    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Names the Redis to use.
    pub fn redis(self, url: &str) -> Self {
        self.env("QUOTABELL__REDIS__URL", url)
    }

    /// Runs it in this folder.
    pub fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sends this text to its stdin.
    pub fn stdin(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdin);
        self
    }

    /// Runs it to its end with stderr on a terminal, and returns what the terminal shows.
    pub fn run_on_terminal(mut self) -> String {
        let OpenptyResult { master, slave } = openpty(None, None).expect("a terminal");
        self.command.stdout(Stdio::null()).stderr(slave);
        self.shown_on(master)
    }

    /// Runs it to its end with stdout on a terminal without a width, and returns what the terminal shows.
    pub fn print_on_terminal(mut self) -> String {
        let OpenptyResult { master, slave } = openpty(None, None).expect("a terminal");
        self.command.stdout(slave).stderr(Stdio::inherit());
        self.shown_on(master)
    }

    fn shown_on(mut self, master: OwnedFd) -> String {
        self.command.stdin(Stdio::null());
        let mut child = self.command.spawn().expect("the binary starts");
        // The command holds our copy of the other side; the terminal ends when nobody holds it.
        drop(self.command);
        let mut shown = Vec::new();
        // A terminal ends with an error, not with an end of file.
        let _ = File::from(master).read_to_end(&mut shown);
        assert!(child.wait().expect("the binary ends").success());
        String::from_utf8(shown).expect("the terminal shows UTF-8")
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Finished {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the binary starts");
        // It may end before it has read everything.
        let _ = child.stdin.take().expect("stdin is piped").write_all(self.stdin.as_bytes());
        let output = child.wait_with_output().expect("the binary ends");
        Finished {
            code: output.status.code().expect("it ended by itself"),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}
