use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::exit::{Exit, USAGE};
use crate::find::no_scenario;
use crate::scenario::{LoadError, Scenario, load};
use crate::shipped;

const WIDTH: usize = 80;
const NARROWEST: usize = 24;

#[derive(Args)]
pub(super) struct ListArgs {
    /// The folder of the scenarios [default: scenarios/ in this folder, and those that the program carries].
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(super) fn list(args: &ListArgs) -> Result<u8, Exit> {
    let mut status = 0;
    let mut groups: BTreeMap<PathBuf, Vec<(String, Scenario)>> = BTreeMap::new();
    for (name, loaded) in scenarios(args)? {
        let group = name.parent().unwrap_or(Path::new("")).to_owned();
        match loaded {
            Ok(scenario) => groups.entry(group).or_default().push((name.display().to_string(), scenario)),
            Err(error) => {
                eprintln!("{error}");
                status = USAGE;
            }
        }
    }
    let text = if std::io::stdout().is_terminal() {
        let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0));
        short(&groups, width)
    } else {
        lines(&groups)
    };
    print!("{text}");
    Ok(status)
}

/// Loads the scenarios of the folder, and the embedded ones if no folder was named.
fn scenarios(args: &ListArgs) -> Result<BTreeMap<PathBuf, Result<Scenario, LoadError>>, Exit> {
    let folder = args.directory.as_deref().unwrap_or(Path::new(shipped::SCENARIOS));
    let mut files = Vec::new();
    match collect(folder, &mut files) {
        Err(error) if args.directory.is_some() || folder.exists() => {
            return Err(Exit::usage(format!("cannot read {}: {error}", folder.display())));
        }
        _ => {}
    }
    if args.directory.is_some() && files.is_empty() {
        return Err(no_scenario(folder));
    }
    if args.directory.is_none() {
        files.extend(shipped::scenarios().map(Path::to_owned));
    }
    files.sort();
    files.dedup();
    let name = |file: &Path| file.strip_prefix(folder).unwrap_or(file).with_extension("");
    Ok(files.iter().map(|file| (name(file), load(file, 0))).collect())
}

fn lines(groups: &BTreeMap<PathBuf, Vec<(String, Scenario)>>) -> String {
    let mut text = String::new();
    for (name, scenario) in groups.values().flatten() {
        let modes: Vec<String> = scenario.modes.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "{name:<28} {:<9} {}", modes.join(","), scenario.about);
    }
    text
}

/// Returns a heading for each folder, and the first sentence about each scenario.
fn short(groups: &BTreeMap<PathBuf, Vec<(String, Scenario)>>, width: usize) -> String {
    let longest = groups.values().flatten().map(|(name, _)| name.len()).max().unwrap_or_default();
    let indent = longest + 4;
    let mut text = String::new();
    for (group, scenarios) in groups {
        if !group.as_os_str().is_empty() {
            let _ = writeln!(text, "\n{}:", group.display());
        }
        for (name, scenario) in scenarios {
            let said = wrapped(first_sentence(&scenario.about), width.saturating_sub(indent + 1).max(NARROWEST));
            for (number, line) in said.iter().enumerate() {
                let _ = writeln!(text, "  {:<longest$}  {line}", if number == 0 { name } else { "" });
            }
        }
    }
    let hint = wrapped("svclab check NAME tells what a scenario does, svclab run NAME runs it.", width);
    let _ = writeln!(text, "\n{}", hint.join("\n"));
    text
}

fn first_sentence(text: &str) -> &str {
    let end = [". ", "; ", ": "].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_terminal_shows_short_lines_by_folder() {
        let mut groups = BTreeMap::new();
        for name in ["hairpin", "microvm/sctp"] {
            let file = Path::new("../scenarios").join(name).with_extension("yaml");
            let group = Path::new(name).parent().unwrap().to_owned();
            groups.entry(group).or_insert_with(Vec::new).push((name.to_owned(), load(&file, 0).unwrap()));
        }
        let text = short(&groups, 60);
        assert!(text.lines().all(|line| line.chars().count() < 61), "{text}");
        assert!(text.starts_with("  hairpin       A pod that calls its own Service"), "{text}");
        assert!(text.contains("\n\nmicrovm:\n  microvm/sctp  "), "{text}");
        assert_eq!(lines(&groups).lines().count(), 2);
    }

    #[test]
    fn words_are_wrapped_and_sentences_cut() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
        assert_eq!(first_sentence("One thing; and more. Much more."), "One thing");
        assert_eq!(first_sentence("Version 1.2 works."), "Version 1.2 works");
    }
}
