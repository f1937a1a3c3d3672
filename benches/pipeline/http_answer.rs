//! Reads answers of the daemon's HTTP server from a kept connection.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;

use anyhow::Context as _;

/// The next answer: the status line with the header fields, and the body.
pub fn read_answer(answers: &mut BufReader<TcpStream>) -> anyhow::Result<(String, String)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        anyhow::ensure!(answers.read_line(&mut line)? > 0, "the daemon hung up");
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().context("the length of an answer")?;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body)?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}
