use super::{Card, PromiseVerdict};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictChange {
    pub number: u16,
    pub id: String,
    pub mode: String,
    /// `None` if the earlier card lacks the promise or the mode.
    pub before: Option<PromiseVerdict>,
    pub now: PromiseVerdict,
}

impl VerdictChange {
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.now == PromiseVerdict::Broken && self.before != Some(PromiseVerdict::Broken)
    }
}

#[must_use]
pub fn against(now: &Card, before: &Card) -> Vec<VerdictChange> {
    let then = |number: u16, mode: &str| {
        let row = before.promises.iter().find(|row| row.number == number)?;
        Some(row.cells.get(mode)?.verdict)
    };
    let changes = now.cells().filter_map(|(row, mode, cell)| {
        let before = then(row.number, &mode.mode);
        (before != Some(cell.verdict)).then(|| VerdictChange {
            number: row.number,
            id: row.id.clone(),
            mode: mode.mode.clone(),
            before,
            now: cell.verdict,
        })
    });
    changes.collect()
}
