//! Plays the kubelet of all nodes: adds and removes pods as the API says.

use std::collections::BTreeMap;

use svclab_apiserver::objects::{ObjectKey, PodState};
use svclab_cluster::ClusterError;
use svclab_spec::{LoadBalancerVip, PodSpec};

use super::super::error::LabError;
use super::super::lab::KernelLab;

pub(super) struct BuiltPods {
    built: BTreeMap<ObjectKey, String>,
    /// UIDs of pods that could not be built, to retry once another pod's removal frees resources.
    failed: BTreeMap<ObjectKey, String>,
    vips: Vec<LoadBalancerVip>,
}

impl KernelLab {
    /// Keeps new pods pending from now on; returns the existing ones.
    pub(super) fn hold_pods(&self) -> BuiltPods {
        let (pods, vips) = self.store.write(|store| {
            store.hold_pods();
            (store.pod_states(), store.vips())
        });
        let built = pods.into_iter().map(|pod| (pod.key, pod.uid)).collect();
        BuiltPods { built, failed: BTreeMap::new(), vips }
    }

    pub(super) async fn follow_pods(&self, mut pods_built: BuiltPods, tell: &dyn Fn(&str)) -> LabError {
        let mut changes = self.store.ticks();
        loop {
            if let Err(error) = self.follow(&mut pods_built, tell).await {
                tell(&error.to_string());
            }
            if changes.changed().await.is_err() {
                return LabError::Step("the lab's objects are gone".to_owned());
            }
        }
    }

    async fn follow(&self, pods_built: &mut BuiltPods, tell: &dyn Fn(&str)) -> Result<(), LabError> {
        let (pods, vips) = self.store.read(|store| (store.pod_states(), store.vips()));
        let wanted: BTreeMap<&ObjectKey, &PodState> = pods.iter().map(|pod| (&pod.key, pod)).collect();
        // A recreated pod has the same name and another UID.
        let is_gone = |key: &ObjectKey, uid: &String| wanted.get(key).is_none_or(|pod| pod.uid != *uid);
        let gone: Vec<ObjectKey> =
            pods_built.built.iter().filter(|(key, uid)| is_gone(key, uid)).map(|(key, _)| key.clone()).collect();
        if !gone.is_empty() {
            let keys: Vec<_> = gone.iter().map(|key| (key.namespace.clone(), key.name.clone())).collect();
            gone.iter().for_each(|key| drop(pods_built.built.remove(key)));
            pods_built.failed.clear();
            self.cluster.remove_pods(&keys).await?;
        }
        let is_new = |pod: &&PodState| {
            !pods_built.built.contains_key(&pod.key) && pods_built.failed.get(&pod.key) != Some(&pod.uid)
        };
        let new: Vec<&PodState> = pods.iter().filter(is_new).collect();
        for (pod, built) in new.iter().zip(self.build(&new).await) {
            match built {
                Ok(()) => {
                    pods_built.built.insert(pod.key.clone(), pod.uid.clone());
                    self.store.write(|store| store.set_running(&pod.key, &pod.uid));
                }
                Err(error) => {
                    pods_built.failed.insert(pod.key.clone(), pod.uid.clone());
                    tell(&format!("pod {} cannot be built: {error}", pod.key));
                    self.store.write(|store| store.set_waiting(&pod.key, &pod.uid, &error.to_string()));
                }
            }
        }
        if self.cluster.spec().load_balancer.is_some() && vips != pods_built.vips {
            self.cluster.set_vips(vips.clone()).await?;
            pods_built.vips = vips;
        }
        self.feed.publish(&self.store).await
    }

    /// Builds pods together; after a failure one by one, so that one pod does not block the others.
    async fn build(&self, pods: &[&PodState]) -> Vec<Result<(), ClusterError>> {
        let specs: Vec<PodSpec> = pods.iter().map(|pod| pod.spec.clone()).collect();
        if specs.is_empty() {
            return Vec::new();
        }
        match self.cluster.add_pods(&specs).await {
            Ok(()) => specs.iter().map(|_| Ok(())).collect(),
            Err(error) if specs.len() == 1 => vec![Err(error)],
            Err(_) => {
                let mut built = Vec::new();
                for spec in &specs {
                    built.push(self.cluster.add_pods(std::slice::from_ref(spec)).await);
                }
                built
            }
        }
    }
}
