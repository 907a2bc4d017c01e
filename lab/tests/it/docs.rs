//! The documents are true: links have targets, the README's commands print the shown output and picture.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::nightly::{NIGHTLY, is_listed};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn documents() -> BTreeMap<PathBuf, String> {
    let (root, mut documents, mut folders) = (root(), BTreeMap::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && name != "target" && name != ".git" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.insert(path.strip_prefix(&root).unwrap().to_owned(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    documents
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Returns the anchors of a document's headings, by GitHub's and mdBook's rules.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut heading) = (BTreeSet::new(), None::<String>);
    for event in parse(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(HeadingLevel::H1 | HeadingLevel::H2 | HeadingLevel::H3 | HeadingLevel::H4)) => {
                let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let text = heading.take().unwrap_or_default().to_lowercase();
                anchors.insert(text.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect());
            }
            _ => {}
        }
    }
    anchors
}

fn links(text: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
        _ => None,
    };
    parse(text).filter_map(target).filter(|link| !link.contains("://") && !link.starts_with("mailto:")).collect()
}

#[test]
fn every_link_has_a_target() {
    let (root, documents) = (root(), documents());
    let mut dead = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = root.join(path).parent().unwrap().to_owned();
            let to = if file.is_empty() { root.join(path) } else { folder.join(file) };
            let Ok(to) = to.canonicalize() else {
                dead.push(format!("{}: {link}", path.display()));
                continue;
            };
            let inside = to.strip_prefix(&root).unwrap();
            if !anchor.is_empty() && !documents.get(inside).is_some_and(|text| anchors(text).contains(anchor)) {
                dead.push(format!("{}: {link} (no such heading)", path.display()));
            }
            // The site has only docs/, so its links must stay inside.
            if path.starts_with("docs") && !inside.starts_with("docs") {
                dead.push(format!("{}: {link} leads out of docs/", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn the_index_and_the_site_have_every_page() {
    let documents = documents();
    let all: BTreeSet<String> = documents
        .keys()
        .filter_map(|path| Some(path.strip_prefix("docs").ok()?.to_str()?.to_owned()))
        .filter(|name| name != "README.md" && name != "SUMMARY.md")
        .collect();
    let listed = |index: &str| links(&documents[Path::new(index)]).into_iter().collect::<BTreeSet<String>>();
    // A folder's files are listed by the folder's own page.
    let top: BTreeSet<String> = all.iter().filter(|name| !name.contains('/')).cloned().collect();
    assert_eq!(listed("docs/README.md"), top);
    let site: BTreeSet<String> = all.iter().cloned().chain(["README.md".to_owned()]).collect();
    assert_eq!(listed("docs/SUMMARY.md"), site);
}

/// Returns the README's code blocks: language and text.
fn blocks() -> Vec<(String, String)> {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (mut blocks, mut open) = (Vec::new(), false);
    for event in parse(&readme) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                blocks.push((language, String::new()));
                open = true;
            }
            Event::Text(text) if open => blocks.last_mut().unwrap().1.push_str(&text),
            Event::End(TagEnd::CodeBlock) => open = false,
            _ => {}
        }
    }
    blocks
}

fn svclab(folder: &Path, words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_svclab")).args(words).current_dir(folder).output().unwrap()
}

fn words(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line.split(" #").next().unwrap()).unwrap();
    (words.first()? == "svclab").then(|| words[1..].to_vec())
}

/// Removes times from a line: they differ between machines.
fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_time = |i: usize| {
        words[i].parse::<f64>().is_ok() && words.get(i + 1).is_some_and(|unit| ["ms", "s", "ms:", "s:"].contains(unit))
    };
    let mut out = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if is_time(i) {
            out.push("TIME");
        } else if i > 0 && is_time(i - 1) {
            out.push(if word.ends_with(':') { "UNIT:" } else { "UNIT" });
        } else {
            out.push(word);
        }
    }
    out.join(" ")
}

/// Whether `seen` matches `shown`, in which `…` stands for any text.
fn is_like(shown: &str, seen: &str) -> bool {
    let (shown, seen) = (without_times(shown), without_times(seen));
    let mut parts = shown.split('…');
    let Some(mut rest) = seen.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty() || shown.ends_with('…')
}

#[test]
fn the_readmes_commands_print_the_shown_output() {
    let folder = tempfile::tempdir().unwrap();
    let mut tried = 0;
    for (language, text) in blocks() {
        if language == "yaml" {
            let name = text.lines().find_map(|line| line.strip_prefix("name: ")).unwrap();
            std::fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
        } else if language == "console" {
            let (command, shown) = text.split_once('\n').unwrap();
            let output = svclab(folder.path(), &words(command.strip_prefix("$ ").unwrap()).unwrap());
            let seen = String::from_utf8(output.stdout).unwrap();
            if output.status.code() == Some(3) && std::env::var_os("CI").is_none() {
                return eprintln!("NOT RUN: {}", String::from_utf8_lossy(&output.stderr));
            }
            assert!(output.status.success(), "{command}\n{seen}\n{}", String::from_utf8_lossy(&output.stderr));
            let all_like = seen.lines().count() == shown.lines().count()
                && shown.lines().zip(seen.lines()).all(|(shown, seen)| is_like(shown, seen));
            assert!(all_like, "{command}\nthe README has\n{shown}\nand there is\n{seen}");
            tried += 1;
        }
    }
    assert!(tried >= 2, "the README shows what commands print");
}

