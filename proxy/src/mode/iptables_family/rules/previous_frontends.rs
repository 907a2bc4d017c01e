use std::net::SocketAddr;

use super::names;
use crate::model::Protocol;
use crate::plan::stale_flows::{Frontend, needs_conntrack_cleanup};

/// Chains with frontends: of iptables mode, then of userspace mode.
pub const CHAINS: [&str; 4] = [names::SERVICES, names::NODE_PORTS, names::PORTALS_CONTAINER, names::NODEPORT_CONTAINER];

/// Returns the frontends in `rules`, a previous proxy's rules of a chain in [`CHAINS`].
pub fn conntrack_frontends(rules: &[String]) -> Vec<(Protocol, Frontend)> {
    let frontends = rules.iter().filter_map(|rule| frontend(rule));
    frontends.filter(|(protocol, _)| needs_conntrack_cleanup(*protocol)).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::SavedTable;

    #[test]
    fn frontends_of_udp_and_sctp_are_read_from_rules() {
        let text = concat!(
            "-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-A\n",
            "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment \"kube-system/dns:dns-tcp cluster IP\" -m tcp --dport 53 -j KUBE-SVC-B\n",
            "-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n",
            "-A KUBE-NODEPORTS -p sctp -m comment --comment \"default/gate\" -m sctp --dport 30068 -j KUBE-EXT-C\n",
            "-A KUBE-PORTALS-CONTAINER -d 10.96.0.12/32 -p udp -m comment --comment \"default/echo:\" -m udp --dport 7 -j REDIRECT --to-ports 61000\n",
            "-A OTHER -d 10.96.0.11/32 -p udp -m udp --dport 53 -j ACCEPT\n",
        );
        let saved = SavedTable::parse(text);
        let found: Vec<_> = CHAINS
            .iter()
            .flat_map(|chain| conntrack_frontends(saved.chains.get(*chain).map_or(&[], |rules| rules)))
            .collect();
        let dns = Frontend::Address("10.96.0.10:53".parse().unwrap());
        let echo = Frontend::Address("10.96.0.12:7".parse().unwrap());
        let gate = Frontend::NodePort(30_068);
        assert_eq!(found, [(Protocol::Udp, dns), (Protocol::Sctp, gate), (Protocol::Udp, echo)]);
    }
}
