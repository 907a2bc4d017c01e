//! The report as one HTML file, for browsers and paper.

mod bars;
#[cfg(test)]
mod browser;
mod cluster;
mod step;

use svclab_audit::page::{Html, page};

use super::record::{NotRunRecord, RunRecord, ScenarioRecord};

pub fn render(run: &RunRecord) -> String {
    let title = match &run.scenarios[..] {
        [one] => format!("{} ({})", one.name, one.mode),
        several => format!("{} runs of scenarios", several.len()),
    };
    page(&format!("svclab: {title}"), |html| {
        html.leaf("h1", "", &title);
        verdict(html, run);
        let are_several = run.scenarios.len() > 1;
        if are_several {
            overview(html, &run.scenarios);
        }
        not_run(html, run.not_run.as_deref().unwrap_or_default());
        for (number, one) in run.scenarios.iter().enumerate() {
            scenario(html, number, one, are_several);
        }
        let shard = run.shard.as_ref().map(|shard| format!(", shard {}", shard.shard())).unwrap_or_default();
        html.leaf("footer", "", &format!("written by svclab run{shard}"));
    })
}

fn verdict(html: &mut Html, run: &RunRecord) {
    let scenarios = &run.scenarios;
    let broken = scenarios.iter().filter(|one| !one.passed).count();
    let judged = scenarios.iter().any(|one| one.judged);
    let (class, words) = match (run.passed, broken) {
        _ if run.interrupted.is_some() => {
            let signal = run.interrupted.as_deref().unwrap_or_default();
            ("verdict bad", format!("{signal} ended the run: not everything was run"))
        }
        (_, 0) if !judged => ("verdict note", "nothing was judged".to_owned()),
        (true, _) => ("verdict good", "every promise was kept".to_owned()),
        (false, 0) => ("verdict bad", "not everything could be run".to_owned()),
        (false, _) if scenarios.len() == 1 => ("verdict bad", "a promise was broken".to_owned()),
        (false, broken) => ("verdict bad", format!("{broken} of {} runs are not good", scenarios.len())),
    };
    html.leaf("p", class, &words);
}

fn overview(html: &mut Html, scenarios: &[ScenarioRecord]) {
    html.element("table", &[], |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                for name in ["Scenario", "Mode", "Where", "Seed", "Result", "Time"] {
                    html.leaf("th", "", name);
                }
            });
        });
        html.element("tbody", &[], |html| {
            for (number, one) in scenarios.iter().enumerate() {
                html.element("tr", &[], |html| {
                    html.element("td", &[], |html| {
                        html.element("a", &[("href", &format!("#run-{number}"))], |html| html.text(&one.name));
                    });
                    html.leaf("td", "", &one.mode);
                    html.leaf("td", "", &place(one));
                    html.leaf("td", "", &one.seed.to_string());
                    html.element("td", &[], |html| result(html, one));
                    html.leaf("td", "", &time(one.seconds));
                });
            }
        });
    });
}

fn not_run(html: &mut Html, left_out: &[NotRunRecord]) {
    if left_out.is_empty() {
        return;
    }
    html.leaf("h2", "", "Not run");
    html.element("ul", &[], |html| {
        for NotRunRecord { scenario, mode, why, .. } in left_out {
            html.leaf("li", "", &format!("{scenario} ({mode}): {why}"));
        }
    });
}

fn scenario(html: &mut Html, number: usize, one: &ScenarioRecord, is_titled: bool) {
    html.element("section", &[("id", &format!("run-{number}"))], |html| {
        if is_titled {
            html.leaf("h2", "", &format!("{} ({}), {}", one.name, one.mode, place(one)));
        }
        html.leaf("p", "", &one.about);
        html.element("dl", &[("class", "facts")], |html| {
            let mut fact =
                |name: &str, value: &str| html.element("div", &[], |html| html.row(name, |html| html.text(value)));
            fact("Proxy", &one.proxy.title());
            fact("Mode", &one.mode);
            fact("Where", &place(one));
            fact("Seed", &one.seed.to_string());
            fact("Time", &time(one.seconds));
            fact("File", &one.path);
            html.element("div", &[], |html| html.row("Result", |html| result(html, one)));
        });
        if let Some(why) = &one.not_started {
            html.leaf("p", "verdict bad", &format!("It did not start: {why}"));
            one.bundle.iter().for_each(|bundle| html.leaf("p", "", &format!("What was kept: {}", bundle.display())));
        }
        if one.interrupted {
            html.leaf("p", "verdict bad", "A signal ended it before its last step.");
        }
        if let Some(layout) = &one.cluster {
            html.leaf("h3", "", "Cluster before the first step");
            html.element("div", &[("class", "wide")], |html| cluster::draw(html, layout));
        }
        html.leaf("h3", "", "Steps");
        one.steps.iter().zip(1..).for_each(|(step, number)| step::step(html, number, step));
        if !one.logs.is_empty() {
            html.leaf("h3", "", "The end of the proxies' logs");
            html.leaf("pre", "", one.logs.trim_end());
        }
        html.leaf("h3", "", "Repeat it");
        html.leaf("pre", "", &one.repeat);
    });
}