#[test]
fn the_readmes_other_commands_exist() {
    let folder = tempfile::tempdir().unwrap();
    let justfile = std::fs::read_to_string(root().join("Justfile")).unwrap();
    let mut tried = 0;
    for line in blocks().iter().filter(|(language, _)| language.is_empty()).flat_map(|(_, text)| text.lines()) {
        if let Some(mut words) = words(line) {
            // `--help` does nothing, and an unknown flag before it is still an error.
            words.push("--help".to_owned());
            let output = svclab(folder.path(), &words);
            assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        } else {
            let recipe = line.strip_prefix("./just ").and_then(|rest| rest.split(' ').next()).unwrap();
            let head = |text: &str| text.strip_prefix(recipe).is_some_and(|rest| rest.starts_with([' ', ':']));
            assert!(justfile.lines().any(head), "{line}");
        }
        tried += 1;
    }
    assert!(tried >= 4);
}

#[test]
fn the_readmes_picture_is_what_explain_draws() {
    let folder = tempfile::tempdir().unwrap();
    let command = "explain --scenario hairpin --from pod/web --to service/web --svg hairpin.svg";
    let output = svclab(folder.path(), &shlex::split(command).unwrap());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = std::fs::read_to_string(folder.path().join("hairpin.svg")).unwrap();
    let path = root().join("docs/images/hairpin.svg");
    if std::env::var_os("UPDATE_IMAGES").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == drawn, "docs/images/hairpin.svg is of another version: UPDATE_IMAGES=1 writes it anew");
}

/// Returns the tests with `#[ignore]`, as `module::function`, with the reason.
fn ignored_tests() -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), ["benches", "lab", "proxy"].map(|folder| root().join(folder)).to_vec());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let (text, module) = (std::fs::read_to_string(&path).unwrap(), path.file_stem().unwrap().to_string_lossy());
            for (_, behind) in text.match_indices("\n#[ignore").map(|(at, start)| (at, &text[at + start.len()..])) {
                let (reason, behind) = behind.split_once(']').unwrap();
                let function = behind.split_once("fn ").unwrap().1.split('(').next().unwrap();
                found.push((format!("{module}::{function}"), reason.to_owned()));
            }
        }
    }
    found
}

#[test]
fn the_cards_of_a_release_are_in_the_workflow_and_in_the_docs() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let workflow: serde_json::Value = serde_saphyr::from_str(&read(".github/workflows/release.yml")).unwrap();
    let page = read("docs/conformance.md");
    let jobs = &workflow["jobs"];
    let cards = jobs["other-cards"]["strategy"]["matrix"]["include"].as_array().unwrap();
    let mut minors = Vec::new();
    for card in cards {
        let [proxy, version, modes] = ["proxy", "version", "modes"].map(|key| card[key].as_str().unwrap());
        let description = read(&format!("lab/proxies/{proxy}.yaml"));
        assert!(modes.split(',').all(|mode| description.contains(mode)), "{card}");
        assert!(root().join(format!(".ci/{proxy}-releases")).is_file(), "{card}");
        if proxy == "kube-proxy" {
            minors.push(version.to_owned());
        } else {
            assert!(page.contains(&format!("card-{proxy}-{version}.md")), "{card}");
        }
    }
    assert_eq!(minors, (29..=36).map(|minor| format!("1.{minor}")).collect::<Vec<_>>());
    for minor in [&minors[0], &minors[minors.len() - 1]] {
        assert!(page.contains(&format!("card-kube-proxy-{minor}.md")), "{minor}");
    }
    let waits = jobs["publish"]["needs"].as_array().unwrap();
    assert!(["build", "cards", "other-cards"].iter().all(|job| waits.contains(&(*job).into())), "{waits:?}");
}

#[test]
fn the_tests_of_the_night_are_in_the_workflow_and_in_the_docs() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (workflow, page) = (read(".github/workflows/nightly.yml"), read("docs/properties.md"));
    for (part, reason) in NIGHTLY {
        assert!(workflow.contains(part), "the workflow nightly does not run {part}");
        assert!(
            page.contains(&format!("| `{part}` | {reason} |")),
            "docs/properties.md does not list {part}: {reason}"
        );
    }
    let ignored = ignored_tests();
    assert!(!ignored.is_empty());
    for (test, reason) in ignored {
        assert!(reason.starts_with(" = \"nightly: ") && is_listed(&test), "{test} is ignored{reason} and not listed");
    }
}
