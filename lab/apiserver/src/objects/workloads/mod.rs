//! The controllers of ReplicaSets and Deployments. Like the EndpointSlice controller they run inside every write, until nothing is
//! left to do.

mod deployment;
mod replica_set;
mod rollout;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use super::error::ObjectError;
use super::kind::ObjectKind;
use super::object::ObjectKey;
use super::store::Store;

/// What the controllers remember.
#[derive(Debug, Clone, Default)]
pub(super) struct Workloads {
    deployments: BTreeMap<ObjectKey, Deployment>,
    sets: BTreeMap<ObjectKey, ReplicaSet>,
    /// What is to be looked at.
    due: BTreeSet<(ObjectKind, ObjectKey)>,
    /// They are at work: what they write does not start them once more.
    busy: bool,
}

impl Workloads {
    /// Has the controller of `kind` look at an object, if there is one.
    pub(super) fn due(&mut self, kind: ObjectKind, key: ObjectKey) {
        self.due.insert((kind, key));
    }
}

/// The object that takes care of another.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` takes care of the object.
fn is_own(metadata: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller(metadata).is_some_and(|found| Some(&found.uid) == owner.uid.as_ref())
}

/// A reference to what takes care of another object.
fn owned_by(kind: ObjectKind, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: kind.api_version().to_owned(),
        kind: kind.name().to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What is wrong with a selector and a template's labels.
fn selector_problem(selector: &LabelSelector, template: Option<&ObjectMeta>) -> Option<(&'static str, &'static str)> {
    if selector.match_expressions.as_ref().is_some_and(|all| !all.is_empty()) {
        return Some(("spec.selector.matchExpressions", "the lab's controllers take matchLabels alone"));
    }
    let wanted = selector.match_labels.as_ref().filter(|labels| !labels.is_empty());
    let Some(wanted) = wanted else {
        return Some(("spec.selector", "a selector with labels is required"));
    };
    let labels = template.and_then(|metadata| metadata.labels.as_ref());
    let matches = wanted.iter().all(|(name, value)| labels.and_then(|labels| labels.get(name)) == Some(value));
    (!matches).then_some(("spec.template.metadata.labels", "`selector` does not match template `labels`"))
}

/// The generation of an object whose spec is `changed` or not, after that of the one before.
fn generation(before: Option<&ObjectMeta>, changed: bool) -> i64 {
    let last = before.and_then(|before| before.generation).unwrap_or(0);
    if changed { last + 1 } else { last.max(1) }
}

impl Store {
    /// Lets the controllers work until nothing is due.
    pub(super) fn settle(&mut self) {
        if std::mem::replace(&mut self.workloads.busy, true) {
            return;
        }
        while let Some((kind, key)) = self.workloads.due.pop_first() {
            match kind {
                ObjectKind::Deployment => self.settle_deployment(&key),
                _ => self.settle_set(&key),
            }
        }
        self.workloads.busy = false;
    }

    /// A Deployment or ReplicaSet is gone, and what it took care of goes with it.
    pub(super) fn workload_removed(&mut self, kind: ObjectKind, key: &ObjectKey) {
        if kind == ObjectKind::Deployment {
            let Some(deployment) = self.workloads.deployments.remove(key) else { return };
            for set in self.sets_of(key, &deployment.metadata) {
                self.remove_known(ObjectKind::ReplicaSet, &set);
            }
        } else if let Some(set) = self.workloads.sets.remove(key) {
            for pod in self.pods_of(key, &set.metadata) {
                self.remove_known(ObjectKind::Pod, &pod);
            }
            if let Some(owner) = controller(&set.metadata) {
                let owner = ObjectKey { namespace: key.namespace.clone(), name: owner.name.clone() };
                self.workloads.due(ObjectKind::Deployment, owner);
            }
        }
    }

    /// Removes an object that is there.
    fn remove_known(&mut self, kind: ObjectKind, key: &ObjectKey) {
        let _: Result<(), ObjectError> = self.remove_one(kind, key);
    }

    /// The pods that a set takes care of, and that have not ended.
    fn pods_of(&self, set: &ObjectKey, metadata: &ObjectMeta) -> Vec<ObjectKey> {
        let first = ObjectKey { namespace: set.namespace.clone(), name: String::new() };
        let inside = self.pods.range(first..).take_while(|(key, _)| key.namespace == set.namespace);
        let own = inside.filter(|(_, pod)| !pod.finished && !pod.terminating && is_own(&pod.object.metadata, metadata));
        own.map(|(key, _)| key.clone()).collect()
    }

    /// The sets that a Deployment takes care of.
    fn sets_of(&self, deployment: &ObjectKey, metadata: &ObjectMeta) -> Vec<ObjectKey> {
        let sets = self.workloads.sets.iter().filter(|(key, _)| key.namespace == deployment.namespace);
        sets.filter(|(_, set)| is_own(&set.metadata, metadata)).map(|(key, _)| key.clone()).collect()
    }
}
