//! Histories: a cluster, and what happens to its services and endpoints, change by change.

use proptest::collection::vec;
use proptest::prelude::*;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::recipe::{Condition, EndpointRecipe, Recipe, ServiceRecipe};
use super::strategy::{condition, endpoint, recipes, service};
use crate::cluster::ClusterModel;
use crate::world::Objects;

/// What happens. Numbers are modulo what there is; what does not apply changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A service comes, with its slices.
    Add(Box<ServiceRecipe>),
    /// A service goes, with its slices.
    Delete(u8),
    /// A service becomes another under the same name: type, ports, policies, addresses, endpoints.
    Replace(u8, Box<ServiceRecipe>),
    /// An endpoint's conditions change.
    Condition(u8, u8, Condition),
    /// An endpoint comes.
    Join(u8, EndpointRecipe),
    /// An endpoint goes.
    Leave(u8, u8),
    /// An endpoint moves to another slice.
    Move(u8, u8),
}

/// One write to the API.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "made for a moment, one at a time")]
pub enum Write {
    /// Creates or replaces a service.
    Service(Service),
    /// Deletes this service.
    NoService(ObjectName),
    /// Creates or replaces a slice.
    Slice(EndpointSlice),
    /// Deletes this slice.
    NoSlice(ObjectName),
}

/// Which service or slice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    /// The name in an object's metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> ObjectName {
        ObjectName {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// A beginning, and what happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The beginning.
    pub start: Recipe,
    /// What happens, in order.
    pub changes: Vec<Change>,
}

/// Histories of at most `most` changes.
pub fn histories(most: usize) -> impl Strategy<Value = History> {
    (recipes(), vec(change(), 1..=most.max(1))).prop_map(|(start, changes)| History { start, changes })
}

fn change() -> impl Strategy<Value = Change> {
    let boxed = || service().prop_map(Box::new);
    prop_oneof![
        6 => (any::<u8>(), any::<u8>(), condition()).prop_map(|(at, which, condition)| Change::Condition(at, which, condition)),
        3 => (any::<u8>(), endpoint()).prop_map(|(at, endpoint)| Change::Join(at, endpoint)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(at, which)| Change::Leave(at, which)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, which)| Change::Move(at, which)),
        2 => (any::<u8>(), boxed()).prop_map(|(at, service)| Change::Replace(at, service)),
        2 => boxed().prop_map(Change::Add),
        2 => any::<u8>().prop_map(Change::Delete),
    ]
}

impl History {
    /// The cluster at the beginning and after each change.
    #[must_use]
    pub fn states(&self) -> Vec<ClusterModel> {
        let mut now = Timeline::new(self.start.clone());
        let mut states = vec![now.build()];
        for change in &self.changes {
            now.apply(change);
            states.push(now.build());
        }
        states
    }
}

/// A service's number is its name and its addresses, so those of others stay when one goes.
struct Timeline {
    recipe: Recipe,
    gone: Vec<bool>,
}

impl Timeline {
    fn new(recipe: Recipe) -> Timeline {
        let gone = vec![false; recipe.services.len()];
        Timeline { recipe, gone }
    }

    fn build(&self) -> ClusterModel {
        let mut cluster = self.recipe.build();
        let gone: Vec<ObjectName> = self
            .gone
            .iter()
            .enumerate()
            .filter(|(_, gone)| **gone)
            .map(|(index, _)| super::services::name(index))
            .collect();
        cluster.objects.services.retain(|service| !gone.contains(&ObjectName::of(&service.metadata)));
        cluster.objects.slices.retain(|slice| {
            let labels = slice.metadata.labels.as_ref();
            let service = labels.and_then(|labels| labels.get(crate::endpoints::SERVICE_LABEL)).cloned();
            let namespace = slice.metadata.namespace.clone().unwrap_or_default();
            !gone.contains(&ObjectName { namespace, name: service.unwrap_or_default() })
        });
        cluster
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Add(service) => {
                // Numbers are addresses, of which a plan has so many.
                match self.gone.iter().position(|gone| *gone) {
                    Some(free) => {
                        self.gone[free] = false;
                        self.recipe.services[free] = (**service).clone();
                    }
                    None if self.recipe.services.len() < 50 => {
                        self.recipe.services.push((**service).clone());
                        self.gone.push(false);
                    }
                    None => {}
                }
            }
            Change::Delete(at) => {
                if let Some(index) = self.standing(*at) {
                    self.gone[index] = true;
                }
            }
            Change::Replace(at, service) => self.change(*at, |old| *old = (**service).clone()),
            Change::Condition(at, which, condition) => {
                self.endpoint(*at, *which, |endpoint| endpoint.condition = *condition);
            }
            Change::Move(at, which) => {
                self.endpoint(*at, *which, |endpoint| endpoint.slice = endpoint.slice.wrapping_add(1))
            }
            Change::Join(at, endpoint) => self.change(*at, |service| service.endpoints.push(*endpoint)),
            Change::Leave(at, which) => self.change(*at, |service| {
                if let Some(index) = usize::from(*which).checked_rem(service.endpoints.len()) {
                    service.endpoints.remove(index);
                }
            }),
        }
    }

    /// A service that is there.
    fn standing(&self, at: u8) -> Option<usize> {
        let standing: Vec<usize> = (0..self.gone.len()).filter(|index| !self.gone[*index]).collect();
        usize::from(at).checked_rem(standing.len()).map(|index| standing[index])
    }

    fn change(&mut self, at: u8, how: impl FnOnce(&mut ServiceRecipe)) {
        if let Some(index) = self.standing(at) {
            how(&mut self.recipe.services[index]);
        }
    }

    fn endpoint(&mut self, at: u8, which: u8, how: impl FnOnce(&mut EndpointRecipe)) {
        self.change(at, |service| {
            if let Some(index) = usize::from(which).checked_rem(service.endpoints.len()) {
                how(&mut service.endpoints[index]);
            }
        });
    }
}

/// What is written to the API to come from one state to the next: what is new or changed, then what is gone.
#[must_use]
pub fn writes(before: &Objects, after: &Objects) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    let fresh = after.services.iter().filter(|service| !before.services.contains(service));
    writes.extend(fresh.cloned().map(Write::Service));
    let fresh = after.slices.iter().filter(|slice| !before.slices.contains(slice));
    writes.extend(fresh.cloned().map(Write::Slice));
    let slices = |objects: &Objects| objects.slices.iter().map(|slice| ObjectName::of(&slice.metadata)).collect();
    writes.extend(gone(slices(before), slices(after)).map(Write::NoSlice));
    let services =
        |objects: &Objects| objects.services.iter().map(|service| ObjectName::of(&service.metadata)).collect();
    writes.extend(gone(services(before), services(after)).map(Write::NoService));
    writes
}

fn gone(before: Vec<ObjectName>, after: Vec<ObjectName>) -> impl Iterator<Item = ObjectName> {
    before.into_iter().filter(move |name| !after.contains(name))
}
