//! Writes, reads and compares cards.

use std::path::Path;

use crate::conformance::{self, Card};
use crate::exit::Exit;
use crate::schedule::output::write;

/// Where to write a card; `-` is standard output, in place of the text.
pub(in crate::cli) struct CardFiles<'a> {
    pub(in crate::cli) json: Option<&'a Path>,
    pub(in crate::cli) markdown: Option<&'a Path>,
    pub(in crate::cli) html: Option<&'a Path>,
}

pub(in crate::cli) fn read(path: &Path) -> Result<Card, Exit> {
    let wrong = |why: String| {
        Exit::usage(format!("--against: {} is no card of `svclab conformance --json`: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let card: Card = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match card.schema_version {
        conformance::SCHEMA_VERSION => Ok(card),
        other => {
            Err(wrong(format!("its schema version is {other}, and this program reads {}", conformance::SCHEMA_VERSION)))
        }
    }
}

pub(in crate::cli) fn write_card(card: &Card, files: &CardFiles<'_>) -> Result<(), Exit> {
    let json = serde_json::to_string_pretty(card).map_err(|error| Exit::unable(error.to_string()))? + "\n";
    let is_taken = [files.json, files.markdown, files.html].into_iter().flatten().any(|path| path.as_os_str() == "-");
    if !is_taken {
        print!("{}", conformance::text(card));
    }
    write(files.json, &json)?;
    write(files.markdown, &conformance::markdown(card))?;
    write(files.html, &conformance::html(card))
}

/// Prints the differences and returns whether a promise is newly broken.
pub(in crate::cli) fn differences(card: &Card, before: &Card) -> bool {
    let changes = conformance::against(card, before);
    println!("\nagainst the card of {}: {}", before.proxy, if changes.is_empty() { "no difference" } else { "" });
    for change in &changes {
        let before = change.before.map_or("not on it", conformance::PromiseVerdict::word);
        println!("  {} {} ({}): {before} -> {}", change.number, change.id, change.mode, change.now.word());
    }
    changes.iter().any(conformance::VerdictChange::is_worse)
}
