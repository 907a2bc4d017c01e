use std::collections::BTreeSet;

use crate::events::Event;
use crate::results::Point;
use crate::subject::{BenchWriter, WITH_OPTIONS, WRITERS};
use crate::{client_view, packets};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub group: String,
    pub about: String,
}

pub fn all(points: &[Point]) -> Vec<Section> {
    let there: BTreeSet<&str> = points.iter().map(|point| point.id.group.as_str()).collect();
    let known: Vec<Section> = known().into_iter().filter(|section| there.contains(section.group.as_str())).collect();
    let unknown = there.iter().filter(|group| known.iter().all(|section| section.group != **group));
    let unknown = unknown.map(|group| Section { group: (*group).to_owned(), about: String::new() });
    known.iter().cloned().chain(unknown.collect::<Vec<_>>()).collect()
}

fn known() -> Vec<Section> {
    let section = |group: &str, about: &str| Section { group: group.to_owned(), about: about.to_owned() };
    let events = Event::ALL.into_iter().map(|event| section(event.name(), event.about()));
    let others = packets::GROUPS.into_iter().chain(client_view::GROUPS);
    events.chain(others.map(|(group, about)| section(group, about))).collect()
}

/// Returns the order of the tables' rows.
pub fn order() -> Vec<String> {
    let of = |writer: &BenchWriter| {
        let places = ["first", "middle", "last"].map(|place| format!("{}-{place}", writer.name));
        [writer.name.to_owned(), floor_name(writer.name)].into_iter().chain(places)
    };
    std::iter::once("without-proxy".to_owned()).chain(WRITERS.iter().chain(&WITH_OPTIONS).flat_map(of)).collect()
}

pub fn floor_name(series: &str) -> String {
    format!("{series}-floor")
}
