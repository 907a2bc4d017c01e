//! The wrong proxies, by what they are wrong about.

mod across_ports;
mod addresses;
mod choice;
mod counters;
mod endpoints;
mod fates;
mod flows;
mod hashing;
mod health;
mod hints;
mod load;
mod machines;
mod masquerade;
mod memory;
mod names_and_ports;
mod packets;
mod policies;
mod policy_changes;
mod promises;
mod published;
mod refusals;
mod rules;
mod service_changes;
mod settings;
mod sources;
mod timing;

use super::Mutant;

#[rustfmt::skip]
const PARTS: &[&[Mutant]] = &[
    across_ports::MUTANTS,
    addresses::MUTANTS,
    choice::MUTANTS,
    counters::MUTANTS,
    endpoints::MUTANTS,
    fates::MUTANTS,
    hashing::MUTANTS,
    flows::MUTANTS,
    health::MUTANTS,
    hints::MUTANTS,
    load::MUTANTS,
    machines::MUTANTS,
    masquerade::MUTANTS,
    names_and_ports::MUTANTS,
    packets::MUTANTS,
    policies::MUTANTS,
    policy_changes::MUTANTS,
    promises::MUTANTS,
    published::MUTANTS,
    refusals::MUTANTS,
    rules::MUTANTS,
    service_changes::MUTANTS,
    settings::MUTANTS,
    sources::MUTANTS,
    timing::MUTANTS,
];

pub fn all() -> impl Iterator<Item = &'static Mutant> {
    PARTS.iter().copied().flatten()
}

pub fn find(id: &str) -> Option<&'static Mutant> {
    all().find(|mutant| mutant.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let mut seen = BTreeSet::new();
        for mutant in all() {
            assert!(seen.insert(mutant.id), "{} is there twice", mutant.id);
            let is_kebab = mutant.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            assert!(is_kebab && !mutant.does.ends_with('.'), "{}", mutant.id);
        }
    }
}
