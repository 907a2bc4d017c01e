//! What is wrong with a manifest, as a value: where it stands, which field, and one sentence for a person.

use std::fmt;

/// The longest piece of an object's text that a message repeats, in characters.
const QUOTED: usize = 64;
/// The longest message taken over from a parser, in characters.
const MESSAGE: usize = 240;

/// One fault of one file, document or object. `Display` is one line, whatever the manifest contains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The file, relative to the manifest directory.
    pub file: String,
    /// Which document of the file, from 1 (documents without content are not counted); 0 for the whole file.
    pub document: usize,
    /// Line in the file, from 1: of the fault where the text itself is malformed, else of the document's beginning.
    pub line: Option<usize>,
    /// Kind, namespace and name, as far as they could be read.
    pub object: Option<String>,
    /// Path of the field, such as `spec.ports[0].port`; empty when the fault is no field's.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// An earlier version of the object (or of the file) was valid and stays in force.
    pub kept: bool,
}

impl DocumentError {
    /// A fault of a whole file.
    pub(super) fn file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            document: 0,
            line: None,
            object: None,
            field: String::new(),
            message: message.into(),
            kept: false,
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.file))?;
        if self.document > 0 {
            write!(f, ": document {}", self.document)?;
            match (&self.object, self.line) {
                (Some(object), _) => write!(f, " ({})", one_line(object))?,
                (None, Some(line)) => write!(f, ", line {line}")?,
                (None, None) => {}
            }
        }
        if !self.field.is_empty() {
            write!(f, ": {}", one_line(&self.field))?;
        }
        write!(f, ": {}", one_line(&self.message))?;
        if self.kept {
            f.write_str("; kept as it was")?;
        }
        Ok(())
    }
}

/// An object's text in quotation marks: escaped, and shortened where it is long.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Text on one line: control characters escaped, and shortened where it is long.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(MESSAGE));
    for (count, c) in text.trim().chars().enumerate() {
        if count == MESSAGE {
            line.push('…');
            break;
        }
        if c.is_control() || c == '\u{2028}' || c == '\u{2029}' {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_sentence_with_file_document_object_and_field() {
        let mut problem = DocumentError {
            file: "web.yaml".to_owned(),
            document: 2,
            line: Some(9),
            object: Some("Service default/web".to_owned()),
            field: "spec.ports[0].port".to_owned(),
            message: "70000 is not a port (1-65535)".to_owned(),
            kept: false,
        };
        assert_eq!(
            problem.to_string(),
            "web.yaml: document 2 (Service default/web): spec.ports[0].port: 70000 is not a port (1-65535)"
        );
        problem.kept = true;
        assert!(problem.to_string().ends_with("(1-65535); kept as it was"));
        problem.object = None;
        problem.field.clear();
        assert!(problem.to_string().starts_with("web.yaml: document 2, line 9: "));
    }

    #[test]
    fn no_text_breaks_the_line_or_floods_it() {
        let hostile = format!("a\nb\r\u{1b}[31m{}", "x".repeat(10_000));
        let problem = DocumentError::file(&hostile, hostile.clone()).to_string();
        assert!(!problem.chars().any(char::is_control));
        assert!(problem.chars().count() < 600, "{problem}");
        assert!(quote(&hostile).chars().count() < 100);
    }
}
