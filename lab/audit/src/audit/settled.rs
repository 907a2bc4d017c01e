use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use svclab_snapshot::Objects;

const CHANGED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Returns the services that, or whose slices, changed less than `seconds` before the snapshot.
pub(super) fn unsettled(objects: &Objects, taken: &str, seconds: i64) -> BTreeSet<(String, String)> {
    let Ok(taken) = taken.parse::<Timestamp>() else { return BTreeSet::new() };
    let late = |time: Timestamp| taken.as_second() - time.as_second() < seconds;
    let created = |metadata: &ObjectMeta| {
        let times = [&metadata.creation_timestamp, &metadata.deletion_timestamp];
        times.into_iter().flatten().any(|Time(time)| late(*time))
    };
    let changed = |metadata: &ObjectMeta| {
        let text = metadata.annotations.as_ref().and_then(|annotations| annotations.get(CHANGED));
        text.and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(late)
    };
    let name = |text: &Option<String>| text.clone().unwrap_or_default();
    let services = objects.services.iter().filter(|service| created(&service.metadata));
    let services = services.map(|service| (name(&service.metadata.namespace), name(&service.metadata.name)));
    let slices = objects.slices.iter().filter(|slice| created(&slice.metadata) || changed(&slice.metadata));
    let slices = slices.filter_map(|slice| {
        let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
        Some((name(&slice.metadata.namespace), service.clone()))
    });
    services.chain(slices).collect()
}
