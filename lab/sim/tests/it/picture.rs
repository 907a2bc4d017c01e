use std::fmt::Write as _;

use crate::support::{Plan, tcp};
use roxmltree::{Document, Node};
use svclab_sim::network::Network;
use svclab_sim::picture::draw_outcomes;

fn draw(network: &Network, from: &str, to: &str) -> String {
    draw_outcomes(&network.outcomes(&tcp(network, from, to)).unwrap(), false)
}

fn golden(drawing: &str) -> String {
    let (head, rest) = drawing.split_once("<style>").unwrap();
    let (_, tail) = rest.split_once("</style>").unwrap();
    format!("{head}<style/>{tail}")
}

/// A service whose endpoints do not listen.
fn service(endpoints: u32, comment: &str) -> Network {
    let mut rules = String::from("*nat\n:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]\n");
    let remark = format!("-m comment --comment \"{comment}\"");
    let service =
        format!("-A PREROUTING -d 10.96.0.10/32 -p tcp {remark} -m tcp --dport 80 -j KUBE-SVC-TCOU7JCQXEZGVUNU\n");
    let mut own = String::new();
    for at in 0..endpoints {
        let share = 1.0 / f64::from(endpoints - at);
        let chance = format!("-m statistic --mode random --probability {share:.11} ");
        let chance = if at + 1 == endpoints { "" } else { &chance };
        let _ = writeln!(rules, ":KUBE-SEP-{at} - [0:0]");
        let _ = writeln!(own, "-A KUBE-SVC-TCOU7JCQXEZGVUNU {remark} {chance}-j KUBE-SEP-{at}");
        let pod = ["10.244.0.2", "10.244.0.3", "10.244.1.2"][at as usize % 3];
        let _ = writeln!(own, "-A KUBE-SEP-{at} -p tcp {remark} -j DNAT --to-destination {pod}:{}", 9000 + at / 3);
    }
    Plan::new(&format!("{rules}{service}{own}-A POSTROUTING -s 172.18.0.100/32 -j MASQUERADE\nCOMMIT\n")).build()
}

#[test]
fn three_endpoints_are_one_kind_of_path() {
    let drawing = draw(&Plan::web().build(), "client", "10.96.0.10:80");
    insta::assert_snapshot!(golden(&drawing));
    // Client, node and pod, both directions.
    assert_eq!(drawing.matches("marker-end").count(), 4);
}

#[test]
fn without_endpoints_the_rejection_returns() {
    insta::assert_snapshot!(golden(&draw(&Plan::web().build(), "client", "10.96.0.66:80")));
}

#[test]
fn a_hairpin_differs_from_other_backends() {
    let drawing = draw(&Plan::web().build(), "pod-a", "10.96.0.10:80");
    insta::assert_snapshot!(golden(&drawing));
    assert_eq!(drawing.matches("class=\"verdict good\"").count(), 2);
}

#[test]
fn a_partial_drop_names_its_rule() {
    let drop = "-A FORWARD -d 10.244.1.2/32 -m comment --comment \"nobody may talk to build machines\" -j DROP\n";
    let mut plan = Plan::web();
    plan.rules = plan.rules.replacen("-A FORWARD", &format!("{drop}-A FORWARD"), 1);
    let drawing = draw(&plan.build(), "client", "10.96.0.10:80");
    assert!(drawing.contains("sent by client: about 2/3 answered, about 1/3 lost"));
    assert!(drawing.contains("Lost on node-a: dropped by rule 1 of FORWARD in filter"));
    let lines: String = texts(&drawing).join(" ");
    assert!(lines.contains(drop.trim_end()), "{lines}");
    assert_eq!(["verdict good", "verdict bad"].map(|class| drawing.matches(class).count()), [1, 1]);
}

#[test]
fn kinds_beyond_the_limit_are_counted() {
    let mut plan = Plan::new("");
    let mut rules = String::from("*filter\n:FORWARD ACCEPT [0:0]\n");
    for _ in 0..9 {
        rules.push_str("-A FORWARD -m statistic --mode random --probability 0.10000000009 -j DROP\n");
    }
    plan.rules = format!("{rules}COMMIT\n");
    let drawing = draw(&plan.build(), "client", "10.244.0.2:8080");
    assert_eq!(drawing.matches("class=\"verdict").count(), 5);
    assert!(drawing.contains("more that differ, together"));
    check(&drawing, "ten ways");
}

#[test]
fn all_paths_can_be_drawn() {
    let network = Plan::web().build();
    let drawing = draw_outcomes(&network.outcomes(&tcp(&network, "pod-a", "10.96.0.10:80")).unwrap(), true);
    assert_eq!(drawing.matches("class=\"verdict good\"").count(), 3);
    // Two hops per direction for local pods, three for the remote one.
    assert_eq!(drawing.matches("marker-end").count(), 4 + 4 + 6);
}

#[test]
fn the_size_does_not_depend_on_endpoints() {
    let height = |endpoints| {
        let drawing = draw(&service(endpoints, "web"), "client", "10.96.0.10:80");
        number(Document::parse(&drawing).unwrap().root_element(), "height")
    };
    let (ten, hundred) = (height(10), height(100));
    assert!(ten <= 1000.0 && hundred <= ten, "{ten} {hundred}");
}

