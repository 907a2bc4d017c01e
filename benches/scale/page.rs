//! `docs/scale.md` and its plots.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};

use super::model::{self, Encoding, NODES, Retry, encodings, factor};
use super::plot::{Curve, svg};
use super::simulate::{Outcome, restart, rollout, update};
use crate::control_plane::ControlPlaneFigures;

/// The page and its plots, by their paths in `docs`.
pub struct ScalePage {
    pub files: Vec<(&'static str, String)>,
}

const PAGE: &str = "scale.md";
const CONVERGED: &str = "images/scale-converged.svg";
const ASKED: &str = "images/scale-asked.svg";

pub fn page() -> Result<ScalePage> {
    let figures = ControlPlaneFigures::committed()?;
    let encodings = encodings(&figures)?;
    let chosen = encodings.last().context("an encoding")?;
    let mut text = HEAD.to_owned();
    text.push_str(&measured(&figures)?);
    text.push_str(&simulated(&encodings, factor(&figures)?));
    let restarts = encodings
        .iter()
        .map(|encoding| Curve { name: encoding.name.to_owned(), points: converged(&restart(encoding, Retry::Jitter)) });
    let plot = svg("nodes that have converged after an API restart", "nodes", &restarts.collect::<Vec<_>>())?;
    let asked = Retry::ALL
        .map(|retry| Curve { name: retry.name().to_owned(), points: per_second(&restart(chosen, retry).asked) });
    let requests = svg("lists asked for in each second after an API restart", "lists per second", &asked)?;
    Ok(ScalePage { files: vec![(PAGE, text), (CONVERGED, plot), (ASKED, requests)] })
}

fn measured(figures: &ControlPlaneFigures) -> Result<String> {
    let mut text =
        format!("## Measured\n\nBy {}, with {} (services x endpoints of each).\n\n", figures.server, figures.cluster);
    text.push_str("| one proxy | start: bytes | requests | server's work | until rules | one change: bytes | peak, resident memory |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
    for (name, proxy) in &figures.proxies {
        let work = proxy.start_server_ms.map_or("-".to_owned(), |work| format!("{work:.0} ms"));
        writeln!(
            text,
            "| {name} | {} | {} | {work} | {:.2} s | {} | {}, {} |",
            bytes(proxy.start_bytes as f64),
            proxy.start_requests,
            proxy.start_ms / 1000.0,
            proxy.change_bytes,
            bytes(proxy.peak_bytes as f64),
            bytes(proxy.resident_bytes as f64),
        )?;
    }
    text.push_str("\n| both lists | bytes | server's work |\n|---|---:|---:|\n");
    for (name, list) in &figures.lists {
        let work = list.server_ms.map_or("-".to_owned(), |work| format!("{work:.0} ms"));
        writeln!(text, "| {name} | {} | {work} |", bytes(list.bytes as f64))?;
    }
    if let Some(fleet) = &figures.fleet {
        writeln!(
            text,
            "\n{} svcproxy processes, each in a namespace of its own and all started at once, beside the API server on the same two processors:\n\n\
             | | until the last one has its rules | server's work for each | bytes for each |\n|---|---:|---:|---:|",
            fleet.proxies
        )?;
        let each = f64::from(fleet.proxies);
        let row = |name: &str, time: f64, work: f64, sent: f64| {
            format!("| {name} | {:.1} s | {work:.2} ms | {} |\n", time / 1000.0, bytes(sent))
        };
        text.push_str(&row("start", fleet.start_ms, fleet.start_server_ms / each, fleet.start_bytes as f64 / each));
        let change = figures.proxies.get("svcproxy").map_or(0.0, |proxy| proxy.change_bytes as f64);
        text.push_str(&row("one change", fleet.change_ms, fleet.event_server_ms, change));
        let away = fleet.away_ms / 1000.0;
        let name = format!("restart of the server, {away:.0} s away, then a change");
        text.push_str(&row(&name, fleet.return_ms, fleet.return_server_ms / each, fleet.return_bytes as f64 / each));
    }
    Ok(text)
}

fn simulated(encodings: &[Encoding], factor: f64) -> String {
    let mut text = format!(
        "\n## Computed\n\n{NODES} nodes, {} services with {} endpoints each. One API server with {} processors like the measured machine's, {} Gbit/s, and \
         at most {} requests at once, after which it refuses (429). Lists cost what was measured, times {} for the larger cluster.\n\
         A change is one slice of {} endpoints.\n",
        model::SERVICES,
        model::ENDPOINTS,
        model::PROCESSORS,
        model::NETWORK * 8.0 / 1e9,
        model::IN_FLIGHT,
        factor,
        model::ENDPOINTS,
    );
    let _ = writeln!(text, "\n### A rollout, {} pods at once\n", model::AT_ONCE);
    text.push_str(&table(encodings, &[Retry::Jitter], rollout));
    let _ = writeln!(text, "\n### The API server was away for {} s\n", model::AWAY.as_secs());
    text.push_str(&table(encodings, &Retry::ALL, restart));
    let _ = writeln!(
        text,
        "\n![Converged nodes over time]({CONVERGED})\n\n![Lists asked for in each second]({ASKED})\n\n### {} endpoints replaced in {} s\n",
        model::REPLACED,
        model::UPDATE.as_secs()
    );
    text.push_str(&table(encodings, &[Retry::Jitter], |encoding, _| update(encoding)));
    text
}

fn table(encodings: &[Encoding], retries: &[Retry], run: impl Fn(&Encoding, Retry) -> Outcome) -> String {
    let mut text = "| | retries | half of the nodes | all nodes | longest queue | refused | bytes |\n|---|---|---:|---:|---:|---:|---:|\n".to_owned();
    for encoding in encodings {
        for retry in retries {
            let outcome = run(encoding, *retry);
            let at = |index: usize| outcome.converged.get(index).copied().unwrap_or_default().as_secs_f64();
            let all = outcome.converged.len();
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} s | {:.0} s | {} | {} | {} |",
                encoding.name,
                retry.name(),
                at(all / 2),
                at(all.saturating_sub(1)),
                outcome.peak_queue,
                outcome.refused,
                bytes(outcome.bytes)
            );
        }
    }
    text
}

