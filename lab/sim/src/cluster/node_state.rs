use std::sync::Arc;

use crate::host::Address;
use crate::ipvs::VirtualServices;
use crate::nft::Ruleset;
use crate::protocol::Family;
use crate::relays::Relays;
use crate::rules::Rules;
use crate::set::Sets;

/// A node's rules, sets, virtual services and addresses.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say it")]
pub struct NodeState {
    pub v4: Arc<Rules>,
    pub v6: Arc<Rules>,
    /// Rules of the second iptables variant (legacy or nft).
    pub second: Vec<Arc<Rules>>,
    pub nft: Arc<Ruleset>,
    pub sets: Sets,
    pub servers: VirtualServices,
    /// Addresses of `kube-ipvs0`.
    pub addresses: Vec<Address>,
    /// Ports on which the userspace proxy relays.
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

/// An unreadable listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct NodeReadError {
    /// The command, file or node of the listing.
    pub what: String,
    /// The error with its line.
    pub problem: String,
}

impl NodeReadError {
    /// Returns an error in the listing `what`.
    #[must_use]
    pub fn new(what: &str, problem: &dyn std::fmt::Display) -> NodeReadError {
        NodeReadError { what: what.to_owned(), problem: problem.to_string() }
    }
}

impl NodeState {
    /// Returns the first iptables variant's rules.
    #[must_use]
    pub fn rules(&self, family: Family) -> &Arc<Rules> {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Reads output of `iptables-save`. Errors name its source, `what`.
    pub fn read_rules(&mut self, what: &str, family: Family, text: &str) -> Result<(), NodeReadError> {
        self.set_rules(Rules::read(family, text).map_err(|error| NodeReadError::new(what, &error))?);
        Ok(())
    }

    /// Like [`NodeState::read_rules`], but accepts unmodelled rules ([`Rules::read_any`]).
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

    /// Like [`NodeState::read_any_rules`], for the second iptables variant.
    pub fn read_second_rules(&mut self, what: &str, family: Family, text: &str) -> Result<(), NodeReadError> {
        let rules = Rules::read_any(family, text).map_err(|error| NodeReadError::new(what, &error))?;
        self.second.push(Arc::new(rules));
        Ok(())
    }

    /// Reads output of `nft list ruleset` or `nft -j list ruleset`. Accepts unmodelled statements.
    pub fn read_nft(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        self.nft = Arc::new(Ruleset::read(text).map_err(|error| NodeReadError::new(what, &error))?);
        Ok(())
    }

    /// Reads output of `ipset save`.
    pub fn read_sets(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        self.sets = Sets::read(text).map_err(|error| NodeReadError::new(what, &error))?;
        Ok(())
    }

    /// Reads output of `ipvsadm -Sn`.
    pub fn read_servers(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        self.servers = VirtualServices::read(text).map_err(|error| NodeReadError::new(what, &error))?;
        Ok(())
    }

    /// Reads lines `ip addr add ADDRESS dev kube-ipvs0`.
    pub fn read_addresses(&mut self, what: &str, text: &str) -> Result<(), NodeReadError> {
        let addresses = text.lines().map(|line| line.parse().map_err(|error| NodeReadError::new(what, &error)));
        self.addresses = addresses.collect::<Result<_, _>>()?;
        Ok(())
    }
}
