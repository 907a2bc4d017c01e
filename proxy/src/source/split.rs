//! Splits a YAML stream, so that a malformed document does not hide later ones.
//!
//! A line `---` or `...`, alone or followed by a blank, is always a document marker: YAML forbids it in every scalar
//! (YAML 1.2.2, 9.1.2, `c-forbidden`).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawDocument<'a> {
    /// The line at which `text` begins in the file, from 1.
    pub line: usize,
    pub text: &'a str,
}

pub(super) fn documents(text: &str, most: usize) -> Vec<RawDocument<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let (mut has_content, mut has_marker) = (false, false);
    let mut position = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if found.len() >= most {
            return found;
        }
        let end = position + line.len();
        let begins = marker(line, "---").is_some();
        let ends = marker(line, "...").is_some();
        // Directives (`%YAML 1.2`) and comments before `---` belong to the document that follows.
        if (begins && (has_content || has_marker)) || ends {
            if has_content {
                found.push(RawDocument { line: start_line, text: &text[start..position] });
            }
            (start, start_line) = if ends { (end, index + 2) } else { (position, index + 1) };
            (has_content, has_marker) = (false, false);
        }
        if begins {
            has_marker = true;
        }
        if !ends {
            let rest = marker(line, "---").unwrap_or(line);
            has_content |= is_content(rest, has_marker);
        }
        position = end;
    }
    if has_content && found.len() < most {
        found.push(RawDocument { line: start_line, text: &text[start..] });
    }
    found
}

fn marker<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(mark)?;
    (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])).then_some(rest)
}

fn is_content(line: &str, after_marker: bool) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#') || (line.starts_with('%') && !after_marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(usize, &str)> {
        documents(text, usize::MAX).into_iter().map(|d| (d.line, d.text)).collect()
    }

    #[test]
    fn documents_are_cut_at_markers() {
        for (text, expected) in [
            ("", vec![]),
            ("# only a comment\n---\n\n---\n", vec![]),
            ("a: 1", vec![(1, "a: 1")]),
            ("---\na: 1\n---\nb: 2\n", vec![(1, "---\na: 1\n"), (3, "---\nb: 2\n")]),
            ("a: 1\r\n---\r\nb: 2\r\n", vec![(1, "a: 1\r\n"), (2, "---\r\nb: 2\r\n")]),
            ("\u{feff}a: 1\n--- # two\nb: 2", vec![(1, "a: 1\n"), (2, "--- # two\nb: 2")]),
            ("--- {a: 1}\n--- {b: 2}\n", vec![(1, "--- {a: 1}\n"), (2, "--- {b: 2}\n")]),
            ("%YAML 1.2\n---\na: 1\n...\n# rest\nb: 2\n", vec![(1, "%YAML 1.2\n---\na: 1\n"), (5, "# rest\nb: 2\n")]),
            ("a: |\n  ---\n  x\n", vec![(1, "a: |\n  ---\n  x\n")]),
            ("a: ---b\n---c: 1\n", vec![(1, "a: ---b\n---c: 1\n")]),
        ] {
            assert_eq!(split(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_open_quote_or_bracket_ends_with_its_document() {
        let text = "a: \"open\n---\nb: [1,\n---\nc: 3\n";
        assert_eq!(split(text).len(), 3);
    }
}
