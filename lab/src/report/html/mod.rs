//! A run as a page of one file, for a browser and for paper.
//!
//! It is made from the report as JSON: that of several modes, kernels or seeds is put together already, and a microVM hands
//! out no other. A field that is not there is not shown.

mod bars;
#[cfg(test)]
mod browser;
mod cluster;
mod step;

use serde_json::Value;
use svclab_audit::page::{Html, page};

/// The page of a report that [`super::json::render`] made, or several of its scenarios.
pub fn render(report: &Value) -> String {
    let scenarios = list(report, "scenarios");
    let title = match scenarios {
        [one] => format!("{} ({})", text(one, "name"), text(one, "mode")),
        several => format!("{} runs of scenarios", several.len()),
    };
    page(&format!("svclab: {title}"), |html| {
        html.leaf("h1", "", &title);
        verdict(html, report);
        if scenarios.len() > 1 {
            overview(html, scenarios);
        }
        not_run(html, list(report, "notRun"));
        for (at, one) in scenarios.iter().enumerate() {
            scenario(html, at, one, scenarios.len() > 1);
        }
        html.leaf("footer", "", "written by svclab run");
    })
}

fn verdict(html: &mut Html, report: &Value) {
    let scenarios = list(report, "scenarios");
    let broken = scenarios.iter().filter(|one| one["passed"] != true).count();
    let judged = scenarios.iter().any(|one| one["judged"] == true);
    let (class, words) = match (report["passed"] == true, broken) {
        _ if report["interrupted"].is_string() => {
            ("verdict bad", format!("{} ended the run: not everything was run", text(report, "interrupted")))
        }
        (_, 0) if !judged => ("verdict note", "nothing was judged".to_owned()),
        (true, _) => ("verdict good", "every promise was kept".to_owned()),
        (false, 0) => ("verdict bad", "not everything could be run".to_owned()),
        (false, _) if scenarios.len() == 1 => ("verdict bad", "a promise was broken".to_owned()),
        (false, broken) => ("verdict bad", format!("{broken} of {} runs are not good", scenarios.len())),
    };
    html.leaf("p", class, &words);
}

/// A line for each run.
fn overview(html: &mut Html, scenarios: &[Value]) {
    html.element("table", &[], |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                for name in ["Scenario", "Mode", "Where", "Seed", "Result", "Time"] {
                    html.leaf("th", "", name);
                }
            });
        });
        html.element("tbody", &[], |html| {
            for (at, one) in scenarios.iter().enumerate() {
                html.element("tr", &[], |html| {
                    html.element("td", &[], |html| {
                        html.element("a", &[("href", &format!("#run-{at}"))], |html| html.text(text(one, "name")));
                    });
                    html.leaf("td", "", text(one, "mode"));
                    html.leaf("td", "", &place(one));
                    html.leaf("td", "", &one["seed"].to_string());
                    html.element("td", &[], |html| result(html, one));
                    html.leaf("td", "", &time(one));
                });
            }
        });
    });
}

/// What could not be run, and why.
fn not_run(html: &mut Html, left_out: &[Value]) {
    if left_out.is_empty() {
        return;
    }
    html.leaf("h2", "", "Not run");
    html.element("ul", &[], |html| {
        for one in left_out {
            let words = format!("{} ({}): {}", text(one, "scenario"), text(one, "mode"), text(one, "why"));
            html.leaf("li", "", &words);
        }
    });
}

fn scenario(html: &mut Html, at: usize, one: &Value, titled: bool) {
    html.element("section", &[("id", &format!("run-{at}"))], |html| {
        if titled {
            html.leaf("h2", "", &format!("{} ({}), {}", text(one, "name"), text(one, "mode"), place(one)));
        }
        html.leaf("p", "", text(one, "about"));
        html.element("dl", &[("class", "facts")], |html| {
            let mut fact =
                |name: &str, value: &str| html.element("div", &[], |html| html.row(name, |html| html.text(value)));
            fact("Mode", text(one, "mode"));
            fact("Where", &place(one));
            fact("Seed", &one["seed"].to_string());
            fact("Time", &time(one));
            fact("File", text(one, "path"));
            html.element("div", &[], |html| html.row("Result", |html| result(html, one)));
        });
        if let Some(why) = one["notStarted"].as_str() {
            html.leaf("p", "verdict bad", &format!("It did not start: {why}"));
        }
        if one["interrupted"] == true {
            html.leaf("p", "verdict bad", "A signal ended it before its last step.");
        }
        if !one["cluster"].is_null() {
            html.leaf("h3", "", "Cluster before the first step");
            cluster::draw(html, &one["cluster"]);
        }
        html.leaf("h3", "", "Steps");
        list(one, "steps").iter().enumerate().for_each(|(at, one)| step::step(html, at + 1, one));
        if !text(one, "logs").is_empty() {
            html.leaf("h3", "", "The end of the proxies' logs");
            html.leaf("pre", "", text(one, "logs").trim_end());
        }
        html.leaf("h3", "", "Repeat it");
        html.leaf("pre", "", text(one, "repeat"));
    });
}

