//! Draws the cluster: clients and load balancer above the node network, nodes and their pods below.

use svclab_audit::page::Html;

use super::super::cluster::{ClusterLayout, ClusterMachine};
use super::bars::svg;

/// The width of a column in pixels.
const COLUMN: usize = 270;
const GAP: usize = 20;
const LINE: usize = 17;
const PAD: usize = 12;
/// The most machines in a row, drawn pods per node, and letters of a name that fit a box.
const ABREAST: usize = 4;
const PODS: usize = 12;
const LETTERS: usize = 31;

pub(super) fn draw(html: &mut Html, cluster: &ClusterLayout) {
    let above: Vec<&ClusterMachine> = cluster.clients.iter().chain(&cluster.load_balancer).collect();
    let below: Vec<&ClusterMachine> = cluster.nodes.iter().collect();
    let abreast = above.len().max(below.len()).clamp(1, ABREAST);
    let width = abreast * (COLUMN + GAP) - GAP + 2;
    let (above_height, below_height) = (height_of_all(&above, abreast), height_of_all(&below, abreast));
    let wire = above_height + LINE + 8;
    let height = wire + GAP + below_height + 2;
    let view = format!("0 0 {width} {height}");
    let (width, height) = (width.to_string(), height.to_string());
    let attributes = [
        ("class", "cluster"),
        ("viewBox", view.as_str()),
        ("width", width.as_str()),
        ("height", height.as_str()),
        ("role", "img"),
        ("aria-label", "the cluster's machines"),
    ];
    svg(html, &attributes, |html| {
        machines(html, &above, abreast, 1);
        words(html, "quiet", 1, wire - 6, &format!("node network {}", cluster.network.join(" ")));
        let y = wire.to_string();
        html.empty("line", &[("class", "wire"), ("x1", "0"), ("x2", &width), ("y1", &y), ("y2", &y)]);
        machines(html, &below, abreast, wire + GAP);
    });
}

fn machines(html: &mut Html, all: &[&ClusterMachine], abreast: usize, top: usize) {
    let mut y = top;
    for row in all.chunks(abreast) {
        let height = row.iter().map(|one| height(one)).max().unwrap_or_default();
        for (at, one) in row.iter().enumerate() {
            machine(html, one, (1 + at * (COLUMN + GAP), y), height);
        }
        y += height + GAP;
    }
}

fn machine(html: &mut Html, one: &ClusterMachine, (x, top): (usize, usize), height: usize) {
    rect(html, "machine", (x, top), (COLUMN, height));
    let mut y = top + PAD + 8;
    words(html, "name", x + PAD, y, &title(one));
    for address in &one.addresses {
        y += LINE;
        words(html, "quiet", x + PAD, y, &address.to_string());
    }
    y += PAD;
    let pods = &one.pods;
    for pod in pods.iter().take(PODS) {
        rect(html, "pod", (x + PAD, y), (COLUMN - 2 * PAD, pod_height(pod)));
        words(html, "", x + 2 * PAD, y + LINE, &title(pod));
        for (at, address) in pod.addresses.iter().enumerate() {
            words(html, "quiet", x + 2 * PAD, y + LINE * (at + 2), &address.to_string());
        }
        y += pod_height(pod) + 6;
    }
    if pods.len() > PODS {
        words(html, "quiet", x + PAD, y + LINE - 4, &format!("and {} more pods", pods.len() - PODS));
    }
}

fn height_of_all(all: &[&ClusterMachine], abreast: usize) -> usize {
    all.chunks(abreast).map(|row| row.iter().map(|one| height(one)).max().unwrap_or_default() + GAP).sum()
}

fn height(one: &ClusterMachine) -> usize {
    let drawn: usize = one.pods.iter().take(PODS).map(|pod| pod_height(pod) + 6).sum();
    let more = if one.pods.len() > PODS { LINE } else { 0 };
    PAD + 8 + LINE * one.addresses.len() + PAD + drawn + more
}

fn pod_height(pod: &ClusterMachine) -> usize {
    LINE * (1 + pod.addresses.len()) + 8
}

fn rect(html: &mut Html, class: &str, (x, y): (usize, usize), (width, height): (usize, usize)) {
    let [x, y, width, height] = [x, y, width, height].map(|number| number.to_string());
    let attributes = [("class", class), ("x", &x), ("y", &y), ("width", &width), ("height", &height), ("rx", "5")];
    html.empty("rect", &attributes);
}

fn words(html: &mut Html, class: &str, x: usize, y: usize, words: &str) {
    let (x, y) = (x.to_string(), y.to_string());
    html.element("text", &[("class", class), ("x", &x), ("y", &y)], |html| html.text(words));
}

fn title(one: &ClusterMachine) -> String {
    let title = if one.note.is_empty() { one.name.clone() } else { format!("{}, {}", one.name, one.note) };
    if title.chars().count() <= LETTERS {
        return title;
    }
    title.chars().take(LETTERS - 1).chain(['…']).collect()
}
