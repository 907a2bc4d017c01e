//! One rule as text, in the very spelling that `iptables-save` prints (1.8, both variants): what is wanted and what
//! is there can then be compared as strings, and a golden file reads like the dump of a node.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

use super::names;
use crate::model::{Family, Protocol};
use crate::plan::PodSource;

/// Longest comment that the kernel keeps, less the final zero (`XT_MAX_COMMENT_LEN` in
/// `include/uapi/linux/netfilter/xt_comment.h`).
const COMMENT_MAX: usize = 255;

/// A rule in the making. Parts can be set in any order; the text has them in the order of `iptables-save`.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    source: Option<String>,
    destination: Option<String>,
    input: Option<String>,
    protocol: Option<Protocol>,
    matches: String,
    target: Option<String>,
}

impl Rule {
    /// A rule that matches everything and does nothing.
    pub fn new() -> Rule {
        Rule::default()
    }

    /// A rule with a comment.
    pub fn commented(text: impl AsRef<str>) -> Rule {
        Rule::new().comment(text)
    }

    /// `-m comment`. Names in it come from validated objects; what could still end the quoted text, or a line, is
    /// replaced all the same, so that no text can become a rule.
    pub fn comment(mut self, text: impl AsRef<str>) -> Rule {
        let safe =
            |c: char| if (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '\'') { c } else { '?' };
        let text: String = text.as_ref().chars().map(safe).take(COMMENT_MAX).collect();
        // iptables-save leaves out the quotes where these are the only characters.
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        let quote = if plain { "" } else { "\"" };
        self.match_with(format_args!("-m comment --comment {quote}{text}{quote}"))
    }

    /// Source range.
    pub fn source(mut self, range: IpNet) -> Rule {
        self.source = Some(format!("-s {range}"));
        self
    }

    /// A single source address.
    pub fn source_ip(self, address: IpAddr) -> Rule {
        self.source(IpNet::from(address))
    }

    /// A single destination address.
    pub fn destination(mut self, address: IpAddr) -> Rule {
        self.destination = Some(format!("-d {}", IpNet::from(address)));
        self
    }

    /// Destination in, or (`negated`) outside, the family's loopback range.
    pub fn destination_loopback(mut self, family: Family, negated: bool) -> Rule {
        self.destination = Some(format!("{}-d {}", not(negated), family.loopback_range()));
        self
    }

    /// Source outside the family's loopback range.
    pub fn source_not_loopback(mut self, family: Family) -> Rule {
        self.source = Some(format!("! -s {}", family.loopback_range()));
        self
    }

    /// The packet comes from a pod, or (`negated`) from anywhere else.
    pub fn pods(mut self, pods: &PodSource, negated: bool) -> Rule {
        match pods {
            PodSource::Range(range) => self.source = Some(format!("{}-s {range}", not(negated))),
            PodSource::Interface(name) => self.input = Some(format!("{}-i {name}", not(negated))),
            PodSource::InterfacePrefix(prefix) => self.input = Some(format!("{}-i {prefix}+", not(negated))),
        }
        self
    }

    /// Transport protocol and destination port.
    pub fn port(mut self, protocol: Protocol, port: u16) -> Rule {
        self.protocol = Some(protocol);
        self.match_with(format_args!("-m {protocol} --dport {port}"))
    }

    /// `-m conntrack`, with the expression as `iptables-save` has it.
    pub fn conntrack(mut self, expression: &str) -> Rule {
        self.match_with(format_args!("-m conntrack {expression}"))
    }

    /// The destination is an address of this node.
    pub fn to_local_address(mut self) -> Rule {
        self.match_with(format_args!("-m addrtype --dst-type LOCAL"))
    }

    /// The source is an address of this node.
    pub fn from_local_address(mut self) -> Rule {
        self.match_with(format_args!("-m addrtype --src-type LOCAL"))
    }

    /// The source is no address of this node.
    pub fn not_from_local_address(mut self) -> Rule {
        self.match_with(format_args!("-m addrtype ! --src-type LOCAL"))
    }

    /// Source in the family's loopback range.
    pub fn source_loopback(mut self, family: Family) -> Rule {
        self.source = Some(format!("-s {}", family.loopback_range()));
        self
    }

