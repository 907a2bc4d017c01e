use std::fmt;

/// The longest quoted value, in characters.
const QUOTED: usize = 64;
/// The parser's longest message, in characters.
const MESSAGE: usize = 240;

/// A fault in a document; `Display` is always one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    pub file: String,
    /// Number in the file, from 1, without empty documents; 0 for the whole file.
    pub document: usize,
    /// The line of a syntax error, else of the document's beginning, from 1.
    pub line: Option<usize>,
    /// Kind, namespace and name, as far as known.
    pub object: Option<String>,
    /// The field, such as `spec.ports[0].port`; empty if no field is at fault.
    pub field: String,
    pub message: String,
    /// Whether an earlier valid version stays in force.
    pub kept: bool,
}

impl DocumentError {
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

pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Escapes control characters and truncates.
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
    fn a_problem_names_file_document_object_and_field() {
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
    fn problems_are_short_single_lines() {
        let hostile = format!("a\nb\r\u{1b}[31m{}", "x".repeat(10_000));
        let problem = DocumentError::file(&hostile, hostile.clone()).to_string();
        assert!(!problem.chars().any(char::is_control));
        assert!(problem.chars().count() < 600, "{problem}");
        assert!(quote(&hostile).chars().count() < 100);
    }
}
