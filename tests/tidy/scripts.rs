//! Lua scripts check rights before they write, and unpack only bounded slices, because Redis does not roll back earlier
//! writes after an error.

use crate::source::{Source, expect_none, files_below};

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

fn scripts() -> Vec<Source> {
    ["src", "crates/throttle/src"].into_iter().flat_map(files_below).filter(|file| file.is("lua")).collect()
}

/// Commands that a script calls for writing without a check of the right.
fn unasked(name: &str, script: &str) -> Vec<String> {
    let code: String =
        script.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n");
    // One function checks the rights of the writes that several scripts share.
    let shared = if code.contains("schedule_refusal()") { include_str!("../../src/outbox/schedule.lua") } else { "" };
    let lines = code.lines().chain(shared.lines());
    let asked: String = lines.filter(|line| line.contains("denied(") || line.contains("acl_check_cmd")).collect();
    let calls = ["redis.call(", "call_in_slices("];
    let called = |command: &&&str| calls.iter().any(|call| code.contains(&format!("{call}'{command}'")));
    let writes: Vec<&&str> = WRITES.iter().filter(called).collect();
    let missing = writes.iter().filter(|command| !asked.contains(&format!("'{command}'")));
    missing.map(|command| format!("{name} calls {command} and does not ask whether the user may")).collect()
}

/// A right that is withdrawn at run time would leave a script half done.
#[test]
fn scripts_ask_before_they_write() {
    let scripts = scripts();
    let (mut violations, mut found) = (Vec::new(), 0);
    for Source { path, text } in scripts {
        let name = path.rsplit('/').next().unwrap_or_default();
        let in_throttle = path.contains("/throttle/");
        let known = if in_throttle && name == "lease.lua" { "lease.lua in throttle" } else { name };
        if !EXEMPT.iter().any(|(exempt, why)| *exempt == known && !why.is_empty()) {
            found += 1;
            violations.extend(unasked(name, &text));
        }
    }
    assert!(found >= 12, "the scripts are found");
    expect_none(&violations);
}

/// Calls of `unpack` without a bound. Lua passes at most 7,999 values to a function: beyond that a script fails and
/// keeps its earlier writes.
fn unbounded(name: &str, script: &str) -> Vec<String> {
    let lines = script.lines().filter(|line| !line.trim_start().starts_with("--"));
    let is_call = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
    let calls = lines.flat_map(|line| {
        let positions = line.match_indices("unpack");
        positions.filter(|(at, _)| is_call(&line[..*at])).map(|(at, _)| &line[at..])
    });
    let is_bounded = |call: &&str| call.contains("math.min(") && (call.contains("SLICE") || call.contains("_MAX"));
    let missing = calls.filter(|call| !is_bounded(call));
    missing.map(|call| format!("{name}: {call}: takes no more than SLICE values, as call_in_slices does")).collect()
}

/// Found earlier: an alert with 4,100 contacts reached nobody, and an event of 4,200 fields was copied endlessly.
#[test]
fn scripts_unpack_bounded_slices_only() {
    let scripts = scripts();
    assert!(scripts.iter().any(|script| script.text.contains("unpack(")), "the calls are found");
    expect_none(&scripts.iter().flat_map(|script| unbounded(&script.path, &script.text)).collect::<Vec<_>>());
}

/// The rule must be able to fail.
#[test]
fn an_unpack_without_a_bound_is_found() {
    for call in ["redis.call(unpack(write))", "{unpack(ARGV, 2, at + n)}", "local spread = unpack"] {
        assert_eq!(unbounded("a", call).len(), 1, "{call}");
    }
    for call in ["cmsgpack.unpack(text)", "-- unpack(list)", "f(unpack(list, 1, math.min(#list, SLICE)))"] {
        assert_eq!(unbounded("a", call).len(), 0, "{call}");
    }
}

/// The rule must be able to fail.
#[test]
fn a_script_that_does_not_ask_is_found() {
    assert_eq!(unasked("a", "redis.call('HSET', k)\nredis.call('XADD', k)\nif denied(k, 'HSET') then end").len(), 1);
    assert_eq!(unasked("a", "-- redis.call('HSET', k)\nredis.call('HGET', k)").len(), 0);
}
