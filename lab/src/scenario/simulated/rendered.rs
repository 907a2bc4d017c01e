use std::collections::{BTreeMap, BTreeSet};

use svclab_sim::cluster::{NodeReadError, NodeState};
use svclab_sim::protocol::Family;
use svclab_sim::relays::{self, Relay, RelayPort};
use svclab_spec::PROXY_HEALTH_PORT;

use super::lost_flows::{self, KeptFlows};

#[derive(Debug, Clone, Default)]
pub struct Rendered {
    pub state: NodeState,
    /// The number of local endpoints by family and `healthCheckNodePort`; at the port of the proxy's own `/healthz`, 1
    /// where load balancers may send to the node, else 0.
    pub health: BTreeMap<(Family, u16), usize>,
    /// Listening ports kept only for open connections.
    pub held: BTreeSet<RelayPort>,
    pub tables: String,
    /// `iptables-restore` input of IPv4 and IPv6.
    pub rules: [String; 2],
    pub flows: KeptFlows,
}

const FAMILIES: [(&str, Family); 2] = [("# IPv4", Family::V4), ("# IPv6", Family::V6)];
const PARTS: [(&str, OutputSection); 5] = [
    ("# addresses", OutputSection::Addresses),
    ("# ipset save", OutputSection::Sets),
    ("# ipvsadm -Sn", OutputSection::Servers),
    ("# iptables-restore", OutputSection::Rules),
    ("# nft -f", OutputSection::Tables),
];

const HEALTH: &str = "# health check ";
/// The proxy's own `/healthz` refuses, because the node is about to be deleted.
const INELIGIBLE: &str = "# healthz 503";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputSection {
    Addresses,
    Sets,
    Servers,
    Rules,
    Tables,
}

impl Rendered {
    pub fn read(node: &str, text: &str) -> Result<Rendered, NodeReadError> {
        let (mut v4, mut v6, mut sets, mut servers) = (String::new(), String::new(), String::new(), String::new());
        let mut tables = String::new();
        let (mut family, mut part, mut addresses) = (Family::V4, OutputSection::Rules, String::new());
        let mut rendered = Rendered::default();
        let eligible = usize::from(!text.lines().any(|line| line == INELIGIBLE));
        rendered.health.extend([Family::V4, Family::V6].map(|family| ((family, PROXY_HEALTH_PORT), eligible)));
        for line in text.lines() {
            if let Some((_, next)) = FAMILIES.iter().find(|(heading, _)| *heading == line) {
                (family, part) = (*next, OutputSection::Rules);
            } else if let Some((_, next)) = PARTS.iter().find(|(heading, _)| *heading == line) {
                part = *next;
            } else if let Some(text) = line.strip_prefix(HEALTH) {
                let mut words = text.split(' ');
                let port = words.next().and_then(|word| word.parse::<u16>().ok());
                let local = words.nth(1).and_then(|word| word.parse::<usize>().ok());
                let both =
                    port.zip(local).ok_or_else(|| NodeReadError::new(&format!("health checks of {node}"), &line))?;
                rendered.health.insert((family, both.0), both.1);
            } else if let Some(text) = line.strip_prefix(lost_flows::LINE) {
                let fail = |problem: String| NodeReadError::new(&format!("connections of {node}"), &problem);
                rendered.flows.extend([lost_flows::parse(text).map_err(fail)?]);
            } else if let Some(text) = line.strip_prefix(relays::LINE) {
                let fail = |problem: String| NodeReadError::new(&format!("listening ports of {node}"), &problem);
                let (protocol, port, relay) = Relay::parse(text).map_err(fail)?;
                rendered.state.relays.insert((family, protocol, port), relay);
            } else {
                let into = match (part, family) {
                    (OutputSection::Addresses, _) => &mut addresses,
                    (OutputSection::Sets, _) => &mut sets,
                    (OutputSection::Servers, _) => &mut servers,
                    (OutputSection::Tables, _) => &mut tables,
                    (_, Family::V4) => &mut v4,
                    (_, Family::V6) => &mut v6,
                };
                into.push_str(line);
                into.push('\n');
            }
        }
        let state = &mut rendered.state;
        state.read_rules(&format!("rules of {node}"), Family::V4, &v4)?;
        state.read_rules(&format!("rules of {node}"), Family::V6, &v6)?;
        state.read_nft(&format!("tables of {node}"), &tables)?;
        state.read_sets(&format!("sets of {node}"), &sets)?;
        state.read_servers(&format!("virtual servers of {node}"), &servers)?;
        state.read_addresses(&format!("addresses of {node}"), &addresses)?;
        rendered.tables = tables;
        rendered.rules = [v4, v6];
        Ok(rendered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_of_the_output_is_read() {
        let text = "# IPv4\n# addresses\nip addr add 10.96.0.9/32 dev kube-ipvs0\n# ipset save\n\
                    create A hash:ip family inet hashsize 1024 maxelem 65536\nadd A 10.96.0.9\n# ipvsadm -Sn\n\
                    -A -t 10.96.0.9:80 -s rr\n# iptables-restore\n*nat\n:X - [0:0]\n-A X -j RETURN\n-I PREROUTING -j X\nCOMMIT\n\
                    # IPv6\n*filter\n:Y - [0:0]\nCOMMIT\n";
        let program = Rendered::read("node-a", text).unwrap().state;
        assert_eq!(program.addresses.iter().map(|own| own.ip.to_string()).collect::<Vec<_>>(), ["10.96.0.9"]);
        assert_eq!(program.sets.sets.len(), 1);
        assert_eq!((program.v4.tables.len(), program.v6.tables.len()), (1, 1));
    }

    #[test]
    fn a_node_that_will_be_deleted_is_unhealthy() {
        let healthy = |text: &str| Rendered::read("node-a", text).unwrap().health[&(Family::V6, PROXY_HEALTH_PORT)];
        assert_eq!((healthy("# IPv4\n"), healthy("# IPv4\n# healthz 503\n# IPv6\n# healthz 503\n")), (1, 0));
    }

    #[test]
    fn an_unknown_match_is_an_error() {
        let error = Rendered::read("node-a", "# IPv4\n*nat\n-A PREROUTING -m quantum -j ACCEPT\nCOMMIT\n").unwrap_err();
        assert!(error.to_string().starts_with("rules of node-a: "), "{error}");
        assert!(error.to_string().contains("quantum"), "{error}");
    }
}
