use super::{by_kind, count, known, looked_at, met, services, subject, verdict};
use crate::audit::{Finding, Report};
use crate::page::{Html, page};

/// The number of findings per kind that are shown unfolded.
const UNFOLDED: usize = 3;

/// Returns the HTML page.
#[must_use]
pub fn html(report: &Report) -> String {
    page(&format!("Service proxy audit of {}", report.node), |html| {
        html.element("h1", &[], |html| {
            html.text("Service proxy audit of ");
            html.leaf("span", "code", &report.node);
        });
        html.leaf("p", "soft", &looked_at(report));
        let class = match (report.is_clean(), report.is_complete()) {
            (false, _) => "verdict bad",
            (true, false) => "verdict note",
            (true, true) => "verdict good",
        };
        html.leaf("p", class, &verdict(report));
        facts(html, report);
        kinds(html, report);
        for (kind, title, all) in by_kind(report) {
            html.element("section", &[("id", kind)], |html| {
                html.leaf("h2", "", title);
                html.element("p", &[("class", "soft")], |html| {
                    html.leaf("code", "", kind);
                    html.text(&format!(", {}", count(all.len(), "finding")));
                });
                all.iter().enumerate().for_each(|(at, finding)| one(html, finding, at < UNFOLDED));
            });
        }
        rest(html, report);
        html.leaf("footer", "", "written by svclab audit");
    })
}

fn facts(html: &mut Html, report: &Report) {
    let numbers = [
        ("Service ports", report.service_ports),
        ("Addresses", report.frontends),
        ("Calls judged", report.judged),
        ("Calls not judged", report.calls - report.judged),
        ("Calls without a promise", report.no_promise),
        ("Addresses not settled", report.unsettled),
    ];
    html.element("dl", &[("class", "facts")], |html| {
        let words = [("Mode", report.mode.to_owned()), ("Taken", report.taken.clone())];
        let all = words.into_iter().chain(numbers.map(|(name, number)| (name, number.to_string())));
        for (name, value) in all {
            html.element("div", &[], |html| html.row(name, |html| html.text(&value)));
        }
    });
}

fn kinds(html: &mut Html, report: &Report) {
    if report.is_clean() {
        return;
    }
    html.element("table", &[], |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                html.leaf("th", "", "Kind");
                html.leaf("th", "number", "Findings");
                html.leaf("th", "", "Meaning");
            });
        });
        html.element("tbody", &[], |html| {
            for (kind, title, all) in by_kind(report) {
                html.element("tr", &[], |html| {
                    html.element("td", &[], |html| {
                        html.element("a", &[("class", "code"), ("href", &format!("#{kind}"))], |html| html.text(kind));
                    });
                    html.leaf("td", "number", &all.len().to_string());
                    html.leaf("td", "", title);
                });
            }
        });
    });
}

fn one(html: &mut Html, finding: &Finding, unfolded: bool) {
    let (folded, open) = ([("class", "card")], [("class", "card"), ("open", "open")]);
    html.element("details", if unfolded { &open } else { &folded }, |html| {
        html.element("summary", &[], |html| {
            html.leaf("strong", "", &subject(finding));
            html.leaf("span", "soft", &count(finding.count, "call"));
        });
        html.element("div", &[("class", "inside")], |html| {
            html.element("dl", &[("class", "rows")], |html| columns(html, finding));
            if !finding.way.is_empty() {
                html.element("details", &[], |html| {
                    html.leaf("summary", "", "The packet's way through the rules");
                    html.leaf("pre", "", finding.way.trim_end());
                });
            }
        });
    });
}

fn columns(html: &mut Html, finding: &Finding) {
    if let Some(services) = services(finding) {
        html.row("Services", |html| html.text(&services));
    }
    html.row("Call", |html| {
        for call in &finding.calls {
            html.leaf("div", "code", call);
        }
        if finding.count > finding.calls.len() {
            html.leaf("div", "soft", &format!("and {}", count(finding.count - finding.calls.len(), "more call")));
        }
    });
    html.row("Promised", |html| {
        html.text(&finding.promised);
        if !finding.because.is_empty() {
            html.element("div", &[("class", "soft")], |html| html.list(finding.because.iter().map(String::as_str)));
        }
    });
    html.row("Found", |html| html.text(&finding.found));
    html.row("Likely cause", |html| html.leaf("span", "code", &finding.cause));
}

