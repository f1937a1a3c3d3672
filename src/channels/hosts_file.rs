//! Parses `/etc/hosts`, which lists names and their addresses. Pure.
//!
//! hickory's own parser skips names with underscores, and all names after a byte that is not UTF-8.

use std::collections::HashMap;
use std::net::IpAddr;

/// Addresses by name, in lower case and without a dot at the end.
#[derive(Debug, Default)]
pub(super) struct HostsFile(HashMap<String, Vec<IpAddr>>);

impl HostsFile {
    /// Parses the lines: each has an address and its names. Skips all other lines, like the system's resolver.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut hosts = HashMap::<String, Vec<IpAddr>>::new();
        for line in String::from_utf8_lossy(text).trim_start_matches('\u{feff}').lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse) else { continue };
            for name in words {
                hosts.entry(key(name)).or_default().push(address);
            }
        }
        Self(hosts)
    }

    /// The addresses of this name; `None` if the file does not list it.
    pub(super) fn addresses(&self, name: &str) -> Option<&[IpAddr]> {
        self.0.get(&key(name)).map(Vec::as_slice)
    }
}

fn key(name: &str) -> String {
    name.trim_end_matches('.').to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries that a person or Docker wrote are found, even if other lines are broken.
    #[test]
    fn every_name_of_a_line_is_listed() {
        let text = b"\xef\xbb\xbf127.0.0.1\tlocalhost my_db DB.internal. # and a comment\n\n# 10.0.0.1 commented\n\
                     ::1 localhost\r\n\xff\xff broken\nfe80::1%lo0 zone\n10.0.0.2 b\xc3\xbcro after\n10.0.0.3";
        let hosts = HostsFile::parse(text);
        let of = |name| hosts.addresses(name).map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of("LOCALHOST").expect("listed"), ["127.0.0.1", "::1"]);
        for (name, address) in [("my_db", "127.0.0.1"), ("db.internal", "127.0.0.1"), ("after.", "10.0.0.2")] {
            assert_eq!(of(name).expect(name), [address], "{name}");
        }
        for name in ["commented", "broken", "zone", "and", ""] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
