//! The addresses that a webhook may call. Subjects choose the URLs, so they must not be able to make the daemon call
//! addresses inside its own network.
//!
//! Pure. Contains the list of blocked ranges and the check of a URL; does not resolve names. The connector calls
//! [`EgressPolicy::check_address`] for every resolved address. [`EgressPolicy::check_url`] judges an address in the
//! URL before that.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use ipnet::IpNet;
use url::{Host, Url};

/// The addresses and schemes that may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// `webhook.allow_http`: whether `http://` may be called in addition to `https://`.
    pub allow_http: bool,
    /// `webhook.allow_private_networks`: whether loopback, private and link-local addresses may be called.
    pub allow_private_networks: bool,
    /// `webhook.allowed_networks`: parts of those networks that may always be called.
    pub allowed_networks: Arc<[IpNet]>,
}

/// A blocked address, and its kind for the attempt log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("blocked address ({kind})")]
pub struct Blocked {
    /// The use of the range, in two or three words.
    pub kind: &'static str,
}

/// The setting that unblocks a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exemption {
    /// None: no service of a subject has such an address.
    Never,
    /// `allow_private_networks`.
    ForPrivateNetworks,
}

use Exemption::{ForPrivateNetworks, Never};

/// A range and its use.
struct Range {
    net: IpNet,
    kind: &'static str,
    lifted: Exemption,
}