#[test]
fn comments_are_escaped() {
    let comment = "</text><script>alert(1)</script> ]]> --> &amp; 'x' \u{202e}gnp.";
    let drawing = draw(&service(3, comment), "client", "10.96.0.10:80");
    let document = Document::parse(&drawing).unwrap();
    let known = ["svg", "title", "style", "defs", "marker", "path", "rect", "text", "tspan"];
    for element in document.descendants().filter(Node::is_element) {
        assert!(known.contains(&element.tag_name().name()), "{element:?}");
        assert!(element.attributes().all(|own| !own.name().starts_with("on") && own.name() != "href"), "{element:?}");
    }
    assert!(
        document.descendants().any(|node| node.text().is_some_and(|text| text.contains("</text><script>alert(1)")))
    );
    assert!(!drawing.contains('\u{202e}'));
}

#[test]
fn shapes_do_not_overlap() {
    let long = "a comment that is much longer than any column is wide, and goes on and on, WWWWWWWWWWWWWWWWW mmmmmmmmmmmmmmmmmmm";
    let wide = "日本語の長い注釈、列の幅よりもずっと長い、日本語の長い注釈、列の幅よりもずっと長い、日本語の長い注釈";
    let networks = [
        Plan::web().build(),
        Plan { point_to_point: true, ..Plan::web() }.build(),
        Plan { nft: include_str!("../data/nft.txt").to_owned(), ..Plan::new("") }.build(),
        service(1, long),
        service(4, wide),
        service(100, long),
    ];
    for network in &networks {
        for from in ["pod-a", "pod-c", "client", "node-a"] {
            for to in
                ["10.96.0.10:80", "10.96.0.66:80", "172.18.0.2:30080", "172.18.0.2:22", "10.244.1.2:9", "10.9.9.9:1"]
            {
                // Skips destinations to which the caller has no route.
                let Ok(outcomes) = network.outcomes(&tcp(network, from, to)) else { continue };
                for all in [false, true] {
                    if !all || outcomes.ways.len() < 10 {
                        let drawing = draw_outcomes(&outcomes, all);
                        assert_eq!(drawing, draw_outcomes(&outcomes, all));
                        check(&drawing, &format!("{from} to {to}"));
                    }
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    fn holds(&self, other: &Area) -> bool {
        self.x <= other.x
            && other.x + other.width <= self.x + self.width
            && self.y <= other.y
            && other.y + other.height <= self.y + self.height
    }

    fn meets(&self, other: &Area) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    let number = node.attribute(name).unwrap_or_else(|| panic!("{node:?} has no {name}"));
    number.parse().unwrap_or_else(|_| panic!("{name} of {node:?}"))
}

fn texts(drawing: &str) -> Vec<String> {
    let document = Document::parse(drawing).unwrap();
    let lines = document.descendants().filter(|node| node.has_tag_name("text"));
    let spans = |line: Node<'_, '_>| {
        let spans = line.children().filter(|node| node.has_tag_name("tspan"));
        spans.filter_map(|span| span.text().map(str::to_owned)).collect::<Vec<_>>().join(" ")
    };
    lines.map(spans).collect()
}

/// Returns a text's area by widths of DejaVu fonts.
fn area(text: Node<'_, '_>) -> Area {
    let size = number(text, "font-size");
    let spans = text.children().filter(|node| node.has_tag_name("tspan"));
    let width: f64 = spans
        .map(|span| {
            let mono = !["word", "soft", "strong"].contains(&span.attribute("class").unwrap());
            let narrow = if mono { 0.602 } else { 0.56 };
            let each = span.text().unwrap_or_default().chars().map(|char| if char.is_ascii() { narrow } else { 1.0 });
            each.sum::<f64>() * size + span.attribute("dx").map_or(0.0, |space| space.parse().unwrap())
        })
        .sum();
    Area { x: number(text, "x"), y: number(text, "y") - 0.75 * size, width, height: 0.95 * size }
}

fn check(drawing: &str, what: &str) {
    let document = Document::parse(drawing).unwrap();
    let root = document.root_element();
    let page = Area { x: 0.0, y: 0.0, width: number(root, "width"), height: number(root, "height") };
    let rects = document.descendants().filter(|node| node.has_tag_name("rect") && node.attribute("x").is_some());
    let rects: Vec<(&str, Area)> = rects
        .map(|rect| {
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(rect, name));
            (rect.attribute("class").unwrap(), Area { x, y, width, height })
        })
        .collect();
    for (class, rect) in &rects {
        assert!(rect.width > 0.0 && rect.height > 0.0 && page.holds(rect), "{what}: {class} {rect:?}");
    }
    let texts: Vec<(Node<'_, '_>, Area)> =
        document.descendants().filter(|node| node.has_tag_name("text")).map(|text| (text, area(text))).collect();
    for (at, (text, place)) in texts.iter().enumerate() {
        let says = || text.descendants().filter_map(|node| node.text()).collect::<String>();
        assert!(page.holds(place), "{what}: {:?} leaves the page", says());
        for (class, rect) in rects.iter().filter(|(class, _)| *class != "column") {
            assert!(!rect.meets(place) || rect.holds(place), "{what}: {:?} leaves {class}, {place:?} {rect:?}", says());
        }
        for (other, beside) in &texts[at + 1..] {
            assert!(!beside.meets(place), "{what}: {:?} lies upon {other:?}", says());
        }
    }
}
