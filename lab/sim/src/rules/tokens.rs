use std::borrow::Cow;

use super::Test;
use super::error::{ParseResult, Problem};

pub(crate) struct LineWord<'a> {
    /// Without quotes.
    text: Cow<'a, str>,
    /// With quotes.
    raw: &'a str,
}

/// Splits as `iptables-restore` does: blanks, quotes `"`, escapes `\`.
pub(crate) fn split(line: &str) -> ParseResult<Vec<LineWord<'_>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let end = rest.find([' ', '\t', '"']).unwrap_or(rest.len());
        if !rest[end..].starts_with('"') {
            words.push(LineWord { text: Cow::Borrowed(&rest[..end]), raw: &rest[..end] });
            rest = rest[end..].trim_start();
            continue;
        }
        let (word, tail) = quoted(rest)?;
        words.push(LineWord { text: Cow::Owned(word), raw: &rest[..rest.len() - tail.len()] });
        rest = tail.trim_start();
    }
    Ok(words)
}

fn quoted(text: &str) -> ParseResult<(String, &str)> {
    let (mut word, mut open, mut escaped) = (String::new(), false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => {
                word.push(letter);
                escaped = false;
            }
            '\\' if open => escaped = true,
            '"' => open = !open,
            ' ' | '\t' if !open => return Ok((word, &text[at..])),
            _ => word.push(letter),
        }
    }
    if open { Err(Problem::Line("a quotation is not closed")) } else { Ok((word, "")) }
}

/// Quotes words with characters besides letters, digits, `_`, `-` (`xtables_save_string`).
pub(crate) fn quote(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in word.chars() {
        if matches!(letter, '"' | '\\' | '\'') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('"');
    quoted
}

pub(crate) fn bare(word: &str) -> String {
    let odd = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\\' | '\'');
    if word.is_empty() || word.contains(odd) { quote(word) } else { word.to_owned() }
}

pub(crate) struct OptionReader<'a> {
    words: &'a [LineWord<'a>],
    at: usize,
    not: bool,
    option: &'a str,
}

impl<'a> OptionReader<'a> {
    pub(crate) fn new(words: &'a [LineWord<'a>]) -> OptionReader<'a> {
        OptionReader { words, at: 0, not: false, option: "" }
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| &*word.text)
    }

    pub(crate) fn place(&self) -> usize {
        self.at
    }

    pub(crate) fn back_to(&mut self, place: usize) {
        (self.at, self.not) = (place, false);
    }

    pub(crate) fn up_to_next_part(&mut self) -> String {
        let head = |word: &str| matches!(word, "-s" | "-d" | "-i" | "-o" | "-p" | "-f");
        let part = |word: &str| matches!(word, "-m" | "--match" | "-j" | "--jump" | "-g" | "--goto");
        let mut text = Vec::new();
        while let Some(word) = self.words.get(self.at) {
            let next = self.words.get(self.at + 1).map_or("", |word| word.raw);
            if part(word.raw) || head(word.raw) || (word.raw == "!" && head(next)) {
                break;
            }
            text.push(word.raw);
            self.at += 1;
        }
        text.join(" ")
    }

    /// Takes a known option and a preceding `!`.
    pub(crate) fn option(&mut self, known: impl Fn(&str) -> bool) -> Option<&'a str> {
        let not = self.peek() == Some("!");
        let at = self.at + usize::from(not);
        let option = self.words.get(at).map(|word| &*word.text).filter(|word| known(word))?;
        (self.at, self.not, self.option) = (at + 1, not, option);
        Some(option)
    }

    pub(crate) fn require(&mut self, of: &str, option: &'static str) -> ParseResult<()> {
        let missing = || Problem::Missing { of: of.to_owned(), what: option };
        self.option(|word| word == option).map(|_| ()).ok_or_else(missing)
    }

    /// Takes flags, which `!` cannot invert.
    pub(crate) fn flags(&mut self, flags: &mut [(&str, &mut bool)]) -> ParseResult<()> {
        while let Some(option) = self.option(|word| flags.iter().any(|(name, _)| *name == word)) {
            self.plain()?;
            flags.iter_mut().filter(|(name, _)| *name == option).for_each(|(_, flag)| **flag = true);
        }
        Ok(())
    }

    /// Takes a value; old iptables prints `!` before values.
    pub(crate) fn value(&mut self) -> ParseResult<&'a str> {
        if self.peek() == Some("!") && !self.not {
            self.not = true;
            self.at += 1;
        }
        let value = self.peek().ok_or_else(|| Problem::NoValue(self.option.to_owned()))?;
        self.at += 1;
        Ok(value)
    }

    pub(crate) fn parse<T>(&mut self, expected: &'static str, read: impl FnOnce(&str) -> Option<T>) -> ParseResult<T> {
        let value = self.value()?;
        read(value).ok_or_else(|| self.wrong(value, expected))
    }

    pub(crate) fn test<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> ParseResult<Test<T>> {
        let is = self.parse(expected, read)?;
        Ok(Test { not: self.not, is })
    }

    pub(crate) fn negated(&self) -> bool {
        self.not
    }

    pub(crate) fn plain(&self) -> ParseResult<()> {
        if self.not { Err(Problem::Impossible(format!("{} cannot be inverted by !", self.option))) } else { Ok(()) }
    }

    pub(crate) fn wrong(&self, value: &str, expected: &'static str) -> Problem {
        Problem::Value { option: self.option.to_owned(), value: value.to_owned(), expected }
    }
}

pub(crate) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(crate) fn marked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn splits_and_quotes_like_iptables() {
        let line = r#"-A C -m comment --comment "say \"hi\" \\ it's" -j "ODD NAME""#;
        let words = split(line).unwrap();
        assert_eq!(words[5].text, r#"say "hi" \ it's"#);
        assert_eq!(words[7].text, "ODD NAME");
        assert_eq!(words[5].raw, r#""say \"hi\" \\ it's""#);
        assert_eq!(quote(r#"say "hi""#), r#""say \"hi\"""#);
        assert_eq!(quote("plain-word_1"), "plain-word_1");
        assert_eq!(quote(""), r#""""#);
        assert!(split("-A C --comment \"open").is_err());
    }

    #[test]
    fn a_bang_inverts_before_the_option_and_before_its_value() {
        for line in ["! --dport 80", "--dport ! 80"] {
            let words = split(line).unwrap();
            let mut words = OptionReader::new(&words);
            assert_eq!(words.option(|option| option == "--dport"), Some("--dport"));
            assert_eq!(words.test("a port", |text| text.parse::<u16>().ok()), Ok(Test { not: true, is: 80 }));
        }
    }
}
