//! The wrong proxies, by what they are wrong about.

mod choice;

use super::Mutant;

const PARTS: [&[Mutant]; 1] = [choice::MUTANTS];

pub fn all() -> impl Iterator<Item = &'static Mutant> {
    PARTS.into_iter().flatten()
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
