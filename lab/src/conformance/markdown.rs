use std::fmt::Write as _;

use super::source::{SourcePart, source_parts};
use super::text::{summary, untouched, without_promise};
use super::{Breach, Card, Cell, ModeCard, PromiseRow, PromiseVerdict};

#[must_use]
pub fn render(card: &Card) -> String {
    let mut text = format!(
        "# {}\n\nMade by `svclab conformance`, svclab {}, seed {}.\n\n",
        plain(&card.proxy),
        card.lab_and_shard(),
        card.seed
    );
    for mode in &card.modes {
        let _ = writeln!(text, "- {}", plain(&summary(card, mode)));
    }
    let _ = writeln!(text, "- {}", plain(&card.mutants.line()));
    let _ = writeln!(text);
    for verdict in PromiseVerdict::ALL {
        let _ = writeln!(text, "- {}", verdict.means());
    }
    table(card, &mut text);
    figures(card, &mut text);
    broken(card, &mut text);
    not_judged(card, &mut text);
    text
}

fn table(card: &Card, text: &mut String) {
    let mut chapter = "";
    let modes: Vec<&str> = card.modes.iter().map(|mode| mode.mode.as_str()).collect();
    for row in card.promises.iter().filter(|row| !row.cells.is_empty()) {
        if row.chapter() != chapter {
            chapter = row.chapter();
            let _ = writeln!(
                text,
                "\n## {chapter}\n\n| | promise | {} | wrong proxies | judged by | source |",
                modes.join(" | ")
            );
            let _ = writeln!(text, "| ---: | --- | {} | ---: | --- | --- |", vec!["---"; modes.len()].join(" | "));
        }
        let cells: Vec<&str> =
            modes.iter().map(|mode| row.cells.get(*mode).map_or("", |cell| cell.verdict.word())).collect();
        let cells = cells.join(" | ");
        let (mutants, judges) = (row.judges.mutants.len(), cell(&row.judges.line()));
        let source = source(row).replace('|', "\\|");
        let (number, says) = (row.number, cell(&row.says));
        let _ = writeln!(text, "| {number} | {says} | {cells} | {mutants} | {judges} | {source} |");
    }
}

fn source(row: &PromiseRow) -> String {
    let link = |part: SourcePart| match part.address {
        Some(address) => format!("[{}]({address})", plain(&part.text)),
        None => plain(&part.text),
    };
    source_parts(&row.source).into_iter().map(link).collect()
}

fn figures(card: &Card, text: &mut String) {
    if card.modes.iter().all(|mode| mode.figures.is_none()) {
        return;
    }
    let _ = writeln!(text, "\n## Figures\n");
    let _ = writeln!(
        text,
        "Over a few scenarios in each mode. They compare with those of another proxy on the same machine only.\n"
    );
    for mode in &card.modes {
        if let Some(figures) = &mode.figures {
            let _ = writeln!(text, "- {}: {}", mode.mode, figures.line());
        }
    }
}

fn broken(card: &Card, text: &mut String) {
    let mut first = true;
    for (row, mode, cell) in card.cells().filter(|(_, _, cell)| !cell.breaches.is_empty()) {
        if std::mem::take(&mut first) {
            let _ = writeln!(text, "\n## Broken");
        }
        one(row, mode, cell, text);
    }
}

fn one(row: &PromiseRow, mode: &ModeCard, cell: &Cell, text: &mut String) {
    let _ = writeln!(
        text,
        "\n### {} {} in {} mode\n\n{}: {}",
        row.number,
        row.id,
        mode.mode,
        plain(&row.says),
        source(row)
    );
    let calls = match cell.broken_calls {
        0 => String::new(),
        some => format!(" Of {} calls that rest on it, {some} broke it.", cell.calls),
    };
    if !calls.is_empty() {
        let _ = writeln!(text, "\n{}", calls.trim_start());
    }
    for breach in &cell.breaches {
        self::breach(breach, text);
    }
}

fn breach(breach: &Breach, text: &mut String) {
    let _ = writeln!(text, "\n- **{}**, {}", plain(&breach.scenario), plain(&breach.step));
    let _ = writeln!(text, "  - promised: {}", plain(&breach.expected));
    let _ = writeln!(text, "  - seen: {}", plain(&breach.seen));
    if let Some(known) = &breach.known {
        let _ = writeln!(text, "  - known: {}", plain(known));
    }
    let _ = writeln!(text, "  - again: `{}`", breach.repeat.replace('`', "'"));
    if !breach.way.is_empty() {
        let _ = writeln!(text, "\n{}", fenced(&breach.way.join("\n"), "text"));
    }
    if let Some(scenario) = &breach.text {
        let _ = writeln!(text, "\n  The scenario, `{}.yaml`:\n\n{}", breach.scenario, fenced(scenario, "yaml"));
    }
}

fn not_judged(card: &Card, text: &mut String) {
    let mut first = true;
    for (row, mode, cell) in card.cells() {
        for one in &cell.not_judged {
            if std::mem::take(&mut first) {
                let _ = writeln!(
                    text,
                    "\n## Not judged\n\n| | promise | mode | scenario | why |\n| ---: | --- | --- | --- | --- |"
                );
            }
            let fields = [&row.id, &mode.mode, &one.scenario, &one.why].map(|field| self::cell(field));
            let _ = writeln!(text, "| {} | {} |", row.number, fields.join(" | "));
        }
    }
    for mode in &card.modes {
        for one in without_promise(card, mode) {
            let _ = writeln!(text, "\n{} was not run in {} mode: {}", plain(&one.scenario), mode.mode, plain(&one.why));
        }
        if let Some(names) = untouched(card, mode) {
            let _ = writeln!(text, "\nNothing that was run in {} mode is about: {names}", mode.mode);
        }
    }
}

/// Returns a fenced block for a list, with a fence longer than any run of backticks in the content.
fn fenced(content: &str, language: &str) -> String {
    let longest = content.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let mut block = format!("  {fence}{language}\n");
    for line in content.lines() {
        let _ = writeln!(block, "  {line}");
    }
    block + "  " + &fence
}

fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        match letter {
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '\n' => plain.push(' '),
            '*' | '_' | '`' | '[' | ']' | '\\' | '#' => plain.extend(['\\', letter]),
            _ => plain.push(letter),
        }
    }
    plain
}

fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|")
}
