//! Clusters that nobody wrote by hand: every kind of service, policy, endpoint and setting that the oracle has a rule for.
//!
//! [`recipes`] and [`histories`] are proptest strategies over [`Recipe`]s, which shrink to the smallest that still shows
//! what was found, and [`recipes_on`] is one whose machines are given; [`cluster`] and [`history()`] draw one for a seed. What
//! they make is admitted by an API server: no rule is broken but where a rule is about that. (Objects that break the API's
//! rules are the business of tests of their own.)

mod build;
mod history;
mod recipe;
mod services;
mod shrink;
mod slices;
mod strategy;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use history::{Change, History, ObjectName, Write, histories, writes};
pub use recipe::*;
pub use shrink::shrink;
pub use strategy::{recipes, recipes_on};

use crate::cluster::ClusterModel;
use crate::world::ReversePath;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The cluster of a seed: always the same.
#[must_use]
pub fn cluster(seed: u64) -> ClusterModel {
    recipe(seed).build()
}

/// The recipe of a seed.
#[must_use]
pub fn recipe(seed: u64) -> Recipe {
    draw(seed, &recipes()).unwrap_or_else(nothing)
}

/// The history of a seed, of at most `most` changes.
#[must_use]
pub fn history(seed: u64, most: usize) -> History {
    draw(seed, &histories(most)).unwrap_or_else(|| History { start: nothing(), changes: Vec::new() })
}

/// Strategies only fail where they reject values, which these do not.
fn draw<S: Strategy>(seed: u64, strategy: &S) -> Option<S::Value> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { failure_persistence: None, ..Config::default() };
    Some(strategy.new_tree(&mut TestRunner::new_with_rng(config, rng)).ok()?.current())
}

fn nothing() -> Recipe {
    Recipe {
        families: Families::V4,
        point_to_point: false,
        link_gateways: false,
        overlay: false,
        second: false,
        reverse_path: ReversePath::Off,
        nodes: Vec::new(),
        pods: Vec::new(),
        services: Vec::new(),
        proxy: ProxyRecipe {
            detect: Detect::ClusterCidr,
            masquerade_all: false,
            node_ports: NodePorts::Unset,
            localhost_node_ports: true,
        },
        service_cidrs: false,
    }
}
