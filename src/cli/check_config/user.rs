//! `check-config --user`: the process becomes the daemon's user before it reads a file.

use std::ffi::CString;

use anyhow::Context;
use nix::unistd::{Gid, Uid, User, geteuid, initgroups, setgid, setgroups, setuid};

use crate::terminal::hint;

/// Switches to this user, by name or number, and its groups. The process can't switch back.
pub(super) fn become_user(name: &str) -> anyhow::Result<()> {
    let number = name.parse().ok();
    let found = match number {
        Some(number) => User::from_uid(Uid::from_raw(number)),
        None => User::from_name(name),
    };
    let found = found.with_context(|| format!("look up user {name:?}"))?;
    let (uid, gid) = match (&found, number) {
        (Some(user), _) => (user.uid, user.gid),
        // Containers run as numbers without a name.
        (None, Some(number)) => (Uid::from_raw(number), Gid::from_raw(number)),
        (None, None) => {
            return Err(hint::usage(format_args!("there is no user {name:?}"), "name a user, or its number"));
        }
    };
    if uid == geteuid() {
        return Ok(());
    }
    let groups = match found.map(|user| CString::new(user.name)) {
        Some(Ok(name)) => initgroups(&name, gid),
        _ => setgroups(&[gid]),
    };
    let changed = groups.and_then(|()| setgid(gid)).and_then(|()| setuid(uid));
    hint::with_hint(
        changed.with_context(|| format!("judge as user {name}")),
        "run it as root, or as that user without --user",
    )
}
