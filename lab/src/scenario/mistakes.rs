//! Mistakes of form in a scenario file. The parser stops at the first mistake, so this module repairs the text and
//! parses again: it corrects misspelt keys that resemble a known key, and removes steps and top-level keys with other
//! mistakes.

use std::path::Path;

use serde_saphyr::{Error, Location};

use super::error::FileError;
use super::file::{Effect, STEP_KEYS, ScenarioFile};
use super::plain_message;
use super::values::position;
use crate::promises::Promise;

const MOST: usize = 50;
/// The start of the placeholder's name for a removed step; its line number follows.
const LEFT_OUT: &str = "left out: step at line ";
pub(super) const NO_STEPS: &str =
    "`steps` is empty: expected at least one step, such as `- {name: ..., probe: {from: ..., to: ...}, expect: {...}}`";
const NEEDED: [&str; 3] = ["name", "about", "steps"];

pub(super) struct ParsedFile {
    /// `None`: the text cannot be repaired.
    pub(super) file: Option<ScenarioFile>,
    pub(super) errors: Vec<FileError>,
    /// Lines of removed steps, and whether later steps may depend on each.
    pub(super) left_out: Vec<(usize, bool)>,
    pub(super) is_whole: bool,
}

pub(super) fn read(path: &Path, text: &str) -> ParsedFile {
    let mut parsed = ParsedFile { file: None, errors: Vec::new(), left_out: Vec::new(), is_whole: true };
    let mut draft = Draft { lines: text.lines().map(str::to_owned).collect(), shifts: Vec::new() };
    loop {
        let error = match serde_saphyr::from_str::<ScenarioFile>(&(draft.lines.join("\n") + "\n")) {
            Ok(mut file) => {
                file.steps.value.retain(|step| !step.value.common.name.starts_with(LEFT_OUT));
                parsed.file = Some(file);
                return parsed;
            }
            Err(error) => error,
        };
        let (line, column) = position(error.location().unwrap_or(Location::UNKNOWN));
        let column_as_written = draft.as_written(line, column);
        // A duplicate key may come from the repair: then it is not the author's mistake.
        let is_own = matches!(error.without_snippet(), Error::DuplicateMappingKey { .. })
            && draft.shifts.iter().any(|(at, from, _)| (*at, *from) == (line, column));
        if !is_own {
            let is_steps = draft.lines.get(line - 1).is_some_and(|text| text.trim_end() == "steps:");
            let message = if is_steps { NO_STEPS.to_owned() } else { message(&error) };
            let file = path.display().to_string();
            parsed.errors.push(FileError { file, line, column: column_as_written, message });
        }
        if parsed.errors.len() == MOST || !draft.repair(&error, line, column, &mut parsed) {
            return parsed;
        }
    }
}

fn message(error: &Error) -> String {
    let (what, name, expected) = match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => ("unknown field", field, expected),
        Error::SerdeUnknownVariant { variant, expected, .. } => ("unknown variant", variant, expected),
        Error::SerdeMissingField { field: "steps", .. } => {
            return "`steps` is missing: expected a list of what happens, one `- name: ...` for each".to_owned();
        }
        Error::Unexpected { expected: "sequence start", .. } => return "expected a list".to_owned(),
        Error::Unexpected { expected: "mapping start", .. } => return "expected a map of keys".to_owned(),
        _ => return plain_message(error),
    };
    match alike(name, expected) {
        Some(meant) => format!("{what} `{name}`: did you mean `{meant}`?"),
        None => plain_message(error),
    }
}

pub(super) fn no_promise(name: &str) -> String {
    let ids: Vec<&str> = Promise::all().map(|promise| promise.id).collect();
    let hint = alike(name, &ids).map(|near| format!(": did you mean `{near}`?")).unwrap_or_default();
    format!("`{name}` is no promise that `svclab conformance --promises` lists{hint}")
}

/// Returns the element of `expected` nearest to `name`, within a third of its letters.
pub(crate) fn alike<'a>(name: &str, expected: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |other: &&str| strsim::damerau_levenshtein(&name, &other.to_lowercase());
    expected
        .iter()
        .copied()
        .min_by_key(distance)
        .filter(|nearest| distance(nearest) <= (name.chars().count() / 3).max(1))
}

/// Whether the error leaves the file's structure intact.
fn is_local(error: &Error) -> bool {
    matches!(
        error.without_snippet(),
        Error::Message { .. }
            | Error::Unexpected { .. }
            | Error::InvalidScalar { .. }
            | Error::InvalidBooleanStrict { .. }
            | Error::NullIntoString { .. }
            | Error::SerdeInvalidType { .. }
            | Error::SerdeInvalidValue { .. }
            | Error::SerdeUnknownVariant { .. }
            | Error::SerdeUnknownField { .. }
            | Error::SerdeMissingField { .. }
            | Error::DuplicateMappingKey { .. }
    )
}

struct Draft {
    lines: Vec<String>,
    /// Line and column of each repair, and its shift of the rest of the line in columns.
    shifts: Vec<(usize, usize, isize)>,
}

/// A step, or a top-level key with its value.
struct TextSection {
    lines: std::ops::Range<usize>,
    /// The dash's indentation, for a step.
    step: Option<usize>,
}

impl Draft {
    fn as_written(&self, line: usize, column: usize) -> usize {
        let before = self.shifts.iter().filter(|(at, from, _)| *at == line && *from < column);
        column.saturating_add_signed(-before.map(|(_, _, by)| by).sum::<isize>())
    }

