//! Tests a kernel's functions in an unused network namespace.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Working functions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Kernel release.
    pub release: String,
    /// Names of working functions, such as `ipvs/mh`.
    pub can: BTreeSet<String>,
}

const SCHEDULERS: [&str; 14] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf", "twos"];

const LARGE_BATCHES: &str = "largeBatches";
const LARGE_BATCH: usize = 1000;

/// Functions and commands that test them; `nft` takes a script.
const OPERATIONS: &[(&str, &[&str])] = &[
    ("iptables/nft", &["iptables-nft -t nat -S"]),
    ("iptables/legacy", &["iptables-legacy -t nat -S"]),
    ("ipset/hash:ip,port", &["ipset create probe1 hash:ip,port"]),
    ("ipset/hash:ip,port,net", &["ipset create probe2 hash:ip,port,net"]),
    ("ipset/bitmap:port", &["ipset create probe3 bitmap:port range 0-65535"]),
    ("dummy", &["ip link add probe0 type dummy"]),
    ("netem", &["tc qdisc add dev lo root netem delay 1ms"]),
    (
        "nftables/numgen",
        &[
            "nft add table ip p1; add chain ip p1 c { type nat hook prerouting priority 0; }; add rule ip p1 c dnat to numgen random mod 2 map { 0 : 192.0.2.1, 1 : 192.0.2.2 }",
        ],
    ),
    (
        "nftables/vmap",
        &[
            "nft add table ip p2; add chain ip p2 t; add map ip p2 m { type ipv4_addr . inet_proto . inet_service : verdict; }; add chain ip p2 c { type nat hook prerouting priority 0; }; add rule ip p2 c ip daddr . meta l4proto . th dport vmap @m",
        ],
    ),
    (
        "nftables/fib",
        &[
            "nft add table ip p3; add chain ip p3 c { type nat hook prerouting priority 0; }; add rule ip p3 c fib daddr type local accept",
        ],
    ),
    (
        "nftables/flowtable",
        &[
            "nft add table ip p5; add flowtable ip p5 f { hook ingress priority 0; devices = { lo }; }; add chain ip p5 c { type filter hook forward priority 0; }; add rule ip p5 c flow add @f",
        ],
    ),
    (
        "nftables/affinity",
        &[
            "nft add table ip p4; add set ip p4 s { type ipv4_addr; flags dynamic, timeout; timeout 3h; }; add chain ip p4 c { type nat hook prerouting priority 0; }; add rule ip p4 c update @s { ip saddr } accept",
        ],
    ),
];

/// Tests all functions; leaves objects in the namespace.
pub fn all() -> Abilities {
    let release =
        nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default();
    let mut can: BTreeSet<String> = OPERATIONS
        .iter()
        .filter(|(_, commands)| commands.iter().all(|command| works(&words(command))))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    for (port, scheduler) in (1..).zip(SCHEDULERS) {
        if works(&words(&format!("ipvsadm -A -t 192.0.2.1:{port} -s {scheduler}"))) {
            can.insert(format!("ipvs/{scheduler}"));
        }
    }
    if Path::new("/proc/net/sctp").is_dir() {
        can.insert("sctp".to_owned());
    }
    if takes_large_batches() {
        can.insert(LARGE_BATCHES.to_owned());
    }
    Abilities { release, can }
}

impl Abilities {
    /// Describes functions, a line per group.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
        for name in &self.can {
            let (group, member) = name.split_once('/').unwrap_or((name, ""));
            match lines.last_mut().filter(|(last, _)| last == group) {
                Some((_, members)) => members.push(member),
                None => lines.push((group.to_owned(), vec![member])),
            }
        }
        lines
            .into_iter()
            .map(|(group, members)| format!("{group} {}", members.join(" ")).trim_end().to_owned())
            .collect()
    }
}

/// Returns a text that changes with the tests.
pub fn operations() -> String {
    format!("{OPERATIONS:?}{SCHEDULERS:?}{LARGE_BATCHES}{LARGE_BATCH}")
}

/// Whether one large iptables-nft message works. `SO_SNDBUFFORCE` enlarges the socket buffer only in the first user
/// namespace.
fn takes_large_batches() -> bool {
    let mut text = "*filter\n:PROBE - [0:0]\n".to_owned();
    for number in 0..LARGE_BATCH {
        text += &format!("-A PROBE -p tcp -m comment --comment large-{number} -m tcp --dport 80 -j RETURN\n");
    }
    text += "COMMIT\n";
    let child = command("iptables-nft-restore", &["--noflush"]).stdin(Stdio::piped()).spawn();
    child.is_ok_and(|mut child| {
        let written = child.stdin.take().is_some_and(|mut input| input.write_all(text.as_bytes()).is_ok());
        child.wait().is_ok_and(|status| status.success()) && written
    })
}

fn words(command: &str) -> Vec<&str> {
    match command.split_once(' ') {
        Some(("nft", script)) => vec!["nft", script],
        _ => command.split(' ').collect(),
    }
}

fn works(argv: &[&str]) -> bool {
    let Some((program, args)) = argv.split_first() else { return false };
    command(program, args).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn command(program: &str, args: &[&str]) -> Command {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(args).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_told_by_group() {
        let can = ["dummy", "ipvs/mh", "ipvs/rr", "sctp"].map(str::to_owned).into();
        let abilities = Abilities { release: "6.1".to_owned(), can };
        assert_eq!(abilities.lines(), ["dummy", "ipvs mh rr", "sctp"]);
    }

    #[test]
    fn a_script_is_one_word() {
        assert_eq!(words("nft add table ip x"), ["nft", "add table ip x"]);
        assert_eq!(words("ip link"), ["ip", "link"]);
        assert!(works(&["true"]) && !works(&["false"]) && !works(&["no-such-program"]));
    }
}
