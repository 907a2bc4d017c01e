//! Which endpoint is chosen.

use crate::mutants::{Hook, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "choice-first-of-many-never-chosen",
        "never chooses the first of more than ten endpoints",
        "scaling",
        Hook::Plan(|_, plan| {
            if plan.cluster_backends.len() > 10 {
                plan.cluster_backends.remove(0);
            }
        }),
    ),
    Mutant::new(
        "choice-at-most-32-endpoints",
        "uses no more than 32 endpoints",
        "scaling",
        Hook::Plan(|_, plan| plan.cluster_backends.truncate(32)),
    ),
];
