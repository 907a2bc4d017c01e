//! `MARK` and `CONNMARK` (net/netfilter/xt_mark.c, xt_connmark.c).

use super::error::{ParseResult, Problem};
use super::target::{Connmark, ConnmarkAction, RuleTarget};
use super::tokens::{OptionReader, marked, number};

const EXPECTED: &str = "a mark, or mark/mask";

fn change(words: &mut OptionReader<'_>, option: &str) -> ParseResult<(u32, u32)> {
    match option {
        "--set-xmark" => words.parse(EXPECTED, marked),
        "--set-mark" => words.parse(EXPECTED, marked).map(|(value, mask)| (value, value | mask)),
        "--or-mark" => words.parse(EXPECTED, number).map(|bits| (bits, bits)),
        "--and-mark" => words.parse(EXPECTED, number).map(|bits| (0, !bits)),
        _ => words.parse(EXPECTED, number).map(|bits| (bits, 0)),
    }
}

fn changes(word: &str) -> bool {
    matches!(word, "--set-xmark" | "--set-mark" | "--or-mark" | "--and-mark" | "--xor-mark")
}

pub(super) fn mark(words: &mut OptionReader<'_>) -> ParseResult<RuleTarget> {
    let Some(option) = words.option(changes) else {
        return Err(Problem::Missing { of: "MARK".to_owned(), what: "--set-xmark or its like" });
    };
    words.plain()?;
    let (value, mask) = change(words, option)?;
    Ok(RuleTarget::Mark { value, mask })
}

pub(super) fn connmark(words: &mut OptionReader<'_>) -> ParseResult<RuleTarget> {
    let (mut action, mut shift) = (None, 0);
    let (mut packet, mut connection) = (u32::MAX, u32::MAX);
    let known = |word: &str| {
        let others = "--save-mark --restore-mark --nfmask --ctmask --mask --left-shift-mark --right-shift-mark";
        changes(word) || others.split(' ').any(|option| option == word)
    };
    let bits = |text: &str| text.parse::<i8>().ok().filter(|bits| (0..32).contains(bits));
    while let Some(option) = words.option(known) {
        words.plain()?;
        match option {
            "--save-mark" => action = Some(ConnmarkAction::Save),
            "--restore-mark" => action = Some(ConnmarkAction::Restore),
            "--nfmask" => packet = words.parse("a mask", number)?,
            "--ctmask" => connection = words.parse("a mask", number)?,
            "--mask" => {
                packet = words.parse("a mask", number)?;
                connection = packet;
            }
            "--left-shift-mark" => shift = words.parse("a number of bits below 32", bits)?,
            "--right-shift-mark" => shift = -words.parse("a number of bits below 32", bits)?,
            _ => {
                action = Some(ConnmarkAction::Set);
                (packet, connection) = change(words, option)?;
            }
        }
    }
    let action = action.ok_or(Problem::Missing { of: "CONNMARK".to_owned(), what: "something to do" })?;
    Ok(RuleTarget::Connmark(Connmark { action, value: packet, mask: connection, shift }))
}
