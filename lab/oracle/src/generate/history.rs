//! A cluster and a sequence of changes.

use proptest::collection::vec;
use proptest::prelude::*;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::recipe::{EndpointCondition, EndpointRecipe, Recipe, ServiceRecipe};
use super::strategy::{condition, endpoint, recipes, service};
use crate::cluster::ClusterModel;
use crate::world::Objects;

/// Numbers select a service, then an endpoint, modulo their count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryChange {
    Add(Box<ServiceRecipe>),
    Delete(u8),
    /// Replaces everything of a service but its name.
    Replace(u8, Box<ServiceRecipe>),
    SetCondition(u8, u8, EndpointCondition),
    AddEndpoint(u8, EndpointRecipe),
    RemoveEndpoint(u8, u8),
    /// Moves an endpoint to the next slice.
    MoveEndpoint(u8, u8),
}

#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "made for a moment, one at a time")]
pub enum ApiWrite {
    Service(Service),
    DeleteService(ObjectName),
    Slice(EndpointSlice),
    DeleteSlice(ObjectName),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

impl ObjectName {
    pub fn of(metadata: &ObjectMeta) -> ObjectName {
        ObjectName {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    pub start: Recipe,
    pub changes: Vec<HistoryChange>,
}

pub fn histories(most: usize) -> impl Strategy<Value = History> {
    (recipes(), vec(change(), 1..=most.max(1))).prop_map(|(start, changes)| History { start, changes })
}

fn change() -> impl Strategy<Value = HistoryChange> {
    let boxed = || service().prop_map(Box::new);
    prop_oneof![
        6 => (any::<u8>(), any::<u8>(), condition()).prop_map(|(at, which, condition)| HistoryChange::SetCondition(at, which, condition)),
        3 => (any::<u8>(), endpoint()).prop_map(|(at, endpoint)| HistoryChange::AddEndpoint(at, endpoint)),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(at, which)| HistoryChange::RemoveEndpoint(at, which)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, which)| HistoryChange::MoveEndpoint(at, which)),
        2 => (any::<u8>(), boxed()).prop_map(|(at, service)| HistoryChange::Replace(at, service)),
        2 => boxed().prop_map(HistoryChange::Add),
        2 => any::<u8>().prop_map(HistoryChange::Delete),
    ]
}

impl History {
    /// Returns the cluster at the start and after each change.
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

/// The index of a service decides its name and addresses, so a deletion keeps the others' index.
struct Timeline {
    recipe: Recipe,
    deleted: Vec<bool>,
}

impl Timeline {
    fn new(recipe: Recipe) -> Timeline {
        let deleted = vec![false; recipe.services.len()];
        Timeline { recipe, deleted }
    }

    fn build(&self) -> ClusterModel {
        let mut cluster = self.recipe.build();
        let gone: Vec<ObjectName> = self
            .deleted
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

    fn apply(&mut self, change: &HistoryChange) {
        match change {
            HistoryChange::Add(service) => {
                // The address plan has room for 50 services.
                match self.deleted.iter().position(|gone| *gone) {
                    Some(free) => {
                        self.deleted[free] = false;
                        self.recipe.services[free] = (**service).clone();
                    }
                    None if self.recipe.services.len() < 50 => {
                        self.recipe.services.push((**service).clone());
                        self.deleted.push(false);
                    }
                    None => {}
                }
            }
            HistoryChange::Delete(at) => {
                if let Some(index) = self.existing(*at) {
                    self.deleted[index] = true;
                }
            }
            HistoryChange::Replace(at, service) => self.change(*at, |old| *old = (**service).clone()),
            HistoryChange::SetCondition(at, which, condition) => {
                self.endpoint(*at, *which, |endpoint| endpoint.condition = *condition);
            }
            HistoryChange::MoveEndpoint(at, which) => {
                self.endpoint(*at, *which, |endpoint| endpoint.slice = endpoint.slice.wrapping_add(1))
            }
            HistoryChange::AddEndpoint(at, endpoint) => self.change(*at, |service| service.endpoints.push(*endpoint)),
            HistoryChange::RemoveEndpoint(at, which) => self.change(*at, |service| {
                if let Some(index) = usize::from(*which).checked_rem(service.endpoints.len()) {
                    service.endpoints.remove(index);
                }
            }),
        }
    }

    fn existing(&self, at: u8) -> Option<usize> {
        let existing: Vec<usize> = (0..self.deleted.len()).filter(|index| !self.deleted[*index]).collect();
        usize::from(at).checked_rem(existing.len()).map(|index| existing[index])
    }

    fn change(&mut self, at: u8, how: impl FnOnce(&mut ServiceRecipe)) {
        if let Some(index) = self.existing(at) {
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

/// Returns creations and replacements, then deletions.
pub fn writes(before: &Objects, after: &Objects) -> Vec<ApiWrite> {
    let mut writes: Vec<ApiWrite> = Vec::new();
    let fresh = after.services.iter().filter(|service| !before.services.contains(service));
    writes.extend(fresh.cloned().map(ApiWrite::Service));
    let fresh = after.slices.iter().filter(|slice| !before.slices.contains(slice));
    writes.extend(fresh.cloned().map(ApiWrite::Slice));
    let slices = |objects: &Objects| objects.slices.iter().map(|slice| ObjectName::of(&slice.metadata)).collect();
    writes.extend(gone(slices(before), slices(after)).map(ApiWrite::DeleteSlice));
    let services =
        |objects: &Objects| objects.services.iter().map(|service| ObjectName::of(&service.metadata)).collect();
    writes.extend(gone(services(before), services(after)).map(ApiWrite::DeleteService));
    writes
}

fn gone(before: Vec<ObjectName>, after: Vec<ObjectName>) -> impl Iterator<Item = ObjectName> {
    before.into_iter().filter(move |name| !after.contains(name))
}
