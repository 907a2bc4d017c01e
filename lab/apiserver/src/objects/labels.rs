//! An index of objects by label, so that a pod's change takes time for its own Services only.

use std::collections::{BTreeMap, BTreeSet};

use super::object::ObjectKey;

/// Namespace, label and value.
type LabelTerm = (String, String, String);

#[derive(Debug, Clone, Default)]
pub(super) struct LabelIndex {
    terms: BTreeMap<LabelTerm, BTreeSet<ObjectKey>>,
}

impl LabelIndex {
    pub(super) fn insert<'a>(&mut self, key: &ObjectKey, labels: impl IntoIterator<Item = (&'a String, &'a String)>) {
        for (name, value) in labels {
            let term = (key.namespace.clone(), name.clone(), value.clone());
            self.terms.entry(term).or_default().insert(key.clone());
        }
    }

    pub(super) fn remove<'a>(&mut self, key: &ObjectKey, labels: impl IntoIterator<Item = (&'a String, &'a String)>) {
        for (name, value) in labels {
            let term = (key.namespace.clone(), name.clone(), value.clone());
            if let Some(keys) = self.terms.get_mut(&term) {
                keys.remove(key);
                if keys.is_empty() {
                    self.terms.remove(&term);
                }
            }
        }
    }

    pub(super) fn with(&self, namespace: &str, name: &str, value: &str) -> impl Iterator<Item = &ObjectKey> + use<'_> {
        let term = (namespace.to_owned(), name.to_owned(), value.to_owned());
        self.terms.get(&term).into_iter().flatten()
    }
}