/// The blocked ranges. The first range that contains an address is the reason.
///
/// Source: the IANA special-purpose registries, 6to4 relays (RFC 7526), and the addresses at which clouds give
/// credentials of the machine to every guest: 169.254.169.254 (most of them), 169.254.170.2 (containers on AWS),
/// 100.100.100.200 (Alibaba), 168.63.129.16 (Azure), fd00:ec2::254 (AWS). Those are never receivers, even if private
/// networks are allowed. Addresses outside 2000::/3 are not on the public internet, so the last three ranges block all
/// of them; the ranges before only name the better-known parts. Ranges with embedded IPv4 addresses (::/96, NAT64,
/// Teredo, 6to4) are blocked completely: a translator could reach any IPv4 address through them, including blocked
/// ones.
static RANGES: LazyLock<Vec<Range>> = LazyLock::new(|| {
    let kinds = [
        (
            Never,
            "cloud platform",
            "100.100.100.200/32 168.63.129.16/32 169.254.169.254/32 169.254.170.2/32 fd00:ec2::254/128",
        ),
        (ForPrivateNetworks, "private network", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
        (ForPrivateNetworks, "shared network", "100.64.0.0/10"),
        (ForPrivateNetworks, "loopback", "127.0.0.0/8 ::1/128"),
        (ForPrivateNetworks, "link-local", "169.254.0.0/16 fe80::/10"),
        (Never, "this network", "0.0.0.0/8"),
        (Never, "IPv4 in IPv6", "::/96 64:ff9b::/96 64:ff9b:1::/48 2001::/32 2002::/16"),
        (Never, "protocol assignments", "192.0.0.0/24 2001::/23"),
        (Never, "documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
        (Never, "6to4 relay", "192.88.99.0/24"),
        (Never, "benchmarking", "198.18.0.0/15"),
        (Never, "discard", "100::/64"),
        (Never, "segment routing", "5f00::/16"),
        (Never, "multicast", "224.0.0.0/4 ff00::/8"),
        (Never, "reserved", "240.0.0.0/4 ::/3 4000::/2 8000::/1"),
    ];
    let range = |lifted, kind, net: &str| Range { net: net.parse().expect("a test reads every range"), kind, lifted };
    let of_kind = |(lifted, kind, nets): (_, _, &'static str)| nets.split(' ').map(move |net| range(lifted, kind, net));
    kinds.into_iter().flat_map(of_kind).collect()
});

/// Judges a network of `webhook.allowed_networks`: only loopback, private and link-local networks are allowed.
pub(super) fn check_allowed(network: &IpNet) -> Result<(), String> {
    let inside = |range: &&Range| range.lifted == ForPrivateNetworks && range.net.contains(network);
    match RANGES.iter().find(inside) {
        Some(_) => Ok(()),
        None => Err(format!("{network} is not part of one loopback, private or link-local network")),
    }
}

impl EgressPolicy {
    /// Checks one address, from the URL or from a resolver.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Blocked> {
        // ::ffff:a.b.c.d connects to a.b.c.d, so that address is judged.
        let address = address.to_canonical();
        match RANGES.iter().find(|range| range.net.contains(&address)) {
            Some(Range { lifted: ForPrivateNetworks, .. })
                if self.allow_private_networks || self.allowed_networks.iter().any(|net| net.contains(&address)) =>
            {
                Ok(())
            }
            Some(Range { kind, .. }) => Err(Blocked { kind }),
            None => Ok(()),
        }
    }

    /// Checks all addresses of a host. A single blocked one refuses the host: a name with outside and inside addresses
    /// is broken or an attack.
    pub fn check_addresses(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), Blocked> {
        addresses.into_iter().try_for_each(|address| self.check_address(address))
    }

    /// Parses a URL and checks everything that needs no resolver.
    ///
    /// The crate `url` normalizes every form of an IPv4 address (`2130706433`, `0x7f.1`, `0177.0.0.1`, `127.1`), so the
    /// judged address is the one that would be called.
    ///
    /// # Errors
    ///
    /// Why the URL must not be called, checked in the order scheme, user information, host, port. Trying again does not
    /// help.
    pub fn check_url(&self, text: &str) -> Result<Url, String> {
        let url =
            Url::parse(text).map_err(|_| if has_zone_id(text) { "URL with a zone id" } else { "malformed URL" })?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            _ if self.allow_http => return Err("URL scheme not allowed, allowed is https or http".to_owned()),
            _ => return Err("URL scheme not allowed, allowed is https".to_owned()),
        }
        // User information would appear in logs.
        if !url.username().is_empty() || url.password().is_some() {
            return Err("URL with user information".to_owned());
        }
        let judged = match url.host() {
            None => return Err("malformed URL".to_owned()),
            Some(Host::Ipv4(address)) => self.check_address(address.into()),
            Some(Host::Ipv6(address)) => self.check_address(address.into()),
            // A name is judged after the resolver has found its addresses.
            Some(Host::Domain(_)) => Ok(()),
        };
        judged.map_err(|blocked| blocked.to_string())?;
        if url.port() == Some(0) {
            return Err("URL with port 0".to_owned());
        }
        Ok(url)
    }
}

/// The crate `url` reports a zone id as a bad IPv6 address. A look at the brackets finds the actual mistake.
fn has_zone_id(text: &str) -> bool {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).is_some_and(|(inside, _)| inside.contains('%'))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use proptest::prelude::*;

    static STRICT: LazyLock<EgressPolicy> = LazyLock::new(EgressPolicy::default);
    static HTTP: LazyLock<EgressPolicy> =
        LazyLock::new(|| EgressPolicy { allow_http: true, ..EgressPolicy::default() });
    static INSIDE: LazyLock<EgressPolicy> =
        LazyLock::new(|| EgressPolicy { allow_http: true, allow_private_networks: true, ..EgressPolicy::default() });

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// First and last address of every blocked range: a boundary that is off by one would open the network.
    #[test]
    fn every_listed_range_is_blocked_to_its_edges() {
        let edges = "0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.0 127.255.255.255 \
                     168.63.129.16 169.254.0.0 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.255 192.0.2.0 \
                     192.0.2.255 192.88.99.0 192.88.99.255 192.168.0.0 192.168.255.255 198.18.0.0 198.19.255.255 \
                     198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 224.0.0.0 239.255.255.255 240.0.0.0 \
                     255.255.255.255 :: ::ffff:ffff ::ffff:10.0.0.0 ::ffff:10.255.255.255 64:ff9b:: 64:ff9b::ffff:ffff \
                     64:ff9b:1:: 64:ff9b:1:ffff:ffff:ffff:ffff:ffff 100:: 100::ffff:ffff:ffff:ffff 2001:: \
                     2001:0:ffff:ffff:ffff:ffff:ffff:ffff 2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff 2002:: \
                     2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff 5f00:: 5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff fc00:: \
                     fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff fec0:: \
                     feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ff00:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        for edge in edges.split_whitespace() {
            assert!(STRICT.check_address(ip(edge)).is_err(), "{edge}");
        }
    }

    /// Blocking the neighbor of a range would block public receivers.
    #[test]
    fn the_neighbours_of_the_ranges_are_not_blocked() {
        let public = "1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15 \
                      168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.88.98.255 \
                      192.88.100.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 \
                      203.0.112.255 203.0.114.0 223.255.255.255 8.8.8.8 2001:200:: 2001:db7:ffff:: 2001:db9:: 2003:: \
                      2606:4700::1111 3ffe:ffff:: ::ffff:8.8.8.8";
        for address in public.split_whitespace() {
            assert_eq!(STRICT.check_address(ip(address)), Ok(()), "{address}");
        }
    }

    /// `allow_private_networks` is for receivers in the operator's own network, not for multicast or the metadata
    /// services of clouds.
    #[test]
    fn private_networks_lift_only_loopback_private_and_link_local() {
        let lifted =
            "10.1.2.3 100.64.0.1 127.0.0.1 169.254.1.1 172.16.0.1 192.168.1.1 ::1 fd00::1 fe80::1 ::ffff:127.0.0.1";
        for address in lifted.split_whitespace() {
            assert!(STRICT.check_address(ip(address)).is_err(), "{address}");
            assert_eq!(INSIDE.check_address(ip(address)), Ok(()), "{address}");
        }
        let never = "0.0.0.0 168.63.129.16 169.254.169.254 169.254.170.2 100.100.100.200 fd00:ec2::254 ::ffff:169.254.169.254 192.0.2.1 224.0.0.1 255.255.255.255 :: ::7f00:1 64:ff9b::7f00:1 2002:7f00:1:: ff02::1";
        for address in never.split_whitespace() {
            assert!(INSIDE.check_address(ip(address)).is_err(), "{address}");
        }
    }

    /// A single receiver in the operator's own network can be allowed. Addresses that subjects must never call can't.
    #[test]
    fn single_networks_are_opened_and_nothing_beside_them() {
        let nets = ["10.1.0.0/16", "fd00:1::/32", "169.254.0.0/16"].map(|net| net.parse().expect("a network"));
        let rules = EgressPolicy { allowed_networks: nets.into(), ..EgressPolicy::default() };
        for open in ["10.1.0.1", "10.1.255.255", "::ffff:10.1.0.1", "fd00:1::1", "169.254.1.1"] {
            assert_eq!(rules.check_address(ip(open)), Ok(()), "{open}");
        }
        for closed in ["10.2.0.1", "10.0.255.255", "127.0.0.1", "fd00:2::1", "169.254.169.254", "::10.1.0.1"] {
            assert!(rules.check_address(ip(closed)).is_err(), "{closed}");
        }
        let judged = |net: &str| check_allowed(&net.parse().expect("a network"));
        for good in ["10.0.0.0/8", "127.0.0.1/32", "192.168.7.0/24", "::1/128", "fe80::/64"] {
            assert_eq!(judged(good), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0/0", "8.8.8.0/24", "192.0.2.0/24", "224.0.0.0/4", "::/0", "2001:db8::/32"] {
            assert!(judged(bad).is_err_and(|problem| problem.starts_with(bad)), "{bad}");
        }
    }

    /// One blocked address among good ones is a sign of DNS rebinding.
    #[test]
    fn one_blocked_address_refuses_the_host() {
        assert_eq!(STRICT.check_addresses([ip("8.8.8.8"), ip("1.1.1.1")]), Ok(()));
        assert_eq!(STRICT.check_addresses([ip("8.8.8.8"), ip("10.0.0.1")]), Err(Blocked { kind: "private network" }));
    }

    /// reqwest connected to each of these without asking a resolver.
    #[test]
    fn literal_addresses_are_judged_in_every_spelling() {
        let hosts = "127.0.0.1 2130706433 0x7f.1 0177.0.0.1 127.1 0x7f000001 127.0.0.1. 017700000001 %31%32%37.0.0.1 \
                     [::ffff:127.0.0.1] [::ffff:7f00:1] [::1] [0:0:0:0:0:0:0:1] １２７.0.0.1 127。0。0。1";
        for host in hosts.split_whitespace() {
            let judged = HTTP.check_url(&format!("http://{host}:8080/hook"));
            assert_eq!(judged, Err("blocked address (loopback)".to_owned()), "{host}");
        }
        assert_eq!(STRICT.check_url("https://[::127.0.0.1]/"), Err("blocked address (IPv4 in IPv6)".to_owned()));
    }

    /// Each part of a URL that could lead elsewhere or leak is refused with its own text.
    #[test]
    fn urls_are_refused_for_what_is_wrong_with_them() {
        let text = |rules: &EgressPolicy, url: &str| rules.check_url(url).expect_err(url);
        assert_eq!(text(&STRICT, "http://example.com/"), "URL scheme not allowed, allowed is https");
        assert_eq!(text(&HTTP, "ftp://example.com/"), "URL scheme not allowed, allowed is https or http");
        assert_eq!(text(&STRICT, "https://user@example.com/"), "URL with user information");
        assert_eq!(text(&STRICT, "https://:pass@example.com/"), "URL with user information");
        assert_eq!(text(&STRICT, "https://[fe80::1%25eth0]/"), "URL with a zone id");
        assert_eq!(text(&STRICT, "https://example.com:0/"), "URL with port 0");
        for malformed in
            ["", "example.com/hook", "/hook", "https://", "https://exa mple.com/", "https://[::1", "https://a:99999/"]
        {
            assert_eq!(text(&STRICT, malformed), "malformed URL", "{malformed}");
        }
        let public = "https://hooks.example.com:8443/a?b=c";
        assert_eq!(STRICT.check_url(public).expect("public").as_str(), public);
    }

    proptest! {
        /// Every spelling of an IPv4 literal is judged like the address.
        #[test]
        fn spelling_does_not_change_what_is_blocked(bits in any::<u32>()) {
            let address = Ipv4Addr::from(bits);
            let expected = HTTP.check_address(address.into()).map_err(|blocked| blocked.to_string());
            for host in [bits.to_string(), format!("0x{bits:x}"), format!("0{bits:o}"), address.to_string(), format!("[::ffff:{address}]")] {
                let judged = HTTP.check_url(&format!("http://{host}/")).map(|_| ());
                prop_assert_eq!(&judged, &expected, "{}", host);
            }
        }

        /// No IPv6 address outside 2000::/3 is public, whatever a resolver answers.
        #[test]
        fn only_global_unicast_v6_passes(bits in any::<u128>()) {
            let address = Ipv6Addr::from(bits);
            if STRICT.check_address(address.into()).is_ok() && address.to_ipv4_mapped().is_none() {
                prop_assert_eq!(address.segments()[0] >> 13, 1);
            }
        }

        /// No text causes a panic.
        #[test]
        fn any_text_is_judged(text in "\\PC{0,40}") {
            let _ = INSIDE.check_url(&text);
            let _ = STRICT.check_url(&format!("https://{text}"));
        }
    }
}
