//! Controllers of ReplicaSets and Deployments, run at the end of every write.

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

#[derive(Debug, Clone, Default)]
pub(super) struct Workloads {
    deployments: BTreeMap<ObjectKey, Deployment>,
    sets: BTreeMap<ObjectKey, ReplicaSet>,
    queue: BTreeSet<(ObjectKind, ObjectKey)>,
    /// Whether the controllers are running; their own writes do not start them again.
    busy: bool,
}

impl Workloads {
    pub(super) fn enqueue(&mut self, kind: ObjectKind, key: ObjectKey) {
        self.queue.insert((kind, key));
    }
}

pub(super) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

fn is_controlled_by(metadata: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller_of(metadata).is_some_and(|found| Some(&found.uid) == owner.uid.as_ref())
}

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

/// Returns a field and its problem.
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

fn generation(before: Option<&ObjectMeta>, changed: bool) -> i64 {
    let last = before.and_then(|before| before.generation).unwrap_or(0);
    if changed { last + 1 } else { last.max(1) }
}

impl Store {
    pub(super) fn run_controllers(&mut self) {
        if std::mem::replace(&mut self.workloads.busy, true) {
            return;
        }
        while let Some((kind, key)) = self.workloads.queue.pop_first() {
            match kind {
                ObjectKind::Deployment => self.reconcile_deployment(&key),
                _ => self.reconcile_replica_set(&key),
            }
        }
        self.workloads.busy = false;
    }

    /// Removes the objects that a removed workload controlled.
    pub(super) fn workload_removed(&mut self, kind: ObjectKind, key: &ObjectKey) {
        if kind == ObjectKind::Deployment {
            let Some(deployment) = self.workloads.deployments.remove(key) else { return };
            for set in self.sets_of(key, &deployment.metadata) {
                self.remove_existing(ObjectKind::ReplicaSet, &set);
            }
        } else if let Some(set) = self.workloads.sets.remove(key) {
            for pod in self.pods_of(key, &set.metadata) {
                self.remove_existing(ObjectKind::Pod, &pod);
            }
            if let Some(owner) = controller_of(&set.metadata) {
                let owner = ObjectKey { namespace: key.namespace.clone(), name: owner.name.clone() };
                self.workloads.enqueue(ObjectKind::Deployment, owner);
            }
        }
    }

    fn remove_existing(&mut self, kind: ObjectKind, key: &ObjectKey) {
        let _: Result<(), ObjectError> = self.remove_one(kind, key);
    }

    /// Omits pods that have ended.
    fn pods_of(&self, set: &ObjectKey, metadata: &ObjectMeta) -> Vec<ObjectKey> {
        let first = ObjectKey { namespace: set.namespace.clone(), name: String::new() };
        let inside = self.pods.range(first..).take_while(|(key, _)| key.namespace == set.namespace);
        let own = inside
            .filter(|(_, pod)| !pod.finished && !pod.terminating && is_controlled_by(&pod.object.metadata, metadata));
        own.map(|(key, _)| key.clone()).collect()
    }

    fn sets_of(&self, deployment: &ObjectKey, metadata: &ObjectMeta) -> Vec<ObjectKey> {
        let sets = self.workloads.sets.iter().filter(|(key, _)| key.namespace == deployment.namespace);
        sets.filter(|(_, set)| is_controlled_by(&set.metadata, metadata)).map(|(key, _)| key.clone()).collect()
    }
}
