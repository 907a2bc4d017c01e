//! Tables of nftables beside the proxy's. The oracle promises nothing for them; kernel and simulator must agree.

use svclab_oracle::World;
use svclab_properties::sweep::mixed;

use crate::foreign_rules::Placeholders;

/// A table for `nft -f`, for IPv4, with [`Placeholders`] for addresses.
#[derive(Debug, Clone, Copy)]
pub struct ForeignTable {
    pub name: &'static str,
    families: &'static [&'static str],
    text: &'static str,
}

const fn table(name: &'static str, families: &'static [&'static str], text: &'static str) -> ForeignTable {
    ForeignTable { name, families, text }
}

const ALL: [ForeignTable; 9] = [
    table(
        "a bridge drops what the client sends to pods",
        &["bridge"],
        "table bridge beside {\nchain c {\ntype filter hook output priority 0\nip saddr CLIENT tcp dport 8081 drop\n}\n}\n",
    ),
    table(
        "a bridge marks frames before PREROUTING",
        &["bridge", "ip"],
        "table bridge beside {\nchain c {\ntype filter hook prerouting priority -1\nip daddr SERVICES meta mark set 0x40\n}\n}\n\
         table ip beside {\nchain c {\ntype filter hook prerouting priority -300\nmeta mark 0x40 meta l4proto udp drop\n}\n}\n",
    ),
    table(
        "datagrams of the client are dropped at ingress",
        &["netdev"],
        "table netdev beside {\nchain c {\ntype filter hook ingress device eth0 priority 0\nip saddr CLIENT udp dport 30000-30100 drop\n}\n}\n",
    ),
    table(
        "answers to the client are dropped at egress",
        &["netdev"],
        "table netdev beside {\nchain c {\ntype filter hook egress device eth0 priority 0\nip daddr CLIENT tcp sport 30000-30100 drop\n}\n}\n",
    ),
    table(
        "a limit for every source",
        &["ip"],
        "table ip beside {\nset s {\ntype ipv4_addr\nsize 65535\nflags dynamic\n}\nchain c {\ntype filter hook forward priority -1\n\
         ct state new update @s { ip saddr limit rate over 1000/second burst 1000 packets } drop\n}\n}\n",
    ),
    table(
        "a number of connections for every source",
        &["ip"],
        "table ip beside {\nset s {\ntype ipv4_addr\nsize 65535\nflags dynamic\n}\nchain c {\ntype filter hook input priority -1\n\
         ct state new add @s { ip saddr ct count over 1000 } reject\n}\n}\n",
    ),
    table(
        "forwarded packets have no owner",
        &["ip"],
        "table ip beside {\nchain c {\ntype filter hook forward priority 0\nmeta skuid 0 drop\nmeta skuid != 0 drop\n}\n}\n",
    ),
    table(
        "a younger table translates first",
        &["ip"],
        "table ip beside {\nchain c {\ntype nat hook prerouting priority dstnat\nip daddr SERVICES meta l4proto tcp dnat to END:8081\n}\n}\n",
    ),
    table(
        "a younger table rejects first",
        &["inet"],
        "table inet beside {\nchain c {\ntype filter hook forward priority filter\nip saddr CLIENT udp dport 8081-8082 reject\n}\n}\n",
    ),
];

/// Draws a table.
pub fn one(salt: u64) -> ForeignTable {
    let draw = usize::try_from(mixed(salt ^ 0x7461_626c_6573) >> 32).unwrap_or_default();
    ALL[draw % ALL.len()]
}

impl ForeignTable {
    /// Returns the text for a node; `None` if the cluster has no IPv4.
    pub fn on(&self, world: &World, node: &str) -> Option<String> {
        Some(Placeholders::new(world, node, true)?.fill(self.text))
    }

    /// Returns commands that remove the table.
    pub fn removal(&self) -> String {
        self.families.iter().map(|family| format!("delete table {family} beside\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_drawn() {
        let names: std::collections::BTreeSet<&str> = (0..300).map(|salt| one(salt).name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
