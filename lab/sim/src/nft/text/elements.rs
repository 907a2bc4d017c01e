use super::expression;
use super::statement::{self, verdict};
use super::tokens::Tokens;
use crate::nft::{Element, ElementKey, ElementValue, Expr};

/// Reads `{ key timeout 3h expires 2h59m : value, … }`.
pub(super) fn read(tokens: &mut Tokens<'_>) -> Option<Vec<Element>> {
    if !tokens.take("{") {
        return None;
    }
    let mut all = Vec::new();
    loop {
        tokens.skip_ends();
        if tokens.take("}") {
            return Some(all);
        }
        all.push(element(tokens)?);
        tokens.skip_ends();
        if !tokens.take(",") && !tokens.is("}") {
            return None;
        }
    }
}

fn element(tokens: &mut Tokens<'_>) -> Option<Element> {
    let key = if tokens.take("*") { ElementKey::Any } else { ElementKey::Parts(literals(tokens)?) };
    let mut element = Element { key, value: ElementValue::None, timeout: None, expires: None, statements: Vec::new() };
    loop {
        if tokens.take("timeout") {
            element.timeout = Some(milliseconds(tokens.word()?)?);
        } else if tokens.take("expires") {
            element.expires = Some(milliseconds(tokens.word()?)?);
        } else if statement::is_of_element(tokens) {
            element.statements.push(statement::read(tokens)?);
        } else if tokens.take("comment") {
            tokens.word()?;
        } else {
            break;
        }
    }
    if tokens.take(":") {
        element.value = match verdict(tokens) {
            Some(verdict) => ElementValue::Verdict(verdict),
            None => ElementValue::Data(literals(tokens)?),
        };
    }
    Some(element)
}

/// Reads `1 . 2`.
fn literals(tokens: &mut Tokens<'_>) -> Option<Vec<Expr>> {
    let mut all = vec![expression::literal(tokens)?];
    while tokens.take(".") {
        all.push(expression::literal(tokens)?);
    }
    Some(all)
}

/// Parses `1d2h3m4s5ms`, or seconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000);
    }
    let (mut rest, mut sum) = (text, 0u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let factor = match &rest[..unit] {
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(factor)?)?;
        rest = &rest[unit..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_parsed_as_milliseconds() {
        for (text, milliseconds) in [
            ("3h", Some(10_800_000)),
            ("2h59m58s936ms", Some(10_798_936)),
            ("30", Some(30_000)),
            ("3x", None),
            ("h", None),
        ] {
            assert_eq!(super::milliseconds(text), milliseconds, "{text}");
        }
    }
}
