//! What a node's kernel runs, as the simulator reads it from what the commands print.

use std::collections::BTreeMap;
use std::sync::Arc;

use svclab_oracle::Cluster;
use svclab_sim::host::Address;
use svclab_sim::ipvs::VirtualServices;
use svclab_sim::protocol::Family;
use svclab_sim::rules::Rules;
use svclab_sim::set::Sets;

use crate::proxies::{Dump, Proxies, changes};
use svclab_sim::relays::Relays;

/// One node's.
#[derive(Debug, Clone)]
pub struct Program {
    /// IPv4 rules.
    pub v4: Arc<Rules>,
    /// IPv6 rules.
    pub v6: Arc<Rules>,
    /// IP sets.
    pub sets: Sets,
    /// Virtual services.
    pub servers: VirtualServices,
    /// Addresses of `kube-ipvs0`.
    pub addresses: Vec<Address>,
    /// Userspace mode's listening ports.
    pub relays: Relays,
}

impl Program {
    /// Nothing at all.
    #[must_use]
    pub fn empty() -> Program {
        Program {
            v4: Arc::new(Rules::empty(Family::V4)),
            v6: Arc::new(Rules::empty(Family::V6)),
            sets: Sets::default(),
            servers: VirtualServices::default(),
            addresses: Vec::new(),
            relays: Relays::new(),
        }
    }

    /// Whether everything but the rules is as in the other.
    #[must_use]
    pub fn has_the_rest_of(&self, other: &Program) -> bool {
        let rest = |program: &Program| {
            let Program { v4: _, v6: _, sets, servers, addresses, relays } = program.clone();
            (sets, servers, addresses, relays)
        };
        rest(self) == rest(other)
    }

    /// Reads what the commands print.
    ///
    /// # Errors
    /// The first line that the simulator does not understand.
    pub fn read(dump: &Dump) -> Result<Program, String> {
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        Ok(Program {
            v4: Arc::new(Rules::read(Family::V4, &dump.v4).map_err(|error| said("iptables-save", &error))?),
            v6: Arc::new(Rules::read(Family::V6, &dump.v6).map_err(|error| said("ip6tables-save", &error))?),
            sets: Sets::read(&dump.sets).map_err(|error| said("ipset save", &error))?,
            servers: VirtualServices::read(&dump.servers).map_err(|error| said("ipvsadm -Sn", &error))?,
            addresses: dump
                .addresses
                .lines()
                .map(|line| line.parse().map_err(|error| said("ip addr", &error)))
                .collect::<Result<_, _>>()?,
            relays: dump.relays.clone(),
        })
    }
}

/// Every node's, as fresh proxies leave it.
///
/// # Errors
/// What was refused: an object, a transaction, a line of what was printed.
pub fn programs(cluster: &Cluster) -> Result<BTreeMap<String, Program>, String> {
    let (changes, refused) = changes(&cluster.objects);
    if !refused.is_empty() {
        return Err(format!("refused: {}", refused.join("; ")));
    }
    let mut programs = BTreeMap::new();
    for node in &cluster.world.nodes {
        let mut proxies = Proxies::fresh(&cluster.world, &node.name);
        proxies.apply(&changes);
        proxies.sync()?;
        programs.insert(node.name.clone(), Program::read(&proxies.dump())?);
    }
    Ok(programs)
}