fn converged(outcome: &Outcome) -> Vec<(f64, f64)> {
    let every = outcome.converged.iter().zip(1u32..).step_by(50);
    every.map(|(at, count)| (at.as_secs_f64(), f64::from(count))).collect()
}

fn per_second(times: &[Duration]) -> Vec<(f64, f64)> {
    let end = times.iter().max().map_or(0, Duration::as_secs) + 1;
    let mut counts = vec![0u32; usize::try_from(end).unwrap_or_default()];
    for time in times {
        if let Some(count) = counts.get_mut(usize::try_from(time.as_secs()).unwrap_or_default()) {
            *count += 1;
        }
    }
    counts.iter().zip(0u32..).map(|(count, second)| (f64::from(second), f64::from(*count))).collect()
}

fn bytes(number: f64) -> String {
    match number {
        number if number >= 1e12 => format!("{:.2} TB", number / 1e12),
        number if number >= 1e9 => format!("{:.1} GB", number / 1e9),
        number if number >= 1e6 => format!("{:.2} MB", number / 1e6),
        number if number >= 1e3 => format!("{:.1} kB", number / 1e3),
        number => format!("{number:.0} B"),
    }
}

const HEAD: &str = "# What a large cluster pays

Each node's proxy reads all services and EndpointSlices from the API server: once at its start, and again when its watches cannot go on, such as after a restart of the server.
This page says what that costs. It is written by `UPDATE_DOCS=1 cargo test -p svcbench`; the first part is measured by
`./just bench --control-plane DIR --proxy FILE --update`, where DIR has etcd and kube-apiserver ([control-plane.md](control-plane.md)), the second one computed from it.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_simulation_has_the_same_outcome_and_loses_no_node() {
        let figures = ControlPlaneFigures::committed().unwrap();
        for encoding in encodings(&figures).unwrap() {
            for retry in Retry::ALL {
                for run in [rollout, restart] {
                    let outcome = run(&encoding, retry);
                    assert_eq!(outcome, run(&encoding, retry));
                    assert_eq!(outcome.converged.len(), NODES as usize, "{}", encoding.name);
                    assert!(outcome.converged.is_sorted());
                    assert_eq!(outcome.asked.len() as u64, u64::from(NODES) + outcome.refused);
                }
            }
        }
    }

    #[test]
    fn the_document_is_what_the_program_prints() {
        for (name, text) in page().unwrap().files {
            let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == text, "docs/{name} is out of date: UPDATE_DOCS=1 writes it anew");
        }
    }
}