fn result(html: &mut Html, one: &Value) {
    let (class, word) = match (one["passed"] == true, one["judged"] == true) {
        (true, false) => ("badge note", "not judged"),
        (true, true) => ("badge good", "passed"),
        (false, _) if one["interrupted"] == true => ("badge bad", "interrupted"),
        (false, _) if one["unable"] == true => ("badge bad", "unable"),
        (false, _) => ("badge bad", "FAILED"),
    };
    html.leaf("span", class, word);
}

/// Kernel or simulator, and the control plane where there is a real one.
fn place(one: &Value) -> String {
    let variant = text(one, "iptablesVariant");
    let plane = one["controlPlane"]["version"].as_str().map(|version| format!(", Kubernetes {version}"));
    let kernel = match (variant, &one["machine"]) {
        (super::SIMULATED, _) => "simulator".to_owned(),
        (_, Value::Null) => "this machine's kernel".to_owned(),
        (_, machine) if machine["deterministic"] == true => {
            format!("{} in a deterministic microVM", text(machine, "kernel"))
        }
        (_, machine) => format!("{} in a microVM", text(machine, "kernel")),
    };
    kernel + &plane.unwrap_or_default()
}

fn time(one: &Value) -> String {
    match one["seconds"].as_f64().unwrap_or_default() {
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expect::{Bounds, OutcomeTally, StepAnswers};

    fn parsed(text: &str) -> roxmltree::Document<'_> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(text, options).unwrap()
    }

    fn sample() -> Value {
        let mut reports = crate::report::sample();
        let servers = [("default/a".to_owned(), 60), ("default/<b>".to_owned(), 340)].into();
        let bounds = Bounds { share: 0.5, low: 140, high: 260 };
        reports[0].steps[0].answers = Some(StepAnswers {
            tally: OutcomeTally { servers, ..OutcomeTally::default() },
            drawn: true,
            bounds: [("default/a".to_owned(), bounds), ("default/none".to_owned(), bounds)].into(),
        });
        reports[0].logs = "</pre><script>alert(1)</script>\u{1b}[0m".to_owned();
        super::super::json::render(&reports)
    }

    #[test]
    fn a_page_is_well_formed_whatever_names_and_logs_say() {
        let page = render(&sample());
        let document = parsed(&page);
        assert!(!page.contains("<script"));
        let headings: Vec<&str> = document
            .descendants()
            .filter(|node| node.tag_name().name() == "h3")
            .filter_map(|node| node.text())
            .collect();
        assert_eq!(headings, ["Cluster before the first step", "Steps", "The end of the proxies' logs", "Repeat it"]);
        assert!(page.contains("svclab run scenarios/hairpin.yaml --mode iptables --seed 3"));
        assert_eq!(page, render(&sample()), "the same bytes");
    }

    #[test]
    fn a_failed_probe_has_its_way() {
        let mut report = sample();
        report["scenarios"][0]["steps"][1]["explanation"] = json!(["on node-a: <lost>", "decided by FORWARD"]);
        report["scenarios"][0]["steps"][1]["bundle"] = json!("out/hairpin-iptables-step2");
        let page = render(&report);
        let document = parsed(&page);
        let items: Vec<&str> = document
            .descendants()
            .filter(|node| node.tag_name().name() == "li")
            .filter_map(|node| node.text())
            .collect();
        assert!(items.ends_with(&["on node-a: <lost>", "decided by FORWARD"]), "{items:?}");
        assert!(page.contains("<code>out/hairpin-iptables-step2</code>"));
    }

    #[test]
    fn a_bar_for_each_server_that_answers_or_should() {
        let page = render(&sample());
        let bars = parsed(&page).descendants().filter(|node| node.attribute("class") == Some("track")).count();
        assert_eq!(bars, 3);
        assert_eq!(
            page.matches("fill-bad").count(),
            3 + 1,
            "out of bounds, not to answer, and none; once in the style"
        );
    }

    #[test]
    fn several_runs_have_an_overview_and_what_was_not_run() {
        let mut report = sample();
        let one = report["scenarios"][0].clone();
        report["scenarios"].as_array_mut().unwrap().push(one);
        report["notRun"] = json!([{ "scenario": "hairpin", "mode": "ipvs", "why": "no <network>" }]);
        let page = render(&report);
        parsed(&page);
        assert!(
            page.contains("2 of 2 runs are not good") && page.contains("hairpin (ipvs): no &lt;network&gt;"),
            "{page}"
        );
    }

    #[test]
    fn a_report_without_anything_is_a_page() {
        parsed(&render(&json!({})));
        parsed(&render(&json!({ "scenarios": [{}, { "steps": [{ "answers": {} }] }] })));
    }
}
