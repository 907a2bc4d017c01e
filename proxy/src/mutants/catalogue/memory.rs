use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What a wrong proxy remembers of earlier versions.
pub(super) struct Memory<K, V>(Mutex<BTreeMap<K, V>>);

impl<K: Ord, V: Clone> Memory<K, V> {
    pub(super) const fn new() -> Memory<K, V> {
        Memory(Mutex::new(BTreeMap::new()))
    }

    /// Returns the first value that was given for the key.
    pub(super) fn first(&self, key: K, value: V) -> V {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(value).clone()
    }

    pub(super) fn set(&self, key: K, value: V) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}
