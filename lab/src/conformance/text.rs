use std::fmt::Write as _;

use super::{Breach, Card, Cell, Judges, ModeCard, MutantCount, NotRun, PromiseRow, PromiseVerdict, judges};
use crate::promises::Promise;
use crate::report::terminal::counted;

/// The most lines of a packet's path in the text. The JSON is not cut.
const WAY: usize = 8;

#[must_use]
pub fn render(card: &Card) -> String {
    let mut text = format!("{}, judged by svclab {}\n", card.proxy, card.lab_and_shard());
    for mode in &card.modes {
        line(&mut text, format_args!("  {}", summary(card, mode)));
    }
    line(&mut text, format_args!("  {}", card.mutants.line()));
    table(card, &mut text);
    for (row, mode, cell) in card.cells() {
        if !cell.breaches.is_empty() {
            breaches(row, mode, cell, &mut text);
        }
    }
    not_judged(card, &mut text);
    text
}

#[must_use]
pub fn promises() -> String {
    let mut text = String::new();
    let mut chapter = "";
    for promise in Promise::all() {
        if promise.chapter() != chapter {
            chapter = promise.chapter();
            let gap = if text.is_empty() { "" } else { "\n" };
            line(&mut text, format_args!("{gap}{chapter}"));
        }
        line(&mut text, format_args!("  {}  {:<28} {}", promise.number, promise.id, promise.says));
        line(&mut text, format_args!("       {:<28} [{}]", "", promise.source));
        if let Some(judges) = judges::judges().get(promise.id) {
            line(&mut text, format_args!("       {:<28} judged by: {}", "", judges.line()));
            line(&mut text, format_args!("       {:<28} {}", "", broken_by(judges)));
        }
    }
    line(&mut text, format_args!("\n{}", MutantCount::of_table().line()));
    text
}

fn broken_by(judges: &Judges) -> String {
    match judges.mutants.as_slice() {
        [] => "broken by no wrong proxy".to_owned(),
        mutants => format!("broken by: {}", mutants.join(", ")),
    }
}

pub(super) fn summary(card: &Card, mode: &ModeCard) -> String {
    let counts = |kubernetes| {
        let count = |verdict: PromiseVerdict| (card.count(&mode.mode, verdict, kubernetes), verdict.noun());
        let counts = PromiseVerdict::ALL.map(count).into_iter().filter(|(count, _)| *count > 0);
        counts.map(|(count, noun)| format!("{count} {noun}")).collect::<Vec<_>>().join(", ")
    };
    let generated = match mode.generated {
        0 => String::new(),
        1 => " and 1 generated cluster".to_owned(),
        some => format!(" and {some} generated clusters"),
    };
    let kernels = if mode.kernels.is_empty() { "none".to_owned() } else { mode.kernels.join(", ") };
    format!(
        "{}: what Kubernetes promises: {}; what operators expect besides: {} ({}{generated}; kernel {kernels})",
        mode.mode,
        counts(true),
        counts(false),
        counted(mode.scenarios, "scenario"),
    )
}

fn table(card: &Card, text: &mut String) {
    let longest = card.promises.iter().map(|row| row.id.len()).max().unwrap_or_default();
    let mut chapter = "";
    for row in card.promises.iter().filter(|row| !row.cells.is_empty()) {
        if row.chapter() != chapter {
            chapter = row.chapter();
            let modes: String = card.modes.iter().map(|mode| format!("{:<10}", mode.mode)).collect();
            line(text, format_args!("\n{chapter:<0$}  {modes}wrong proxies  judged by", longest + 6));
        }
        let words: String = card
            .modes
            .iter()
            .map(|mode| format!("{:<10}", row.cells.get(&mode.mode).map_or("", |cell| cell.verdict.word())))
            .collect();
        let (mutants, judges) = (row.judges.mutants.len(), row.judges.line());
        let shown = format!("  {} {:<longest$}  {words}{mutants:<13}  {judges}", row.number, row.id);
        line(text, format_args!("{}", shown.trim_end()));
    }
}

fn breaches(row: &PromiseRow, mode: &ModeCard, cell: &Cell, text: &mut String) {
    let known = if cell.verdict == PromiseVerdict::Known { ", as kube-proxy is known to do" } else { "" };
    line(text, format_args!("\n{} {} is broken in {} mode{known}: {}", row.number, row.id, mode.mode, row.says));
    line(text, format_args!("  [{}]", row.source));
    for breach in &cell.breaches {
        one(breach, text);
    }
}

fn one(breach: &Breach, text: &mut String) {
    line(text, format_args!("  {}: {}", breach.scenario, breach.step));
    line(text, format_args!("    promised: {}", breach.expected));
    line(text, format_args!("    seen:     {}", breach.seen));
    if let Some(known) = &breach.known {
        line(text, format_args!("    known:    {known}"));
    }
    for way in breach.way.iter().take(WAY) {
        line(text, format_args!("      {way}"));
    }
    if let Some(more) = breach.way.len().checked_sub(WAY).filter(|more| *more > 0) {
        line(text, format_args!("      … {more} more lines in the report of --json"));
    }
    line(text, format_args!("    again:    {}", breach.repeat));
}

fn not_judged(card: &Card, text: &mut String) {
    for (row, mode, cell) in card.cells().filter(|(_, _, cell)| !cell.not_judged.is_empty()) {
        let what = if cell.verdict == PromiseVerdict::NotJudged { "was not judged" } else { "was not judged in part" };
        line(text, format_args!("\n{} {} {what} in {} mode:", row.number, row.id, mode.mode));
        for one in &cell.not_judged {
            line(text, format_args!("  {}: {}", one.scenario, one.why));
        }
    }
    for mode in &card.modes {
        for one in without_promise(card, mode) {
            line(text, format_args!("\n{} was not run in {} mode: {}", one.scenario, mode.mode, one.why));
        }
        if let Some(names) = untouched(card, mode) {
            line(text, format_args!("\nNothing that was run in {} mode is about: {names}", mode.mode));
        }
    }
    for mode in &card.modes {
        if let Some(figures) = &mode.figures {
            line(text, format_args!("\n{} mode: {}", mode.mode, figures.line()));
        }
    }
}

/// Returns the scenarios that were not run and that no cell lists: generated clusters.
pub(super) fn without_promise<'a>(card: &'a Card, mode: &'a ModeCard) -> impl Iterator<Item = &'a NotRun> {
    let is_told =
        move |one: &NotRun| card.cells().any(|(_, of, cell)| of.mode == mode.mode && cell.not_judged.contains(one));
    mode.not_run.iter().filter(move |one| !is_told(one))
}

/// Returns the promises without a scenario in a mode.
pub(super) fn untouched(card: &Card, mode: &ModeCard) -> Option<String> {
    let is_untouched = |cell: &Cell| cell.verdict == PromiseVerdict::NotJudged && cell.not_judged.is_empty();
    let cells = card.cells().filter(|(_, of, cell)| of.mode == mode.mode && is_untouched(cell));
    let names: Vec<String> = cells.map(|(row, _, _)| format!("{} {}", row.number, row.id)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
    text.push('\n');
}
