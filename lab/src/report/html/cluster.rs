//! The cluster as a drawing: clients and load balancer above the node network, nodes with their pods below.

use serde_json::Value;
use svclab_audit::page::Html;

use super::bars::svg;
use super::{list, text};

/// Size of things, in pixels.
const COLUMN: usize = 270;
const GAP: usize = 20;
const LINE: usize = 17;
const PAD: usize = 12;
/// Machines beside each other, pods of a node that are drawn, and letters of a name that have room.
const ABREAST: usize = 4;
const PODS: usize = 12;
const LETTERS: usize = 31;

/// The drawing.
pub(super) fn draw(html: &mut Html, cluster: &Value) {
    let balancer = Some(&cluster["loadBalancer"]).filter(|one| !one.is_null());
    let above: Vec<&Value> = list(cluster, "clients").iter().chain(balancer).collect();
    let below: Vec<&Value> = list(cluster, "nodes").iter().collect();
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
        let network: Vec<&str> = list(cluster, "network").iter().filter_map(Value::as_str).collect();
        words(html, "quiet", 1, wire - 6, &format!("node network {}", network.join(" ")));
        let y = wire.to_string();
        html.empty("line", &[("class", "wire"), ("x1", "0"), ("x2", &width), ("y1", &y), ("y2", &y)]);
        machines(html, &below, abreast, wire + GAP);
    });
}

/// Rows of machines from `top` on.
fn machines(html: &mut Html, all: &[&Value], abreast: usize, top: usize) {
    let mut y = top;
    for row in all.chunks(abreast) {
        let height = row.iter().map(|one| height(one)).max().unwrap_or_default();
        for (at, one) in row.iter().enumerate() {
            machine(html, one, (1 + at * (COLUMN + GAP), y), height);
        }
        y += height + GAP;
    }
}

fn machine(html: &mut Html, one: &Value, (x, top): (usize, usize), height: usize) {
    rect(html, "machine", (x, top), (COLUMN, height));
    let mut y = top + PAD + 8;
    let note = Some(text(one, "note")).filter(|note| !note.is_empty()).map(|note| format!(", {note}"));
    words(html, "name", x + PAD, y, &short(&format!("{}{}", text(one, "name"), note.unwrap_or_default())));
    for address in list(one, "addresses").iter().filter_map(Value::as_str) {
        y += LINE;
        words(html, "quiet", x + PAD, y, address);
    }
    y += PAD;
    let pods = list(one, "pods");
    for pod in pods.iter().take(PODS) {
        rect(html, "pod", (x + PAD, y), (COLUMN - 2 * PAD, pod_height(pod)));
        let name = text(pod, "name");
        let note = Some(text(pod, "note")).filter(|note| !note.is_empty());
        let first = note.map_or_else(|| name.to_owned(), |note| format!("{name}, {note}"));
        words(html, "", x + 2 * PAD, y + LINE, &short(&first));
        for (at, address) in list(pod, "addresses").iter().filter_map(Value::as_str).enumerate() {
            words(html, "quiet", x + 2 * PAD, y + LINE * (at + 2), address);
        }
        y += pod_height(pod) + 6;
    }
    if pods.len() > PODS {
        words(html, "quiet", x + PAD, y + LINE - 4, &format!("and {} more pods", pods.len() - PODS));
    }
}

fn height_of_all(all: &[&Value], abreast: usize) -> usize {
    all.chunks(abreast).map(|row| row.iter().map(|one| height(one)).max().unwrap_or_default() + GAP).sum()
}

fn height(one: &Value) -> usize {
    let pods = list(one, "pods");
    let drawn: usize = pods.iter().take(PODS).map(|pod| pod_height(pod) + 6).sum();
    let more = if pods.len() > PODS { LINE } else { 0 };
    PAD + 8 + LINE * list(one, "addresses").len() + PAD + drawn + more
}

fn pod_height(pod: &Value) -> usize {
    LINE * (1 + list(pod, "addresses").len()) + 8
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

/// What has room in a box.
fn short(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.to_owned();
    }
    name.chars().take(LETTERS - 1).chain(['…']).collect()
}