    /// Repairs a mistake; returns whether that succeeded.
    fn repair(&mut self, error: &Error, line: usize, column: usize, parsed: &mut ParsedFile) -> bool {
        if !is_local(error) {
            return false;
        }
        if let Error::SerdeUnknownField { field, expected, .. } = error.without_snippet()
            && let Some(meant) = alike(field, expected)
            && self.rename(line, column, field, meant)
        {
            return true;
        }
        let Some(part) = self.parts().into_iter().find(|part| part.lines.contains(&(line - 1))) else { return false };
        let first = self.lines.get(part.lines.start).cloned().unwrap_or_default();
        if let Some(indent) = part.step {
            if first.contains(LEFT_OUT) {
                return false;
            }
            let number = part.lines.start + 1;
            parsed.left_out.push((number, changes(&self.lines[part.lines.clone()])));
            self.lines[part.lines.clone()].fill(String::new());
            self.lines[part.lines.start] = format!("{:indent$}- {{name: \"{LEFT_OUT}{number}\", idle: 1s}}", "");
            return true;
        }
        let key = first.split(':').next().unwrap_or_default();
        if NEEDED.contains(&key) || !first.contains(':') || first.starts_with('-') {
            return false;
        }
        parsed.is_whole = false;
        self.lines[part.lines].fill(String::new());
        true
    }

    fn rename(&mut self, line: usize, column: usize, from: &str, to: &str) -> bool {
        let Some(text) = self.lines.get_mut(line - 1) else { return false };
        let Some((at, _)) = text.char_indices().nth(column - 1) else { return false };
        if !text[at..].starts_with(from) {
            return false;
        }
        text.replace_range(at..at + from.len(), to);
        let by = to.chars().count().cast_signed() - from.chars().count().cast_signed();
        self.shifts.push((line, column, by));
        true
    }

    /// Splits the text at top-level keys and items of `steps`.
    fn parts(&self) -> Vec<TextSection> {
        let mut parts: Vec<TextSection> = Vec::new();
        let (mut in_steps, mut dash) = (false, None);
        for (number, line) in self.lines.iter().enumerate() {
            let text = line.trim_start();
            let indent = line.len() - text.len();
            let begin = if text.is_empty() || text.starts_with('#') {
                None
            } else if in_steps && text.starts_with('-') && dash.is_none_or(|dash| dash == indent) {
                dash = Some(indent);
                Some(TextSection { lines: number..number + 1, step: dash })
            } else if indent == 0 {
                in_steps = line.starts_with("steps:");
                Some(TextSection { lines: number..number + 1, step: None })
            } else {
                None
            };
            match (begin, parts.last_mut()) {
                (Some(part), _) => parts.push(part),
                (None, Some(last)) => last.lines.end = number + 1,
                (None, None) => {}
            }
        }
        parts
    }
}

fn changes(lines: &[String]) -> bool {
    let changing = STEP_KEYS.iter().filter(|row| !matches!(row.effect, Effect::Reads | Effect::ReadsOnce));
    let has = |key: &str| lines.iter().any(|line| line.contains(&format!("{key}:")));
    changing.into_iter().any(|row| has(row.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let errors = read(Path::new("s.yaml"), text).errors;
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let text = "\
name: s
abot: x
cluster: {nodes: 2, famly: dual, clients: 7}
steps:
- name: one
  prob: {from: pod/a, too: service/b}
- name: two
  probe: {from: a, to: service/b}
- name: three
  eventually: soon
- name: four
  terminate: a
";
        assert_eq!(
            messages(text),
            [
                "s.yaml:2:1: unknown field `abot`: did you mean `about`?",
                "s.yaml:3:21: unknown field `famly`: did you mean `family`?",
                "s.yaml:3:43: expected a list",
                "s.yaml:6:3: unknown field `prob`: did you mean `probe`?",
                "s.yaml:6:23: unknown field `too`: did you mean `to`?",
                "s.yaml:8:17: \"a\": expected pod/NAME, pod/NAMESPACE/NAME, node/NAME, client/NAME or load-balancer",
                "s.yaml:10:15: \"soon\": expected a time such as 300ms, 10s, 3m or 3h",
            ]
        );
        let parsed = read(Path::new("s.yaml"), text);
        assert_eq!(parsed.left_out, [(7, false), (9, false)]);
        assert_eq!(parsed.file.map(|file| file.steps.value.len()), Some(2));
        assert!(!parsed.is_whole);
    }

    #[test]
    fn text_that_is_not_yaml_is_one_error() {
        assert_eq!(messages("name: s\nabout: [\nsteps:\n- name: a\n").len(), 1);
        assert_eq!(messages("- a\n").len(), 1);
    }

    #[test]
    fn an_unknown_name_without_a_similar_one_lists_all() {
        let text = "name: s\nabout: x\nsteps:\n- {name: a, zzz: 1}\n";
        assert!(
            messages(text)[0].contains("unknown field `zzz`, expected one of name, promise, modes, apply"),
            "{:?}",
            messages(text)
        );
    }

    #[test]
    fn an_unknown_promise_names_a_similar_one() {
        let of = |name: &str| no_promise(name);
        assert!(of("hairpim").ends_with("lists: did you mean `hairpin`?"), "{}", of("hairpim"));
        assert!(of("zzzzzz").starts_with("`zzzzzz` is no promise") && of("zzzzzz").ends_with("lists"));
    }
}
