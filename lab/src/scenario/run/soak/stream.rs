//! A soak's changes, a function of the seed. The number of objects varies around a stable mean, so growing memory is a
//! leak.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use svclab_apiserver::objects::{Object, ObjectError, ObjectKey, ObjectKind, Store, mix};

const NAMESPACE: &str = "soak";
const SERVICES: u64 = 30;
const PODS: u64 = 8;

/// Pods by number; `true`: the pod is terminating.
type Pods = BTreeMap<u64, bool>;

pub(super) struct Stream {
    seed: u64,
    drawn: u64,
    services: BTreeMap<u64, Pods>,
}

impl Stream {
    pub(super) fn new(seed: u64) -> Self {
        Stream { seed, drawn: 0, services: BTreeMap::new() }
    }

    pub(super) fn change(&mut self, store: &mut Store) -> Result<(), ObjectError> {
        let (service, choice, nth) = (self.draw(SERVICES), self.draw(100), self.draw(PODS));
        let Some(pods) = self.services.get(&service) else {
            self.services.insert(service, Pods::new());
            let value = self.service(service);
            return apply(store, ObjectKind::Service, &value);
        };
        let terminating = pods.iter().find(|(_, terminates)| **terminates).map(|(pod, _)| *pod);
        let chosen = pods.keys().nth(nth as usize % pods.len().max(1)).copied();
        let free = (0..PODS).find(|pod| !pods.contains_key(pod));
        match (choice, chosen) {
            (0..4, _) => self.delete_service(store, service),
            (4..20, _) => {
                let value = self.service(service);
                apply(store, ObjectKind::Service, &value)
            }
            (20..50, Some(pod)) => {
                let ready = self.draw(3) > 0;
                store.set_ready(&pod_key(service, pod), ready)
            }
            (50..60, Some(pod)) => {
                self.services.entry(service).or_default().insert(pod, true);
                store.set_terminating(&pod_key(service, pod))
            }
            (60..75, Some(pod)) => self.delete_pod(store, service, terminating.unwrap_or(pod)),
            // Pods are added as often as they are deleted.
            _ => match free {
                Some(pod) => {
                    self.services.entry(service).or_default().insert(pod, false);
                    apply(store, ObjectKind::Pod, &pod_value(service, pod))
                }
                None => self.delete_pod(store, service, terminating.or(chosen).unwrap_or(0)),
            },
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.drawn += 1;
        (mix(self.seed, &self.drawn.to_string()) >> 16) % below
    }

    fn delete_pod(&mut self, store: &mut Store, service: u64, pod: u64) -> Result<(), ObjectError> {
        self.services.entry(service).or_default().remove(&pod);
        store.delete("pod", &pod_key(service, pod))
    }

    fn delete_service(&mut self, store: &mut Store, service: u64) -> Result<(), ObjectError> {
        for (pod, _) in self.services.remove(&service).unwrap_or_default() {
            store.delete("pod", &pod_key(service, pod))?;
        }
        store.delete("service", &ObjectKey::new(Some(NAMESPACE), &service_name(service)))
    }

    /// Returns a Service with randomly drawn type, policies and ports.
    fn service(&mut self, service: u64) -> Value {
        let kind = ["ClusterIP", "ClusterIP", "NodePort", "LoadBalancer"][self.draw(4) as usize];
        let families = ["SingleStack", "PreferDualStack", "PreferDualStack"][self.draw(3) as usize];
        let policy = |drawn: u64| if drawn == 0 { "Local" } else { "Cluster" };
        let mut spec = json!({
            "type": kind,
            "selector": { "app": service_name(service) },
            "internalTrafficPolicy": policy(self.draw(5)),
            "ipFamilyPolicy": families,
            "sessionAffinity": if self.draw(5) == 0 { "ClientIP" } else { "None" },
            "publishNotReadyAddresses": self.draw(8) == 0,
            "ports": self.ports(),
        });
        if kind != "ClusterIP" {
            spec["externalTrafficPolicy"] = policy(self.draw(3)).into();
        }
        if kind == "LoadBalancer" && self.draw(3) == 0 {
            spec["loadBalancerSourceRanges"] = json!([format!("172.18.{}.0/24", self.draw(4)), "fd00:172:18::/64"]);
        }
        if kind == "ClusterIP" && self.draw(4) == 0 {
            spec["externalIPs"] = json!([format!("198.51.100.{}", 1 + service)]);
        }
        if self.draw(6) == 0 {
            spec["trafficDistribution"] = "PreferClose".into();
        }
        json!({ "metadata": { "name": service_name(service), "namespace": NAMESPACE }, "spec": spec })
    }

    fn ports(&mut self) -> Value {
        let count = 1 + self.draw(3);
        let ports = (0..count).map(|number| {
            let protocol = if self.draw(3) == 0 { "UDP" } else { "TCP" };
            let target = if self.draw(2) == 0 { json!(8080) } else { json!(format!("{}-1", protocol.to_lowercase())) };
            json!({ "name": format!("p{number}"), "port": 80 + number, "protocol": protocol, "targetPort": target })
        });
        ports.collect()
    }
}

fn service_name(service: u64) -> String {
    format!("churn-{service}")
}

fn pod_key(service: u64, pod: u64) -> ObjectKey {
    ObjectKey::new(Some(NAMESPACE), &format!("churn-{service}-{pod}"))
}

fn pod_value(service: u64, pod: u64) -> Value {
    let ports = json!([
        { "name": "tcp-1", "containerPort": 8080 },
        { "name": "udp-1", "containerPort": 8081, "protocol": "UDP" },
    ]);
    json!({
        "metadata": {
            "name": pod_key(service, pod).name, "namespace": NAMESPACE, "labels": { "app": service_name(service) },
        },
        "spec": { "containers": [{ "name": "web", "ports": ports }] },
    })
}

fn apply(store: &mut Store, kind: ObjectKind, value: &Value) -> Result<(), ObjectError> {
    let object = Object::from_value(kind, value);
    let (object, unknown) = object.map_err(|wrong| ObjectError::field("soak", wrong.field, wrong.expected))?;
    debug_assert!(unknown.is_empty(), "{unknown:?}: a field that Kubernetes does not know");
    store.apply(object).map(|_| ())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::scenario::run::soak::scenario;

    fn after(seed: u64, changes: usize) -> Store {
        let mut store = scenario(seed).unwrap().initial_objects().unwrap();
        let mut stream = Stream::new(seed);
        for _ in 0..changes {
            stream.change(&mut store).unwrap();
        }
        store
    }

    #[test]
    fn the_same_seed_gives_the_same_objects() {
        assert_eq!(after(1, 800).list(), after(1, 800).list());
        assert_ne!(after(1, 800).list(), after(2, 800).list());
    }

    #[test]
    fn the_number_of_objects_stays_near_its_mean() {
        let (mut store, mut stream) = (scenario(3).unwrap().initial_objects().unwrap(), Stream::new(3));
        let mut counts = Vec::new();
        let mut kinds = std::collections::BTreeSet::new();
        for change in 0..6000 {
            stream.change(&mut store).unwrap();
            if change >= 1000 {
                counts.push(store.records(ObjectKind::Pod).count());
            }
            kinds.extend(store.services().filter_map(|(_, service)| service.spec.as_ref()?.type_.clone()));
        }
        let middle = |part: &[usize]| part.iter().sum::<usize>() / part.len();
        let (early, late) = (middle(&counts[..2500]), middle(&counts[2500..]));
        assert!(early > 60 && early.abs_diff(late) * 5 < early, "{early} {late}");
        assert_eq!(kinds.len(), 3, "{kinds:?}");
    }

    #[test]
    fn the_steady_service_never_changes() {
        let key = ObjectKey::new(None, "steady");
        assert_eq!(after(5, 0).service(&key).unwrap(), after(5, 500).service(&key).unwrap());
    }
}
