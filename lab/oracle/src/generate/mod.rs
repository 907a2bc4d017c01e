//! Generated clusters that an API server admits, with every object and setting for which the oracle has a rule.
//!
//! [`recipes`] and [`histories`] are proptest strategies; [`recipes_on`] keeps the machines. [`cluster`] and
//! [`history()`] draw by a seed.

mod build;
mod history;
mod recipe;
mod services;
mod shrink;
mod slices;
mod strategy;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use history::{ApiWrite, History, HistoryChange, ObjectName, histories, writes};
pub use recipe::*;
pub use shrink::shrink;
pub use strategy::{recipes, recipes_on};

use crate::cluster::ClusterModel;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

pub fn cluster(seed: u64) -> ClusterModel {
    recipe(seed).build()
}

pub fn recipe(seed: u64) -> Recipe {
    draw(seed, &recipes()).unwrap_or_default()
}

pub fn history(seed: u64, most: usize) -> History {
    draw(seed, &histories(most)).unwrap_or_default()
}

fn draw<S: Strategy>(seed: u64, strategy: &S) -> Option<S::Value> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { failure_persistence: None, ..Config::default() };
    Some(strategy.new_tree(&mut TestRunner::new_with_rng(config, rng)).ok()?.current())
}
