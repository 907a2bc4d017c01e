use serde_json::Value;
use serde_saphyr::{Budget, MessageFormatter, UserMessageFormatter};

use super::problem::one_line;
use super::split;

/// The deepest nesting; the proxy's kinds need less than 12.
const DEPTH: usize = 64;

/// Enough for a cluster of 10,000 Services with three slices each.
pub(super) const MOST_DOCUMENTS: usize = 100_000;

#[derive(Debug)]
pub(super) struct TextDocument {
    /// Number in the file, from 1, without empty documents.
    pub document: usize,
    /// The line of a syntax error, else of the document's beginning, from 1.
    pub line: usize,
    pub value: Result<Value, String>,
}

/// `take` gets one document at a time, to bound memory. The file name decides between YAML and JSON. A document after
/// [`MOST_DOCUMENTS`] is an error.
pub(super) fn documents(file: &str, text: &str, take: &mut dyn FnMut(TextDocument)) {
    if file.ends_with(".json") {
        return json(text, take);
    }
    for (i, raw) in split::documents(text, MOST_DOCUMENTS + 1).into_iter().enumerate() {
        take(if i < MOST_DOCUMENTS { yaml(i + 1, raw) } else { one_too_many(raw.line) });
    }
}

fn one_too_many(line: usize) -> TextDocument {
    let value = Err(format!("is not read, nor what follows it: a file may have {MOST_DOCUMENTS} documents"));
    TextDocument { document: MOST_DOCUMENTS + 1, line, value }
}

fn yaml(document: usize, raw: split::RawDocument<'_>) -> TextDocument {
    let options = serde_saphyr::options! {
        budget: budget(raw.text.len()),
        emit_comments: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(raw.text, options) {
        Ok(value) => TextDocument { document, line: raw.line, value: Ok(value) },
        Err(error) => {
            let location = error.location().map_or(1, |at| at.line().max(1));
            let within = usize::try_from(location).unwrap_or(1);
            let message = one_line(&UserMessageFormatter.format_message(&error));
            TextDocument { document, line: raw.line + within - 1, value: Err(format!("malformed YAML: {message}")) }
        }
    }
}

/// Size limits follow the file's size. The default limits on aliases, which make a document larger than its text, stay.
fn budget(length: usize) -> Option<Budget> {
    let bound = length.max(1024).saturating_mul(2);
    serde_saphyr::budget! {
        max_events: bound,
        max_nodes: bound,
        max_depth: DEPTH,
        max_total_scalar_bytes: bound,
    }
}

fn json(text: &str, take: &mut dyn FnMut(TextDocument)) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut document = 0;
    let (mut line, mut counted) = (1, 0);
    loop {
        let start = values.byte_offset();
        let blank = text[start..].len() - text[start..].trim_start().len();
        line += newlines(&text[counted..start + blank]);
        counted = start + blank;
        if document == MOST_DOCUMENTS && !text[counted..].is_empty() {
            return take(one_too_many(line));
        }
        let Some(value) = values.next() else { break };
        let (at, value) = match value {
            Ok(value) => (line, Ok(value)),
            Err(error) => (error.line().max(1), Err(format!("malformed JSON: {}", one_line(&error.to_string())))),
        };
        document += 1;
        take(TextDocument { document, line: at, value });
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|b| *b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(file: &str, text: &str) -> Vec<TextDocument> {
        let mut found = Vec::new();
        super::documents(file, text, &mut |one| found.push(one));
        found
    }

    #[test]
    fn a_file_has_a_bounded_number_of_documents() {
        for (file, text) in
            [("a.json", "1 ".repeat(MOST_DOCUMENTS + 9)), ("a.yaml", "--- 1\n".repeat(MOST_DOCUMENTS + 9))]
        {
            let found = documents(file, &text);
            assert_eq!(found.len(), MOST_DOCUMENTS + 1);
            assert!(found[..MOST_DOCUMENTS].iter().all(|one| one.value.is_ok()));
            assert!(found[MOST_DOCUMENTS].value.as_ref().unwrap_err().contains("a file may have"), "{file}");
            assert_eq!(
                documents(file, &text[..text.len() / (MOST_DOCUMENTS + 9) * MOST_DOCUMENTS]).len(),
                MOST_DOCUMENTS
            );
        }
    }

    #[test]
    fn a_malformed_yaml_document_leaves_the_others() {
        let found = documents("a.yaml", "a: 1\n---\nb: [1,\nc: }\n---\nd: yes please\n");
        assert_eq!(found.len(), 3);
        assert!(found[0].value.is_ok() && found[2].value.is_ok());
        let message = found[1].value.as_ref().unwrap_err();
        assert!(message.starts_with("malformed YAML: "), "{message}");
        assert!((2..=4).contains(&found[1].line), "{:?}", found[1]);
        assert_eq!((found[2].document, found[2].line), (3, 5));
    }

    #[test]
    fn a_json_file_has_several_values() {
        let found = documents("a.json", "{\"a\":\n1}\n\n{\"b\":2} {\"c\":}");
        let lines: Vec<_> = found.iter().map(|t| (t.line, t.value.is_ok())).collect();
        assert_eq!(lines, [(1, true), (4, true), (4, false)]);
    }

    #[test]
    fn an_alias_bomb_is_an_error() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..12 {
            let alias = format!("*a{},", i - 1).repeat(10);
            bomb.push_str(&format!("a{i}: &a{i} [{alias}]\n"));
        }
        let found = documents("a.yaml", &bomb);
        assert!(found[0].value.is_err());
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let deep = "[".repeat(100_000);
        assert!(documents("a.yaml", &deep)[0].value.is_err());
        assert!(documents("a.json", &deep)[0].value.is_err());
        let deep: String = (0..300).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(documents("a.yaml", &deep)[0].value.is_err());
    }

    #[test]
    fn a_large_cluster_stays_within_the_budget() {
        // Each node of a document has at least one byte of text.
        let length = 40 << 20;
        let budget = budget(length).expect("limits");
        assert!(budget.max_nodes > length && budget.max_events > length);
        assert!(budget.max_depth < 100, "the stack is not as large as the file");
    }
}
