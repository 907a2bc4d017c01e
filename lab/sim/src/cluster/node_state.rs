//! What a proxy leaves on a node: rules of both families, IP sets, virtual services with their addresses, listening ports.

use std::sync::Arc;

use crate::host::Address;
use crate::ipvs::VirtualServices;
use crate::nft::Ruleset;
use crate::protocol::Family;
use crate::relays::Relays;
use crate::rules::Rules;
use crate::set::Sets;

/// One node's.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// IPv4 rules.
    pub v4: Arc<Rules>,
    /// IPv6 rules.
    pub v6: Arc<Rules>,
    /// Rules of the other variant of iptables, where both have some.
    pub second: Vec<Arc<Rules>>,
    /// Rules of nftables.
    pub nft: Arc<Ruleset>,
    /// IP sets.
    pub sets: Sets,
    /// Virtual services.
    pub servers: VirtualServices,
    /// Addresses of `kube-ipvs0`.
    pub addresses: Vec<Address>,
    /// Where listening ports lead, in userspace mode.
    pub relays: Relays,
}

impl Default for NodeState {
    fn default() -> NodeState {
        NodeState {
            v4: Arc::new(Rules::empty(Family::V4)),
            v6: Arc::new(Rules::empty(Family::V6)),
            second: Vec::new(),
            nft: Arc::new(Ruleset::default()),
            sets: Sets::default(),
            servers: VirtualServices::default(),
            addresses: Vec::new(),
            relays: Relays::new(),
        }
    }
}

/// A line that the simulator does not understand, and in what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct NodeReadError {
    /// The command that printed it, the file, or the node.
    pub what: String,
    /// What is wrong, with its line.
    pub problem: String,
}

impl NodeReadError {
    /// The problem with a line of `what`.
    #[must_use]
    pub fn new(what: &str, problem: &dyn std::fmt::Display) -> NodeReadError {
        NodeReadError { what: what.to_owned(), problem: problem.to_string() }
    }
}

impl NodeState {
    /// The rules of a family.
    #[must_use]
    pub fn rules(&self, family: Family) -> &Arc<Rules> {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Takes what `iptables-save` or `ip6tables-save` prints.
    ///
    /// # Errors
    /// The first line that the simulator does not understand, with `what` it was read from.
    pub fn read_rules(&mut self, what: &str, family: Family, text: &str) -> Result<(), NodeReadError> {
        self.set_rules(Rules::read(family, text).map_err(|error| NodeReadError::new(what, &error))?);
        Ok(())
    }

    /// Takes the same, and keeps as text what the simulator does not know ([`Rules::read_any`]).
    ///
    /// # Errors
    /// The first line that is none of a dump's, with `what` it was read from.
    pub fn read_any_rules(&mut self, what: &str, family: Family, text: &str) -> Result<(), NodeReadError> {
        self.set_rules(Rules::read_any(family, text).map_err(|error| NodeReadError::new(what, &error))?);
        Ok(())
    }

    fn set_rules(&mut self, rules: Rules) {
        match rules.family {
            Family::V4 => self.v4 = Arc::new(rules),
            Family::V6 => self.v6 = Arc::new(rules),
        }
    }

    /// The same of the other variant of iptables, whose rules stand beside the first one's.
    ///
    /// # Errors
    /// As [`NodeState::read_any_rules`].
    pub fn read_second_rules(&mut self, what: &str, family: Family, text: &str) -> Result<(), NodeReadError> {
        let rules = Rules::read_any(family, text).map_err(|error| NodeReadError::new(what, &error))?;
        self.second.push(Arc::new(rules));
        Ok(())
    }

    /// Takes what `nft list ruleset` or `nft -j list ruleset` prints.
    ///
    /// # Errors
    /// As [`NodeState::read_rules`]; what of a rule is not modelled is no error, as long as no packet gets there.
    pub fn read_nft(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        self.nft = Arc::new(Ruleset::read(text).map_err(|error| NodeReadError::new(what, &error))?);
        Ok(())
    }

    /// Takes what `ipset save` prints.
    ///
    /// # Errors
    /// As [`NodeState::read_rules`].
    pub fn read_sets(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        self.sets = Sets::read(text).map_err(|error| NodeReadError::new(what, &error))?;
        Ok(())
    }

    /// Takes what `ipvsadm -Sn` prints.
    ///
    /// # Errors
    /// As [`NodeState::read_rules`].
    pub fn read_servers(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        self.servers = VirtualServices::read(text).map_err(|error| NodeReadError::new(what, &error))?;
        Ok(())
    }

    /// Takes lines `ip addr add ADDRESS dev kube-ipvs0`.
    ///
    /// # Errors
    /// As [`NodeState::read_rules`].
    pub fn read_addresses(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        let addresses = text.lines().map(|line| line.parse().map_err(|error| NodeReadError::new(what, &error)));
        self.addresses = addresses.collect::<Result<_, _>>()?;
        Ok(())
    }
}
