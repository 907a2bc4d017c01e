//! What a node's kernel is told: rules of both families, IP sets, virtual servers, and the addresses that go with them.

use std::collections::{BTreeMap, BTreeSet};

use svclab_sim::host::Address;
use svclab_sim::ipvs::VirtualServices;
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_sim::set::Sets;

use super::relays::{self, Port, Relay, Relays};

/// One node's.
#[derive(Debug, Clone)]
pub struct Program {
    /// IPv4 rules.
    pub v4: Rules,
    /// IPv6 rules.
    pub v6: Rules,
    /// IP sets.
    pub sets: Sets,
    /// Virtual servers.
    pub servers: VirtualServices,
    /// Addresses of `kube-ipvs0`.
    pub addresses: Vec<Address>,
    /// With how many endpoints the proxy answers at each `healthCheckNodePort`.
    pub health: BTreeMap<(Family, u16), usize>,
    /// Where listening ports lead, in userspace mode.
    pub relays: Relays,
    /// Listening ports that only connections which stand need.
    pub held: BTreeSet<Port>,
}

/// A line that the simulator does not understand, and in what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct ProgramError {
    /// The file, or the node.
    pub what: String,
    /// What is wrong, with its line.
    pub problem: String,
}

impl Default for Program {
    fn default() -> Self {
        Program {
            v4: Rules::empty(Family::V4),
            v6: Rules::empty(Family::V6),
            sets: Sets::default(),
            servers: VirtualServices::default(),
            addresses: Vec::new(),
            health: BTreeMap::new(),
            relays: Relays::new(),
            held: BTreeSet::new(),
        }
    }
}

/// The headings of what `svcproxy render` prints; before the first of a family's come its rules, if there is no other.
const FAMILIES: [(&str, Family); 2] = [("# IPv4", Family::V4), ("# IPv6", Family::V6)];
const PARTS: [(&str, Part); 4] = [
    ("# addresses", Part::Addresses),
    ("# ipset save", Part::Sets),
    ("# ipvsadm -Sn", Part::Servers),
    ("# iptables-restore", Part::Rules),
];

/// What begins a line about a `healthCheckNodePort`: it, the service, and how many endpoints are on the node.
const HEALTH: &str = "# health check ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Addresses,
    Sets,
    Servers,
    Rules,
}

impl Program {
    /// Reads what `svcproxy render` prints for a node.
    ///
    /// # Errors
    /// The first line that the simulator does not understand.
    pub fn rendered(node: &str, text: &str) -> Result<Program, ProgramError> {
        let (mut v4, mut v6, mut sets, mut servers) = (String::new(), String::new(), String::new(), String::new());
        let (mut family, mut part, mut addresses) = (Family::V4, Part::Rules, Vec::new());
        let (mut relays, mut health) = (Relays::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some((_, next)) = FAMILIES.iter().find(|(heading, _)| *heading == line) {
                (family, part) = (*next, Part::Rules);
            } else if let Some((_, next)) = PARTS.iter().find(|(heading, _)| *heading == line) {
                part = *next;
            } else if let Some(text) = line.strip_prefix(HEALTH) {
                let mut words = text.split(' ');
                let port = words.next().and_then(|word| word.parse::<u16>().ok());
                let local = words.nth(1).and_then(|word| word.parse::<usize>().ok());
                let both = port.zip(local).ok_or_else(|| wrong(&format!("health checks of {node}"), &line))?;
                health.insert((family, both.0), both.1);
            } else if let Some(text) = line.strip_prefix(relays::LINE) {
                let fail = |problem: String| wrong(&format!("listening ports of {node}"), &problem);
                let (protocol, port, relay) = Relay::parse(text).map_err(fail)?;
                relays.insert((family, protocol, port), relay);
            } else if part == Part::Addresses {
                addresses.push(line.parse().map_err(|error| wrong(&format!("addresses of {node}"), &error))?);
            } else {
                let into = match (part, family) {
                    (Part::Sets, _) => &mut sets,
                    (Part::Servers, _) => &mut servers,
                    (_, Family::V4) => &mut v4,
                    (_, Family::V6) => &mut v6,
                };
                into.push_str(line);
                into.push('\n');
            }
        }
        let mut program = Program { addresses, health, relays, ..Program::default() };
        program.read_rules(&format!("rules of {node}"), Family::V4, &v4)?;
        program.read_rules(&format!("rules of {node}"), Family::V6, &v6)?;
        program.read_sets(&format!("sets of {node}"), &sets)?;
        program.read_servers(&format!("virtual servers of {node}"), &servers)?;
        Ok(program)
    }

    /// Takes what `iptables-save` or `ip6tables-save` prints.
    ///
    /// # Errors
    /// The first line that the simulator does not understand.
    pub fn read_rules(&mut self, what: &str, family: Family, text: &str) -> Result<(), ProgramError> {
        let rules = Rules::read(family, text).map_err(|error| wrong(what, &error))?;
        match family {
            Family::V4 => self.v4 = rules,
            Family::V6 => self.v6 = rules,
        }
        Ok(())
    }

    /// Takes what `ipset save` prints.
    ///
    /// # Errors
    /// The first line that the simulator does not understand.
    pub fn read_sets(&mut self, what: &str, text: &str) -> Result<(), ProgramError> {
        self.sets = Sets::read(text).map_err(|error| wrong(what, &error))?;
        Ok(())
    }

    /// Takes what `ipvsadm -Sn` prints.
    ///
    /// # Errors
    /// The first line that the simulator does not understand.
    pub fn read_servers(&mut self, what: &str, text: &str) -> Result<(), ProgramError> {
        self.servers = VirtualServices::read(text).map_err(|error| wrong(what, &error))?;
        Ok(())
    }
}

fn wrong(what: &str, problem: &dyn std::fmt::Display) -> ProgramError {
    ProgramError { what: what.to_owned(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_what_is_rendered_is_read() {
        let text = "# IPv4\n# addresses\nip addr add 10.96.0.9/32 dev kube-ipvs0\n# ipset save\n\
                    create A hash:ip family inet hashsize 1024 maxelem 65536\nadd A 10.96.0.9\n# ipvsadm -Sn\n\
                    -A -t 10.96.0.9:80 -s rr\n# iptables-restore\n*nat\n:X - [0:0]\n-A X -j RETURN\n-I PREROUTING -j X\nCOMMIT\n\
                    # IPv6\n*filter\n:Y - [0:0]\nCOMMIT\n";
        let program = Program::rendered("node-a", text).unwrap();
        assert_eq!(program.addresses.iter().map(|own| own.ip.to_string()).collect::<Vec<_>>(), ["10.96.0.9"]);
        assert_eq!(program.sets.sets.len(), 1);
        assert_eq!((program.v4.tables.len(), program.v6.tables.len()), (1, 1));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let error =
            Program::rendered("node-a", "# IPv4\n*nat\n-A PREROUTING -m quantum -j ACCEPT\nCOMMIT\n").unwrap_err();
        assert!(error.to_string().starts_with("rules of node-a: "), "{error}");
        assert!(error.to_string().contains("quantum"), "{error}");
    }
}
