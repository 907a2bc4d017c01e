//! The Deployment controller: one ReplicaSet per pod template.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};

use super::rollout::{ReplicaCounts, RolloutPace, next};
use super::{generation, owned_by, selector_problem};
use crate::objects::allocate::{mix, name_characters};
use crate::objects::error::ObjectError;
use crate::objects::kind::ObjectKind;
use crate::objects::object::{ObjectKey, key_of};
use crate::objects::store::Store;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH_LENGTH: u32 = 10;
/// Default of `revisionHistoryLimit`.
const HISTORY: i32 = 10;

impl Store {
    pub(in crate::objects) fn apply_deployment(&mut self, mut written: Deployment) -> Result<String, ObjectError> {
        let key = key_of(&written.metadata, "deployment")?;
        let name = format!("deployment/{key}");
        let spec = &mut written.spec;
        if let Some((field, problem)) = selector_problem(&spec.selector, spec.template.metadata.as_ref()) {
            return Err(ObjectError::field(name, field, problem));
        }
        if spec.template.spec.as_ref().is_none_or(|pod| pod.containers.is_empty()) {
            return Err(ObjectError::field(name, "spec.template.spec.containers", "a container is required"));
        }
        spec.replicas.get_or_insert(1);
        spec.strategy.get_or_insert_default().type_.get_or_insert_with(|| "RollingUpdate".to_owned());
        let before = self.workloads.deployments.get(&key);
        let changed = before.is_none_or(|before| before.spec != written.spec);
        written.metadata.generation = Some(generation(before.map(|before| &before.metadata), changed));
        self.put_deployment(&key, written);
        self.workloads.enqueue(ObjectKind::Deployment, key);
        Ok(name)
    }

    fn put_deployment(&mut self, key: &ObjectKey, mut deployment: Deployment) {
        self.put(key, &mut deployment);
        self.workloads.deployments.insert(key.clone(), deployment);
    }

    /// Advances the rollout by one step; changes of its ReplicaSets enqueue the Deployment again.
    pub(super) fn reconcile_deployment(&mut self, key: &ObjectKey) {
        let Some(mut deployment) = self.workloads.deployments.get(key).cloned() else { return };
        let spec = deployment.spec.clone();
        let hash = template_hash(&spec);
        let paused = spec.paused == Some(true);
        let mut sets = self.sets_of(key, &deployment.metadata);
        let new = ObjectKey { namespace: key.namespace.clone(), name: format!("{}-{hash}", key.name) };
        if !paused && !sets.contains(&new) {
            self.put_set(&new, new_set(&new, &deployment, &spec, &hash));
            sets.push(new.clone());
        }
        if !paused {
            let revision = self.assign_revision(&sets, &new);
            deployment.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision.to_string());
        }
        // A paused Deployment keeps the template of its newest ReplicaSet.
        let newest = sets.iter().max_by_key(|set| self.revision(set)).cloned();
        let new = if paused { newest.unwrap_or(new) } else { new };
        let wanted = spec.replicas.unwrap_or(1);
        let old: Vec<ObjectKey> = sets.iter().filter(|set| **set != new).cloned().collect();
        let state = |key: &ObjectKey| {
            self.workloads.sets.get(key).map(state_of).unwrap_or(ReplicaCounts { wanted: 0, existing: 0, ready: 0 })
        };
        let (new_state, old_states) = (state(&new), old.iter().map(state).collect::<Vec<_>>());
        let pace = RolloutPace::of(spec.strategy.as_ref(), wanted);
        let (up, down) = if paused && !old.is_empty() {
            (new_state.wanted, old_states.iter().map(|set| set.wanted).collect())
        } else {
            next(pace, wanted, new_state, &old_states)
        };
        self.scale(&new, up);
        old.iter().zip(down).for_each(|(set, count)| self.scale(set, count));
        self.prune_replica_sets(&old, spec.revision_history_limit.unwrap_or(HISTORY));
        let unavailable = if let RolloutPace::Rolling { unavailable, .. } = pace { unavailable } else { wanted };
        update_status(&mut deployment, new_state, &old_states, (wanted, wanted - unavailable), self.versions.now());
        self.put_deployment(key, deployment);
    }

    /// Gives the ReplicaSet of the current template the highest revision; returns the revision.
    fn assign_revision(&mut self, sets: &[ObjectKey], new: &ObjectKey) -> u64 {
        let highest = sets.iter().filter(|set| *set != new).map(|set| self.revision(set)).max().unwrap_or(0);
        let own = self.revision(new);
        if own > highest {
            return own;
        }
        if let Some(mut set) = self.workloads.sets.get(new).cloned() {
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(REVISION.to_owned(), (highest + 1).to_string());
            self.put_set(new, set);
        }
        highest + 1
    }

    fn revision(&self, set: &ObjectKey) -> u64 {
        let annotations = self.workloads.sets.get(set).and_then(|set| set.metadata.annotations.as_ref());
        annotations.and_then(|all| all.get(REVISION)?.parse().ok()).unwrap_or(0)
    }

    fn scale(&mut self, key: &ObjectKey, count: i32) {
        let Some(mut set) = self.workloads.sets.get(key).cloned() else { return };
        let spec = &mut set.spec;
        if spec.replicas != Some(count) {
            spec.replicas = Some(count);
            set.metadata.generation = Some(generation(Some(&set.metadata.clone()), true));
            self.put_set(key, set);
            self.workloads.enqueue(ObjectKind::ReplicaSet, key.clone());
        }
    }

    fn prune_replica_sets(&mut self, old: &[ObjectKey], limit: i32) {
        let is_empty = |key: &&ObjectKey| {
            self.workloads.sets.get(*key).is_some_and(|set| state_of(set).wanted == 0 && state_of(set).existing == 0)
        };
        let mut empty: Vec<ObjectKey> = old.iter().filter(is_empty).cloned().collect();
        empty.sort_by_key(|key| self.revision(key));
        let surplus = empty.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in &empty[..surplus] {
            self.remove_existing(ObjectKind::ReplicaSet, set);
        }
    }
}

