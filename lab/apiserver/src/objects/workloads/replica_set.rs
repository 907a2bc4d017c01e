use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;

use super::{controller_of, generation, owned_by, selector_problem};
use crate::objects::allocate::generated_name;
use crate::objects::error::ObjectError;
use crate::objects::kind::ObjectKind;
use crate::objects::object::{Object, ObjectKey, key_of};
use crate::objects::store::Store;

const FAILURE: &str = "ReplicaFailure";

impl Store {
    pub(in crate::objects) fn apply_replica_set(&mut self, mut set: ReplicaSet) -> Result<String, ObjectError> {
        let key = key_of(&set.metadata, "replicaset")?;
        let name = format!("replicaset/{key}");
        let spec = &mut set.spec;
        let labels = spec.template.as_ref().and_then(|template| template.metadata.as_ref());
        if let Some((field, problem)) = selector_problem(&spec.selector, labels) {
            return Err(ObjectError::field(name, field, problem));
        }
        spec.replicas.get_or_insert(1);
        let before = self.workloads.sets.get(&key);
        let changed = before.is_none_or(|before| before.spec != set.spec);
        set.metadata.generation = Some(generation(before.map(|before| &before.metadata), changed));
        self.put_set(&key, set);
        self.workloads.enqueue(ObjectKind::ReplicaSet, key);
        Ok(name)
    }

    pub(super) fn put_set(&mut self, key: &ObjectKey, mut set: ReplicaSet) {
        self.put(key, &mut set);
        self.workloads.sets.insert(key.clone(), set);
    }

    pub(super) fn reconcile_replica_set(&mut self, key: &ObjectKey) {
        let Some(mut set) = self.workloads.sets.get(key).cloned() else { return };
        let spec = set.spec.clone();
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let mut own = self.pods_of(key, &set.metadata);
        let mut failure = None;
        while own.len() < wanted {
            match self.make_pod(key, &set, &spec) {
                Ok(pod) => own.push(pod),
                Err(error) => {
                    failure = Some(error.to_string());
                    break;
                }
            }
        }
        if own.len() > wanted {
            for pod in self.surplus_pods(&own, own.len() - wanted) {
                self.remove_existing(ObjectKind::Pod, &pod);
            }
            own = self.pods_of(key, &set.metadata);
        }
        self.update_status(&mut set, &own, failure);
        let owner = controller_of(&set.metadata)
            .map(|owner| ObjectKey { namespace: key.namespace.clone(), name: owner.name.clone() });
        self.put_set(key, set);
        owner.into_iter().for_each(|owner| self.workloads.enqueue(ObjectKind::Deployment, owner));
    }

    fn make_pod(&mut self, key: &ObjectKey, set: &ReplicaSet, spec: &ReplicaSetSpec) -> Result<ObjectKey, ObjectError> {
        let template = spec.template.clone().unwrap_or_default();
        let mut metadata = template.metadata.unwrap_or_default();
        let prefix = format!("{}-", key.name);
        let name = (self.version()..)
            .map(|number| generated_name(&prefix, number))
            .find(|name| !self.pods.contains_key(&ObjectKey { namespace: key.namespace.clone(), name: name.clone() }));
        let pod = ObjectKey { namespace: key.namespace.clone(), name: name.unwrap_or_default() };
        metadata.name = Some(pod.name.clone());
        metadata.namespace = Some(pod.namespace.clone());
        metadata.generate_name = Some(prefix);
        metadata.creation_timestamp = None;
        metadata.owner_references = Some(vec![owned_by(ObjectKind::ReplicaSet, &set.metadata)]);
        self.apply_one(Object::Pod(Box::new(Pod { metadata, spec: template.spec, status: None })))?;
        Ok(pod)
    }

    /// Selects pods that are not ready first, then the youngest, as in Kubernetes.
    fn surplus_pods(&self, pods: &[ObjectKey], count: usize) -> Vec<ObjectKey> {
        let mut ranked: Vec<&ObjectKey> = pods.iter().collect();
        let rank = |key: &&ObjectKey| {
            let pod = self.pods.get(*key)?;
            let born = pod.object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            Some((!pod.pending, pod.ready, std::cmp::Reverse(born)))
        };
        ranked.sort_by_key(rank);
        ranked.into_iter().take(count).cloned().collect()
    }

    fn update_status(&self, set: &mut ReplicaSet, own: &[ObjectKey], failure: Option<String>) {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let ready = number(own.iter().filter(|key| self.pods.get(*key).is_some_and(|pod| pod.ready)).count());
        let now = self.versions.now();
        let status = set.status.get_or_insert_default();
        status.observed_generation = set.metadata.generation;
        status.replicas = number(own.len());
        status.fully_labeled_replicas = Some(status.replicas);
        (status.ready_replicas, status.available_replicas) = (Some(ready), Some(ready));
        let before = status.conditions.take().into_iter().flatten().find(|one| one.type_.as_deref() == Some(FAILURE));
        status.conditions = failure.map(|message| {
            let since = before.and_then(|before| before.last_transition_time).or(Some(now));
            vec![ReplicaSetCondition {
                type_: Some(FAILURE.to_owned()),
                status: Some("True".to_owned()),
                reason: Some("FailedCreate".to_owned()),
                message: Some(message),
                last_transition_time: since,
            }]
        });
    }
}