fn result(html: &mut Html, one: &ScenarioRecord) {
    let (class, word) = match (one.passed, one.judged) {
        (true, false) => ("badge note", "not judged"),
        (true, true) => ("badge good", "passed"),
        (false, _) if one.interrupted => ("badge bad", "interrupted"),
        (false, _) if one.unable => ("badge bad", "unable"),
        (false, _) => ("badge bad", "FAILED"),
    };
    html.leaf("span", class, word);
}

/// Returns kernel or simulator, and the real control plane's version.
fn place(one: &ScenarioRecord) -> String {
    let plane = one.control_plane.as_ref().map(|plane| format!(", Kubernetes {}", plane.version));
    let kernel = match &one.machine {
        _ if one.iptables_variant == super::SIMULATED => "simulator".to_owned(),
        None => "this machine's kernel".to_owned(),
        Some(machine) if machine.deterministic => format!("{} in a deterministic microVM", machine.kernel),
        Some(machine) => format!("{} in a microVM", machine.kernel),
    };
    kernel + &plane.unwrap_or_default()
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::{Bounds, OutcomeTally, StepAnswers};
    use crate::report::{AnswersRecord, StepRecord};

    fn parsed(text: &str) -> roxmltree::Document<'_> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(text, options).unwrap()
    }

    fn texts<'a>(document: &'a roxmltree::Document<'_>, tag: &str) -> Vec<&'a str> {
        document.descendants().filter(|node| node.tag_name().name() == tag).filter_map(|node| node.text()).collect()
    }

    fn sample() -> RunRecord {
        let mut reports = crate::report::sample();
        let servers = [("default/a".to_owned(), 60), ("default/<b>".to_owned(), 340)].into();
        let bounds = Bounds { share: 0.5, low: 140, high: 260 };
        reports[0].steps[0].answers = Some(StepAnswers {
            tally: OutcomeTally { servers, ..OutcomeTally::default() },
            drawn: true,
            bounds: [("default/a".to_owned(), bounds), ("default/none".to_owned(), bounds)].into(),
        });
        reports[0].logs = "</pre><script>alert(1)</script>\u{1b}[0m".to_owned();
        RunRecord::of(&reports)
    }

    #[test]
    fn a_page_is_well_formed_with_hostile_names_and_logs() {
        let page = render(&sample());
        assert!(!page.contains("<script"));
        let headings = ["Cluster before the first step", "Steps", "The end of the proxies' logs", "Repeat it"];
        assert_eq!(texts(&parsed(&page), "h3"), headings);
        assert!(page.contains("svclab run scenarios/hairpin.yaml --mode iptables --seed 3"));
        assert_eq!(page, render(&sample()), "the same bytes");
    }

    #[test]
    fn a_failed_probe_has_its_explanation_and_bundle() {
        let mut run = sample();
        let step = &mut run.scenarios[0].steps[1];
        step.explanation = Some(["on node-a: <lost>", "decided by FORWARD"].map(str::to_owned).into());
        step.bundle = Some("out/hairpin-iptables-step2".into());
        let page = render(&run);
        let document = parsed(&page);
        let items = texts(&document, "li");
        assert!(items.ends_with(&["on node-a: <lost>", "decided by FORWARD"]), "{items:?}");
        assert!(page.contains("<code>out/hairpin-iptables-step2</code>"));
    }

    #[test]
    fn each_server_with_answers_or_a_promised_share_has_a_bar() {
        let page = render(&sample());
        let bars = parsed(&page).descendants().filter(|node| node.attribute("class") == Some("track")).count();
        assert_eq!(bars, 3);
        let bad = "out of bounds, without a promised share, without an answer; once in the style";
        assert_eq!(page.matches("fill-bad").count(), 3 + 1, "{bad}");
    }

    #[test]
    fn several_runs_have_an_overview_and_a_list_of_those_not_run() {
        let mut run = sample();
        run.scenarios.push(run.scenarios[0].clone());
        let (scenario, mode, why) = ("hairpin".to_owned(), "ipvs".to_owned(), "no <network>".to_owned());
        run.not_run = Some(vec![NotRunRecord { scenario, mode, why, is_failure: false }]);
        let page = render(&run);
        parsed(&page);
        assert!(page.contains("2 of 2 runs are not good"), "{page}");
        assert!(page.contains("hairpin (ipvs): no &lt;network&gt;"), "{page}");
    }

    #[test]
    fn an_empty_report_is_a_well_formed_page() {
        parsed(&render(&RunRecord::default()));
        let step = StepRecord { answers: Some(AnswersRecord::default()), ..StepRecord::default() };
        let scenarios =
            vec![ScenarioRecord::default(), ScenarioRecord { steps: vec![step], ..ScenarioRecord::default() }];
        parsed(&render(&RunRecord { scenarios, ..RunRecord::default() }));
    }
}
