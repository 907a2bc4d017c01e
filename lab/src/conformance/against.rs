//! Two cards: what has changed.

use super::{Card, PromiseVerdict};

/// A promise whose verdict in a mode is another one than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The promise's number.
    pub number: u16,
    /// Its short name.
    pub id: String,
    /// The mode.
    pub mode: String,
    /// The verdict of the card that is compared with; `None`: that has no such promise or mode.
    pub before: Option<PromiseVerdict>,
    /// The verdict now.
    pub now: PromiseVerdict,
}

impl Change {
    /// Whether a promise that was kept is broken now.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.now == PromiseVerdict::Broken && self.before != Some(PromiseVerdict::Broken)
    }
}

/// What is otherwise in `now` than in `before`; promises go by their numbers.
#[must_use]
pub fn against(now: &Card, before: &Card) -> Vec<Change> {
    let then = |number: u16, mode: &str| {
        let row = before.promises.iter().find(|row| row.number == number)?;
        Some(row.cells.get(mode)?.verdict)
    };
    let changes = now.cells().filter_map(|(row, mode, cell)| {
        let before = then(row.number, &mode.mode);
        (before != Some(cell.verdict)).then(|| Change {
            number: row.number,
            id: row.id.clone(),
            mode: mode.mode.clone(),
            before,
            now: cell.verdict,
        })
    });
    changes.collect()
}
