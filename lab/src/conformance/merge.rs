//! Cards of the shards of one command, added up.

use super::{Card, Cell, ModeCard, PromiseVerdict};

impl Card {
    #[must_use]
    pub fn and(mut self, other: Card) -> Card {
        for theirs in other.modes {
            match self.modes.iter_mut().find(|mine| mine.mode == theirs.mode) {
                Some(mine) => mine.add(theirs),
                None => self.modes.push(theirs),
            }
        }
        for theirs in other.promises {
            match self.promises.iter_mut().find(|mine| mine.number == theirs.number) {
                None => self.promises.push(theirs),
                Some(mine) => {
                    for (mode, cell) in theirs.cells {
                        let sum = mine.cells.remove(&mode).unwrap_or_default().and(cell);
                        mine.cells.insert(mode, sum);
                    }
                }
            }
        }
        self.times.extend(other.times);
        self
    }
}

impl ModeCard {
    fn add(&mut self, other: ModeCard) {
        self.kernels.extend(other.kernels);
        self.kernels.sort();
        self.kernels.dedup();
        self.scenarios += other.scenarios;
        self.generated += other.generated;
        self.not_run.extend(other.not_run);
        self.not_run.sort();
        self.not_run.dedup();
        // One shard measures all scenarios of a mode, because percentiles cannot be added.
        self.figures = self.figures.take().or(other.figures);
    }
}

impl Cell {
    fn and(mut self, other: Cell) -> Cell {
        let is_excused = [self.verdict, other.verdict].contains(&PromiseVerdict::Excused);
        self.calls += other.calls;
        self.broken_calls += other.broken_calls;
        self.steps += other.steps;
        self.breaches.extend(other.breaches);
        self.not_judged.extend(other.not_judged);
        self.finished(is_excused)
    }
}