fn rest(html: &mut Html, report: &Report) {
    let differences: Vec<String> =
        known(report).into_iter().map(|(why, number)| format!("{why} ({})", count(number, "finding"))).collect();
    if !differences.is_empty() {
        html.leaf("h2", "", "Known differences, on every node of this proxy");
        html.list(differences.iter().map(String::as_str));
    }
    if !report.not_judged.is_empty() {
        html.leaf("h2", "", "Not judged");
        html.element("table", &[], |html| {
            html.element("thead", &[], |html| {
                html.element("tr", &[], |html| {
                    html.leaf("th", "", "Why");
                    html.leaf("th", "number", "Calls");
                    html.leaf("th", "", "The first of them");
                });
            });
            html.element("tbody", &[], |html| {
                for one in &report.not_judged {
                    html.element("tr", &[], |html| {
                        html.leaf("td", "", &one.why);
                        html.leaf("td", "number", &one.count.to_string());
                        html.leaf("td", "code", &one.first);
                    });
                }
            });
        });
    }
    if let Some(met) = met(report) {
        html.leaf("p", "", &met);
        html.list(report.coverage.unmet.iter().map(String::as_str));
    }
    for (title, lines) in [
        ("Not looked at", &report.incomplete),
        ("Not asked", &report.not_asked),
        ("Assumed", &report.assumed),
        ("Not read", &report.unread),
    ] {
        if !lines.is_empty() {
            html.leaf("h2", "", title);
            html.list(lines.iter().map(String::as_str));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::audit::NotJudged;

    fn sample() -> Report {
        let finding = |service: &str, way: &str| Finding {
            kind: "dropped",
            title: "Packets are dropped that should be delivered",
            service: service.to_owned(),
            services: vec![service.to_owned()],
            service_count: 1,
            protocol: "TCP",
            frontend: "cluster IP",
            calls: vec!["pod default/a → 10.96.0.1:80/TCP".to_owned()],
            count: 3,
            promised: "an answer".to_owned(),
            because: vec!["cluster-ip: every pod reaches it [page reference/networking/virtual-ips]".to_owned()],
            rules: vec!["cluster-ip"],
            found: "dropped by -A KUBE-FIREWALL".to_owned(),
            cause: "-m comment --comment \"</pre><script>\" -j DROP".to_owned(),
            known: None,
            way: way.to_owned(),
        };
        Report {
            node: "node-a".to_owned(),
            taken: "2026-01-02T03:04:05Z".to_owned(),
            mode: "iptables",
            service_ports: 2,
            frontends: 2,
            calls: 12,
            judged: 12,
            no_promise: 1,
            findings: vec![finding("default/web:http", "nat PREROUTING\n  <rule>\n"), finding("default/<b>", "")],
            not_judged: vec![NotJudged {
                why: "a match that is not read".to_owned(),
                count: 2,
                first: "a & b".to_owned(),
            }],
            assumed: vec!["bridges forward".to_owned()],
            ..Report::default()
        }
    }

    #[test]
    fn a_page_is_well_formed_and_has_every_finding() {
        let text = html(&sample());
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
        let cards = document.descendants().filter(|node| node.attribute("class") == Some("card")).count();
        assert_eq!(cards, 2);
        assert!(!text.contains("<script"));
        let body = text.split_once("<body>").unwrap().1;
        insta::assert_snapshot!(body);
    }

    #[test]
    fn a_clean_audit_says_so() {
        let clean = Report { findings: Vec::new(), not_judged: Vec::new(), ..sample() };
        assert!(html(&clean).contains("verdict good\">nothing is wrong"));
        let none = html(&Report { calls: 0, judged: 0, ..clean });
        assert!(none.contains("verdict note\">not judged: there was no call to judge"));
    }
}
