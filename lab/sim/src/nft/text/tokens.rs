use crate::nft::NftReadError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Offset in the listing, quotes included.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    Quoted,
    Symbol,
    End,
}

/// Longer symbols first.
const SYMBOLS: [&str; 18] =
    ["==", "!=", "<=", ">=", "<<", ">>", "{", "}", "(", ")", ",", ";", "=", "<", ">", "&", "|", "^"];

const BY_IPTABLES: &str = "is managed by iptables";

/// Returns tokens and the lines of [`BY_IPTABLES`] comments.
pub(super) fn split(text: &str) -> Result<(Vec<Token<'_>>, Vec<usize>), NftReadError> {
    let (mut tokens, mut managed) = (Vec::new(), Vec::new());
    let (mut at, mut line) = (0, 1);
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if next == '\n' {
            tokens.push(Token { kind: TokenKind::End, text: "", from: at, to: at, line });
            line += 1;
            at += 1;
        } else if rest.starts_with("\\\n") {
            line += 1;
            at += 2;
        } else if next.is_whitespace() {
            at += next.len_utf8();
        } else if next == '#' {
            let length = rest.find('\n').unwrap_or(rest.len());
            if rest[..length].contains(BY_IPTABLES) {
                managed.push(line);
            }
            at += length;
        } else if next == '"' {
            let length = rest[1..].find('"').ok_or_else(|| NftReadError::new(line, "quote without an end"))?;
            let text = &rest[1..=length];
            tokens.push(Token { kind: TokenKind::Quoted, text, from: at, to: at + length + 2, line });
            line += text.matches('\n').count();
            at += length + 2;
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token { kind: TokenKind::Symbol, text: symbol, from: at, to: at + symbol.len(), line });
            at += symbol.len();
        } else {
            let ends = |c: char| c.is_whitespace() || "{}(),;=<>&|^\"".contains(c);
            // `!` without `=` is a token by itself.
            let length = if next == '!' { 1 } else { rest.find(ends).unwrap_or(rest.len()) };
            tokens.push(Token { kind: TokenKind::Word, text: &rest[..length], from: at, to: at + length, line });
            at += length;
        }
    }
    Ok((tokens, managed))
}

#[derive(Debug)]
pub(super) struct Tokens<'a> {
    whole: &'a str,
    all: &'a [Token<'a>],
    at: usize,
    /// Open braces.
    depth: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(whole: &'a str, all: &'a [Token<'a>]) -> Tokens<'a> {
        Tokens { whole, all, at: 0, depth: 0 }
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.all.get(self.at).copied()
    }

    pub(super) fn second(&self) -> Option<&'a str> {
        self.all.get(self.at + 1).filter(|token| token.kind == TokenKind::Word).map(|token| token.text)
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        match (token.kind, token.text) {
            (TokenKind::Symbol, "{") => self.depth += 1,
            (TokenKind::Symbol, "}") => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.at += 1;
        Some(token)
    }

    pub(super) fn line(&self) -> usize {
        self.all.get(self.at).or(self.all.last()).map_or(1, |token| token.line)
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn offset(&self) -> usize {
        self.peek().map_or(self.whole.len(), |token| token.from)
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        self.is(text) && self.next().is_some()
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| !matches!(token.kind, TokenKind::Quoted | TokenKind::End) && token.text == text)
    }

    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.peek().filter(|token| matches!(token.kind, TokenKind::Word | TokenKind::Quoted))?;
        self.next().map(|token| token.text)
    }

    pub(super) fn skip_ends(&mut self) {
        while self.peek().is_some_and(|token| token.kind == TokenKind::End) {
            self.next();
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.peek().is_none_or(|token| {
            token.kind == TokenKind::End || (token.kind == TokenKind::Symbol && matches!(token.text, ";" | "}"))
        })
    }

    /// Skips a statement that began with `depth` open braces.
    pub(super) fn skip_statement(&mut self, depth: usize) {
        while self.depth > depth || !self.at_end() {
            if self.next().is_none() {
                return;
            }
        }
    }

    pub(super) fn rest_of_line(&mut self) -> &'a str {
        let from = self.offset();
        self.skip_statement(self.depth);
        self.since(from)
    }

    pub(super) fn skip_braces(&mut self) -> bool {
        let depth = self.depth;
        if !self.take("{") {
            return false;
        }
        while self.depth > depth {
            if self.next().is_none() {
                return false;
            }
        }
        true
    }

    pub(super) fn since(&self, from: usize) -> &'a str {
        let to = self.at.checked_sub(1).and_then(|last| self.all.get(last)).map_or(from, |token| token.to);
        self.whole.get(from..to).unwrap_or_default()
    }
}
