/// Returns text that a terminal shows as it is: control characters other than line feed and tab, and characters that
/// change the writing direction, become `\u001b`. Rules, names and comments of a node are written by anyone who may create them. In JSON,
/// where they occur in strings only, the text keeps its meaning.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' | '\t' => out.push(char),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escape(char, &mut out),
            char if char.is_control() => escape(char, &mut out),
            char => out.push(char),
        }
    }
    out
}

/// All escaped characters have at most four hexadecimal digits.
fn escape(char: char, out: &mut String) {
    out.push_str(&format!("\\u{:04x}", u32::from(char)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_controls_a_terminal_is_left() {
        let text = "a\u{1b}[31mRED\u{7}\0\r\u{7f}\u{9b}0m\u{202e}b\n\tü→";
        assert_eq!(printable(text), "a\\u001b[31mRED\\u0007\\u0000\\u000d\\u007f\\u009b0m\\u202eb\n\tü→");
    }
}