/// Returns a hash of the template alone, so that an old template finds its old ReplicaSet. An empty field is one that is
/// not there: JSON and protobuf differ in these.
fn template_hash(spec: &DeploymentSpec) -> String {
    let template = serde_json::to_value(&spec.template).map(without_empty).unwrap_or_default();
    name_characters(mix(0, &template.to_string()), HASH_LENGTH)
}

fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_empty(value)));
            fields.filter(|(_, value)| !value.is_null() && *value != json!({}) && *value != json!([])).collect()
        }
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        other => other,
    }
}

fn new_set(key: &ObjectKey, deployment: &Deployment, spec: &DeploymentSpec, hash: &str) -> ReplicaSet {
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.to_owned());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash.to_owned());
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        labels: Some(labels),
        generation: Some(1),
        owner_references: Some(vec![owned_by(ObjectKind::Deployment, &deployment.metadata)]),
        ..ObjectMeta::default()
    };
    let spec = ReplicaSetSpec {
        replicas: Some(0),
        min_ready_seconds: spec.min_ready_seconds,
        selector,
        template: Some(template),
    };
    ReplicaSet { metadata, spec, status: None }
}

fn state_of(set: &ReplicaSet) -> ReplicaCounts {
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.replicas.unwrap_or(0);
    ReplicaCounts { wanted, existing: status.replicas, ready: status.ready_replicas.unwrap_or(0) }
}

/// `least` is the minimum number of ready pods.
fn update_status(
    deployment: &mut Deployment,
    new: ReplicaCounts,
    old: &[ReplicaCounts],
    (wanted, least): (i32, i32),
    now: Time,
) {
    let existing = new.existing + old.iter().map(|set| set.existing).sum::<i32>();
    let ready = new.ready + old.iter().map(|set| set.ready).sum::<i32>();
    let observed = deployment.metadata.generation;
    let status = deployment.status.get_or_insert_default();
    status.observed_generation = observed;
    (status.replicas, status.updated_replicas) = (Some(existing), Some(new.existing));
    (status.ready_replicas, status.available_replicas) = (Some(ready), Some(ready));
    status.unavailable_replicas = Some((wanted.max(existing) - ready).max(0));
    let is_done = new.existing == wanted && new.ready == wanted && existing == wanted;
    let available = match ready >= least {
        true => ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    let progressing = match is_done {
        true => ("Progressing", "True", "NewReplicaSetAvailable", "Deployment has successfully progressed."),
        false => ("Progressing", "True", "ReplicaSetUpdated", "Deployment is progressing."),
    };
    let before = status.conditions.take().unwrap_or_default();
    let condition = |(type_, value, reason, message): (&str, &str, &str, &str)| {
        let same = before.iter().find(|one| one.type_.as_deref() == Some(type_));
        let kept = same.filter(|one| one.status.as_deref() == Some(value));
        let updated = kept.filter(|one| one.reason.as_deref() == Some(reason));
        DeploymentCondition {
            type_: Some(type_.to_owned()),
            status: Some(value.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: kept.and_then(|one| one.last_transition_time.clone()).or(Some(now.clone())),
            last_update_time: updated.and_then(|one| one.last_update_time.clone()).or(Some(now.clone())),
        }
    };
    status.conditions = Some(vec![condition(available), condition(progressing)]);
}
