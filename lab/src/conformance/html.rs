use svclab_audit::page::{Html, page};

use super::source::source_parts;
use super::text::{summary, untouched, without_promise};
use super::{Breach, Card, Cell, ModeCard, PromiseRow, PromiseVerdict};

#[must_use]
pub fn render(card: &Card) -> String {
    page(&format!("Conformance of {}", card.proxy), |html| {
        html.leaf("h1", "", &format!("Conformance of {}", card.proxy));
        let (class, words) = match (card.judged(), card.is_clean()) {
            (false, _) => ("verdict note", "nothing was judged"),
            (true, true) => ("verdict good", "no promise was broken"),
            (true, false) => ("verdict bad", "promises were broken"),
        };
        html.leaf("p", class, words);
        let summaries = card.modes.iter().map(|mode| summary(card, mode));
        let lines: Vec<String> = summaries.chain([card.mutants.line()]).collect();
        html.list(lines.iter().map(String::as_str));
        html.list(PromiseVerdict::ALL.iter().map(|verdict| verdict.means()));
        for chapter in chapters(card) {
            table(html, card, chapter);
        }
        figures(html, card);
        let broken: Vec<_> = card.cells().filter(|(_, _, cell)| !cell.breaches.is_empty()).collect();
        if !broken.is_empty() {
            html.leaf("h2", "", "Broken");
        }
        for (row, mode, cell) in broken {
            breaches(html, row, mode, cell);
        }
        not_judged(html, card);
        html.leaf("footer", "", &format!("written by svclab conformance {}", card.lab_and_shard()));
    })
}

fn chapters(card: &Card) -> Vec<&'static str> {
    let mut chapters: Vec<&'static str> = card.promises.iter().map(PromiseRow::chapter).collect();
    chapters.dedup();
    chapters
}

fn table(html: &mut Html, card: &Card, chapter: &str) {
    html.leaf("h2", "", chapter);
    html.element("table", &[], |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                let modes = card.modes.iter().map(|mode| mode.mode.as_str());
                let after = ["Wrong proxies", "Judged by", "Source"];
                ["", "Promise"].into_iter().chain(modes).chain(after).for_each(|name| html.leaf("th", "", name));
            });
        });
        html.element("tbody", &[], |html| {
            for row in card.promises.iter().filter(|row| row.chapter() == chapter && !row.cells.is_empty()) {
                html.element("tr", &[], |html| {
                    html.leaf("td", "number", &row.number.to_string());
                    html.leaf("td", "", &row.says);
                    for mode in &card.modes {
                        html.element("td", &[], |html| {
                            if let Some(Cell { verdict, .. }) = row.cells.get(&mode.mode) {
                                html.leaf("span", class(*verdict), verdict.word());
                            }
                        });
                    }
                    html.leaf("td", "number", &row.judges.mutants.len().to_string());
                    html.leaf("td", "soft", &row.judges.line());
                    html.element("td", &[("class", "soft")], |html| source(html, row));
                });
            }
        });
    });
}

fn source(html: &mut Html, row: &PromiseRow) {
    for part in source_parts(&row.source) {
        match part.address {
            Some(address) => html.element("a", &[("href", &address)], |html| html.text(&part.text)),
            None => html.text(&part.text),
        }
    }
}

fn class(verdict: PromiseVerdict) -> &'static str {
    match verdict {
        PromiseVerdict::Kept => "badge good",
        PromiseVerdict::Broken => "badge bad",
        PromiseVerdict::Known | PromiseVerdict::Excused => "badge note",
        PromiseVerdict::NotJudged => "soft",
    }
}

fn figures(html: &mut Html, card: &Card) {
    let line = |mode: &ModeCard| Some(format!("{}: {}", mode.mode, mode.figures.as_ref()?.line()));
    let lines: Vec<String> = card.modes.iter().filter_map(line).collect();
    if !lines.is_empty() {
        html.leaf("h2", "", "Figures");
        html.list(lines.iter().map(String::as_str));
    }
}

fn breaches(html: &mut Html, row: &PromiseRow, mode: &ModeCard, cell: &Cell) {
    html.element("details", &[("class", "card")], |html| {
        html.leaf("summary", "", &format!("{} {} in {} mode", row.number, row.id, mode.mode));
        html.element("div", &[("class", "inside")], |html| {
            html.element("p", &[], |html| {
                html.text(&format!("{} [", row.says));
                source(html, row);
                html.text("]");
            });
            cell.breaches.iter().for_each(|breach| one(html, breach));
        });
    });
}

fn one(html: &mut Html, breach: &Breach) {
    html.leaf("h3", "", &format!("{}: {}", breach.scenario, breach.step));
    html.element("dl", &[("class", "rows")], |html| {
        html.row("promised", |html| html.text(&breach.expected));
        html.row("seen", |html| html.text(&breach.seen));
        if let Some(known) = &breach.known {
            html.row("known", |html| html.text(known));
        }
        html.row("again", |html| html.leaf("code", "", &breach.repeat));
    });
    if !breach.way.is_empty() {
        html.leaf("pre", "", &breach.way.join("\n"));
    }
    if let Some(text) = &breach.text {
        html.element("details", &[], |html| {
            html.leaf("summary", "", "the scenario");
            html.leaf("pre", "", text);
        });
    }
}

fn not_judged(html: &mut Html, card: &Card) {
    html.leaf("h2", "", "Not judged");
    html.element("table", &[], |html| {
        html.element("tbody", &[], |html| {
            for (row, mode, cell) in card.cells() {
                for one in &cell.not_judged {
                    html.element("tr", &[], |html| {
                        html.leaf("td", "number", &row.number.to_string());
                        let fields = [&row.id, &mode.mode, &one.scenario, &one.why];
                        fields.into_iter().for_each(|field| html.leaf("td", "", field));
                    });
                }
            }
        });
    });
    for mode in &card.modes {
        for one in without_promise(card, mode) {
            html.leaf("p", "", &format!("{} was not run in {} mode: {}", one.scenario, mode.mode, one.why));
        }
        if let Some(names) = untouched(card, mode) {
            html.leaf("p", "", &format!("Nothing that was run in {} mode is about: {names}", mode.mode));
        }
    }
}
