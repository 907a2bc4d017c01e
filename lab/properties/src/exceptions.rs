//! Where the rules are known to differ from the promise, precisely: each with the case and the reason. They are counted,
//! and a test sees to it that each still occurs, so that none outlives its fault.

use svclab_oracle::{Cluster, Mode, Promise};
use svclab_sim::network::Outcomes;

/// A known difference.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// Its name.
    pub name: &'static str,
    /// The mode that it is of; none is every mode.
    pub mode: Option<Mode>,
    /// What differs, and why it stays.
    pub reason: &'static str,
    applies: fn(&Cluster, &Promise, &Outcomes) -> bool,
}

/// All of them: none now.
pub const ALL: [Exception; 0] = [];

/// The exception that a disagreement falls under, by its place in [`ALL`].
#[must_use]
pub fn find(cluster: &Cluster, promise: &Promise, found: &Outcomes) -> Option<usize> {
    let mode = cluster.world.proxy.mode;
    let of_mode = |exception: &Exception| exception.mode.is_none_or(|of| of == mode);
    ALL.iter().position(|exception| of_mode(exception) && (exception.applies)(cluster, promise, found))
}