    /// The transport protocol alone.
    pub fn protocol(mut self, protocol: Protocol) -> Rule {
        self.protocol = Some(protocol);
        self
    }

    /// The packet is, or (`negated`) is not, in an IP set, by these of its addresses and ports.
    pub fn in_set(mut self, set: &str, directions: &str, negated: bool) -> Rule {
        self.match_with(format_args!("-m set {}--match-set {set} {directions}", not(negated)))
    }

    /// The mark's bit is set, or (`negated`) is not.
    pub fn marked(mut self, mark: u32, negated: bool) -> Rule {
        self.match_with(format_args!("-m mark {}--mark {mark:#x}/{mark:#x}", not(negated)))
    }

    /// Matches one packet in `n`.
    pub fn one_in(mut self, n: usize) -> Rule {
        self.match_with(format_args!("-m statistic --mode random --probability {}", probability(n)))
    }

    /// The source is on the list called `list`, not older than `seconds`.
    pub fn recent_check(mut self, list: &str, seconds: u64, family: Family) -> Rule {
        let mask = recent_mask(family);
        self.match_with(format_args!(
            "-m recent --rcheck --seconds {seconds} --reap --name {list} --mask {mask} --rsource"
        ))
    }

    /// Puts the source on the list called `list`.
    pub fn recent_set(mut self, list: &str, family: Family) -> Rule {
        self.match_with(format_args!("-m recent --set --name {list} --mask {} --rsource", recent_mask(family)))
    }

    /// New destination for the connection.
    pub fn dnat(mut self, protocol: Protocol, to: std::net::SocketAddr) -> String {
        self.protocol = Some(protocol);
        self.match_with(format_args!("-m {protocol}")).target(format_args!("DNAT --to-destination {to}"))
    }

    /// Refuses, with the family's ICMP port unreachable.
    pub fn reject(self, family: Family) -> String {
        match family {
            Family::V4 => self.target("REJECT --reject-with icmp-port-unreachable"),
            Family::V6 => self.target("REJECT --reject-with icmp6-port-unreachable"),
        }
    }

    /// Jumps to the chain that marks for masquerade.
    pub fn masquerade(self) -> String {
        self.target(names::MARK_MASQ)
    }

    /// Ends the rule with a target: a chain, or a target with its options.
    pub fn target(mut self, target: impl std::fmt::Display) -> String {
        self.target = Some(format!("-j {target}"));
        self.text()
    }

    /// Ends the rule without a target: it only counts, and carries its comment.
    pub fn text(self) -> String {
        let protocol = self.protocol.map(|p| format!("-p {p}"));
        let matches = (!self.matches.is_empty()).then_some(self.matches);
        let parts = [self.source, self.destination, self.input, protocol, matches, self.target];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn match_with(&mut self, text: std::fmt::Arguments<'_>) -> Rule {
        if !self.matches.is_empty() {
            self.matches.push(' ');
        }
        // Writing into a String cannot fail.
        let _ = self.matches.write_fmt(text);
        std::mem::take(self)
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "! " } else { "" }
}

fn recent_mask(family: Family) -> &'static str {
    match family {
        Family::V4 => "255.255.255.255",
        Family::V6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    }
}

/// 1/n as `iptables-save` prints it: the kernel keeps a fraction of 2³¹ (`xt_statistic`), which comes back with
/// eleven digits.
fn probability(n: usize) -> String {
    let whole = f64::from(1u32 << 31);
    #[allow(clippy::cast_precision_loss, reason = "endpoint counts are far below 2^52")]
    let kept = (whole / n as f64).round();
    format!("{:.11}", kept / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_read_as_the_kernel_keeps_them() {
        let table = [(2, "0.50000000000"), (3, "0.33333333349"), (7, "0.14285714272"), (10, "0.10000000009")];
        for (n, text) in table {
            assert_eq!(probability(n), text, "1/{n}");
        }
    }

    #[test]
    fn a_comment_cannot_end_the_rule() {
        let rule = Rule::commented("a/b\" -j ACCEPT\n-A INPUT -j ACCEPT").target("X");
        assert_eq!(rule, "-m comment --comment \"a/b? -j ACCEPT?-A INPUT -j ACCEPT\" -j X");
        assert_eq!(Rule::commented("plain").text(), "-m comment --comment plain");
    }
}
