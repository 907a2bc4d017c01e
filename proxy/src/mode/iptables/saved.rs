//! What `iptables-save` printed, as far as the proxy must understand it: chains and the text of their rules.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::names;
use crate::kernel::iptables::Table;
use crate::model::Protocol;
use crate::plan::flows::{Frontend, is_judged};

/// One table as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedTable {
    /// Rules by chain, the kernel's own chains included.
    pub chains: HashMap<String, Vec<String>>,
}

impl SavedTable {
    /// Reads one table's dump. Lines that are none of the format's (warnings of nft) are passed over.
    pub fn parse(text: &str) -> SavedTable {
        let mut table = SavedTable::default();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix(':') {
                let chain = declared.split(' ').next().unwrap_or_default();
                table.chains.entry(chain.to_owned()).or_default();
            } else if let Some(rule) = line.strip_prefix("-A ") {
                let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
                table.chains.entry(chain.to_owned()).or_default().push(rule.to_owned());
            }
        }
        table
    }

    /// Chains of ours that come and go with services.
    pub fn per_service_chains(&self) -> impl Iterator<Item = &String> {
        self.chains.keys().filter(|chain| names::is_per_service(chain))
    }

    /// Whether a rule of a chain that is not in `leaving` and not rewritten (`written`) jumps or goes to `chain`.
    pub fn is_referred_to(&self, chain: &str, elsewhere: impl Fn(&str) -> bool) -> bool {
        self.chains
            .iter()
            .filter(|(from, _)| elsewhere(from))
            .any(|(_, rules)| rules.iter().any(|rule| target(rule) == Some(chain)))
    }
}

/// The frontends of UDP and SCTP service ports that rules of ours in this table lead somewhere.
pub fn datagram_frontends(table: &SavedTable) -> Vec<(Protocol, Frontend)> {
    let rules = [names::SERVICES, names::NODE_PORTS].into_iter().filter_map(|chain| table.chains.get(chain)).flatten();
    rules.filter_map(|rule| frontend(rule)).filter(|(protocol, _)| is_judged(*protocol)).collect()
}

/// The frontend that a rule of a shared chain is about, from the options that it is rendered with.
fn frontend(rule: &str) -> Option<(Protocol, Frontend)> {
    let after = |option: &str| rule.split_once(option)?.1.split(' ').next();
    let protocol = Protocol::from_api(Some(&after("-p ")?.to_uppercase()))?;
    let port = after("--dport ")?.parse().ok()?;
    let address = || after("-d ")?.split('/').next()?.parse().ok();
    let at_address = rule.starts_with("-d ");
    let frontend =
        if at_address { Frontend::Address(SocketAddr::new(address()?, port)) } else { Frontend::NodePort(port) };
    Some((protocol, frontend))
}

/// The chain or target that a rule jumps or goes to.
pub fn target(rule: &str) -> Option<&str> {
    let rest = rule.split_once("-j ").or_else(|| rule.split_once("-g "))?.1;
    // A comment may hold `-j `; the jump proper is the last one.
    let rest = rest.rsplit_once(" -j ").map_or(rest, |(_, last)| last);
    rest.split(' ').next()
}

/// The tables that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    /// By table.
    pub tables: HashMap<Table, SavedTable>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_rules_are_read() {
        let text = "# Generated\n*nat\n:PREROUTING ACCEPT [1:60]\n:KUBE-SVC-A - [0:0]\n:OTHER - [0:0]\n\
                    -A PREROUTING -m comment --comment \"a -j b\" -j KUBE-SVC-A\n-A OTHER\nCOMMIT\n";
        let table = SavedTable::parse(text);
        assert_eq!(table.chains.len(), 3);
        assert_eq!(table.chains["OTHER"], [""]);
        assert_eq!(table.per_service_chains().collect::<Vec<_>>(), ["KUBE-SVC-A"]);
        assert!(table.is_referred_to("KUBE-SVC-A", |from| from == "PREROUTING"));
        assert!(!table.is_referred_to("KUBE-SVC-A", |from| from == "OTHER"));
    }

    #[test]
    fn frontends_of_datagrams_are_read_from_rules() {
        let text = concat!(
            "-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A\n",
            "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment \"kube-system/dns:dns-tcp cluster IP\" -m tcp --dport 53 -j KUBE-SVC-B\n",
            "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n",
            "-A KUBE-NODEPORTS -p sctp -m comment --comment \"default/gate\" -m sctp --dport 30068 -j KUBE-EXT-C\n",
            "-A OTHER -d 10.96.0.11/32 -p udp -m udp --dport 53 -j ACCEPT\n",
        );
        let found = datagram_frontends(&SavedTable::parse(text));
        let dns = Frontend::Address("10.96.0.10:53".parse().unwrap());
        assert_eq!(found, [(Protocol::Udp, dns), (Protocol::Sctp, Frontend::NodePort(30_068))]);
    }
}
