//! What stays of a Service that changes: proxies that keep the first value, or whatever they ever saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use crate::model::{Change, LABEL_HEADLESS, LABEL_PROXY_NAME, ObjectKey};
use crate::mutants::{Hook, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "node-port-stays",
        "keeps the node ports of a Service whose type becomes ClusterIP",
        "service-types",
        Hook::Change(|change| {
            static LAST: Services = Services::new();
            LAST.last(change, has_node_ports, |before, now| {
                let Some((before, now)) = before.spec.as_ref().zip(now.spec.as_mut()) else { return };
                if now.type_.as_deref() == Some("ClusterIP") && now.cluster_ip == before.cluster_ip {
                    now.type_ = Some("NodePort".to_owned());
                    keep_node_ports(before, now);
                }
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "node-port-never-changes",
        "keeps the first number of each node port",
        "service-types",
        Hook::Change(|change| {
            static FIRST: Services = Services::new();
            FIRST.first(change, has_node_ports, |before, now| {
                let Some((before, now)) = before.spec.as_ref().zip(now.spec.as_mut()) else { return };
                if matches!(now.type_.as_deref(), Some("NodePort" | "LoadBalancer")) {
                    keep_node_ports(before, now);
                }
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "load-balancer-address-stays",
        "keeps the load balancer's addresses of a Service that is no longer of type LoadBalancer",
        "service-types",
        Hook::Change(|change| {
            static LAST: Services = Services::new();
            let is_balanced = |service: &Service| ingress(service).is_some_and(|all| !all.is_empty());
            LAST.last(change, is_balanced, |before, now| {
                if ingress(now).is_none_or(Vec::is_empty) {
                    now.status.clone_from(&before.status);
                }
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "external-name-stays-served",
        "goes on to serve a Service that becomes an ExternalName",
        "service-types",
        Hook::Change(|change| {
            static LAST: Services = Services::new();
            LAST.last(
                change,
                |service| !is_external_name(service),
                |before, now| {
                    if is_external_name(now) {
                        now.spec.clone_from(&before.spec);
                    }
                },
            );
        }),
    )
    .remembering(),
    Mutant::new(
        "type-never-changes",
        "ignores a change of a Service's type",
        "service-types",
        Hook::Change(|change| {
            static FIRST: Services = Services::new();
            FIRST.first(
                change,
                |_| true,
                |before, now| {
                    if spec(before).and_then(|spec| spec.type_.as_ref())
                        != spec(now).and_then(|spec| spec.type_.as_ref())
                    {
                        now.spec.clone_from(&before.spec);
                    }
                },
            );
        }),
    )
    .remembering(),
    Mutant::new(
        "cluster-ip-never-changes",
        "keeps the first cluster IP of a Service",
        "service-types",
        Hook::Change(|change| {
            static FIRST: Services = Services::new();
            let has_one = |service: &Service| spec(service).is_some_and(|spec| spec.cluster_ip.is_some());
            FIRST.first(change, has_one, |before, now| {
                let Some((before, now)) = before.spec.as_ref().zip(now.spec.as_mut()) else { return };
                if now.cluster_ip.is_some() {
                    (now.cluster_ip, now.cluster_ips) = (before.cluster_ip.clone(), before.cluster_ips.clone());
                }
            });
        }),
    )
    .remembering(),
    Mutant::new(
        "removed-ports-stay",
        "leaves the rules of a port that is removed from a Service, until the next full sync",
        "changed-ports",
        Hook::Pending(|state, names| names.retain(|name| state.service_port(name).is_some())),
    ),
    Mutant::new(
        "added-ports-ignored",
        "does not serve a port that is added to a Service",
        "changed-ports",
        Hook::Change(|change| {
            static FIRST: Services = Services::new();
            FIRST.first(
                change,
                |_| true,
                |before, now| {
                    let Some((before, now)) = before.spec.as_ref().zip(now.spec.as_mut()) else { return };
                    let known = |name: &Option<String>| before.ports.iter().flatten().any(|port| port.name == *name);
                    now.ports.get_or_insert_default().retain(|port| known(&port.name));
                },
            );
        }),
    )
    .remembering(),
    Mutant::new(
        "headless-label-ignored",
        "uses EndpointSlices with the label service.kubernetes.io/headless",
        "service-proxy-name",
        Hook::IgnoredLabel(LABEL_HEADLESS),
    ),
    Mutant::new(
        "proxy-name-label-ignored",
        "serves the Services of other proxies",
        "service-proxy-name",
        Hook::IgnoredLabel(LABEL_PROXY_NAME),
    ),
];

/// Services as they were.
struct Services(Mutex<BTreeMap<ObjectKey, Service>>);

impl Services {
    const fn new() -> Services {
        Services(Mutex::new(BTreeMap::new()))
    }

    /// Alters a Service by its first version of which `is_kept` is true.
    fn first(&self, change: &mut Change, is_kept: impl Fn(&Service) -> bool, alter: impl Fn(&Service, &mut Service)) {
        self.alter(
            change,
            |kept, now| {
                if kept.is_none() && is_kept(now) {
                    *kept = Some(now.clone());
                }
            },
            alter,
        );
    }

    /// Alters a Service by its newest version of which `is_kept` is true, as it was altered.
    fn last(&self, change: &mut Change, is_kept: impl Fn(&Service) -> bool, alter: impl Fn(&Service, &mut Service)) {
        let keep = |_: &mut Option<Service>, _: &Service| {};
        self.alter(change, keep, alter);
        let Change::Service(key, Some(service)) = change else { return };
        if is_kept(service) {
            self.lock().insert(key.clone(), Service::clone(service));
        }
    }

    fn alter(
        &self,
        change: &mut Change,
        keep: impl Fn(&mut Option<Service>, &Service),
        alter: impl Fn(&Service, &mut Service),
    ) {
        let Change::Service(key, service) = change else { return };
        let mut kept = self.lock().remove(key);
        let Some(service) = service else { return };
        keep(&mut kept, service);
        if let Some(kept) = kept {
            alter(&kept, Arc::make_mut(service));
            self.lock().insert(key.clone(), kept);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ObjectKey, Service>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spec(service: &Service) -> Option<&ServiceSpec> {
    service.spec.as_ref()
}

fn is_external_name(service: &Service) -> bool {
    spec(service).and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
}

fn has_node_ports(service: &Service) -> bool {
    spec(service).is_some_and(|spec| spec.ports.iter().flatten().any(|port| port.node_port.is_some()))
}

fn ingress(service: &Service) -> Option<&Vec<k8s_openapi::api::core::v1::LoadBalancerIngress>> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()
}

fn keep_node_ports(before: &ServiceSpec, now: &mut ServiceSpec) {
    for port in now.ports.iter_mut().flatten() {
        let known = before.ports.iter().flatten().find(|other| other.name == port.name);
        port.node_port = known.and_then(|known| known.node_port).or(port.node_port);
    }
}
