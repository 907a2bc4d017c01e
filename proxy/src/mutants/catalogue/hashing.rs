//! Which endpoint consistent hashing gives a client.

use crate::config::Mode;
use crate::habits::Habit;
use crate::model::LoadBalancing;
use crate::mutants::{Hook, Mutant};
use crate::nftables::{SlotNumber, Statement};

const fn hashing(id: &'static str, does: &'static str, hook: Hook) -> Mutant {
    Mutant::new(id, does, "consistent-hashing", hook).only(&[Mode::Nftables])
}

pub(super) const MUTANTS: &[Mutant] = &[
    hashing(
        "hashing-ignored",
        "draws endpoints, though the Service asks for consistent hashing",
        Hook::Plan(|_, plan| plan.load_balancing = LoadBalancing::Random),
    ),
    hashing(
        "hashing-for-all",
        "hashes the clients of every Service",
        Hook::ServicePort(|_, port| port.load_balancing = Some(LoadBalancing::Maglev)),
    ),
    hashing(
        "hashing-with-port",
        "hashes the client's port, though the Service asks for the address only",
        Hook::Plan(|_, plan| {
            if plan.load_balancing == LoadBalancing::Maglev {
                plan.load_balancing = LoadBalancing::MaglevPort;
            }
        }),
    ),
    hashing(
        "hashing-without-port",
        "hashes only the client's address, though the Service asks for address and port",
        Hook::Plan(|_, plan| {
            if plan.load_balancing == LoadBalancing::MaglevPort {
                plan.load_balancing = LoadBalancing::Maglev;
            }
        }),
    ),
    hashing(
        "hashing-seed-of-node",
        "hashes clients with a seed of each node",
        Hook::NftRules(|_, rules| {
            for statement in rules.iter_mut().flat_map(|rule| &mut rule.statements) {
                if let Statement::TranslateBy { number: SlotNumber::Jhash { seed, .. }, .. } = statement {
                    *seed = of_arguments();
                }
            }
        }),
    ),
    hashing(
        "hashing-by-rank",
        "fills tables by endpoints' ranks in their list, so that one that goes moves the clients of those after it",
        Hook::Habit(Habit::MaglevByRank),
    ),
];

/// The arguments name the node.
fn of_arguments() -> u32 {
    std::env::args().flat_map(String::into_bytes).fold(0, |sum, byte| sum.rotate_left(5) ^ u32::from(byte))
}
