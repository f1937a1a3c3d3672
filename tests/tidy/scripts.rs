//! Lua scripts that write ask first whether they may: Redis does not roll back what was written before an error.

use crate::source::expect_none;
use std::path::Path;

/// Commands that write.
const WRITES: [&str; 20] = [
    "DEL",
    "EXPIRE",
    "HDEL",
    "HINCRBY",
    "HSET",
    "INCRBY",
    "PERSIST",
    "PEXPIRE",
    "PEXPIREAT",
    "RPUSH",
    "SADD",
    "SET",
    "UNLINK",
    "XADD",
    "XDEL",
    "XTRIM",
    "ZADD",
    "ZREM",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
];

/// Scripts whose writes can't leave anything half done.
const EXEMPT: [(&str, &str); 8] = [
    ("dry_run.lua", "tries what the user may do, under keys of its own that expire"),
    ("fixed_window.lua", "takes with one command; setting an end that was missing stands by itself"),
    ("gcra.lua", "each write is one SET that is right by itself"),
    ("cooldown.lua", "takes with one command; setting an end that was missing stands by itself"),
    ("sliding_window.lua", "asks for the end of what it adds; calls that have left leave by themselves"),
    ("expiring_set.lua", "asks for the end of what it adds; members that have left leave by themselves"),
    ("one_time_token.lua", "asks for the end of what it creates; a claim is one command"),
    ("lease.lua in throttle", "each call writes once"),
];

/// Commands of a script that are called, write, and are not asked for.
fn unasked(name: &str, script: &str) -> Vec<String> {
    let code: String =
        script.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n");
    // What several scripts write, one function asks for.
    let shared = if code.contains("schedule_refusal()") { include_str!("../../src/outbox/schedule.lua") } else { "" };
    let lines = code.lines().chain(shared.lines());
    let asked: String = lines.filter(|line| line.contains("denied(") || line.contains("acl_check_cmd")).collect();
    let called = |command: &&&str| code.contains(&format!("redis.call('{command}'"));
    let writes: Vec<&&str> = WRITES.iter().filter(called).collect();
    let missing = writes.iter().filter(|command| !asked.contains(&format!("'{command}'")));
    missing.map(|command| format!("{name} calls {command} and does not ask whether the user may")).collect()
}

/// A right that is withdrawn at run time would leave a script half done.
#[test]
fn scripts_ask_before_they_write() {
    let mut violations = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let in_throttle = path.parent().is_some_and(|folder| folder.ends_with("throttle"));
            let known = if in_throttle && name == "lease.lua" { "lease.lua in throttle" } else { &name };
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".lua") && !EXEMPT.iter().any(|(exempt, why)| *exempt == known && !why.is_empty())
            {
                found += 1;
                violations.extend(unasked(&name, &std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    assert!(found >= 12, "the scripts are found");
    expect_none(&violations);
}

/// The rule must be able to fail.
#[test]
fn a_script_that_does_not_ask_is_found() {
    assert_eq!(unasked("a", "redis.call('HSET', k)\nredis.call('XADD', k)\nif denied(k, 'HSET') then end").len(), 1);
    assert_eq!(unasked("a", "-- redis.call('HSET', k)\nredis.call('HGET', k)").len(), 0);
}
