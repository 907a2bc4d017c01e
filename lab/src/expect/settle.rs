//! Looks at something that is to settle, and the one that is judged.
//!
//! To look until one look passes is no judgement: a proxy that is wrong in one request of twenty passes one of many looks
//! almost surely. So looks that come before the first that passes only find out that it has settled; then one fresh look, of
//! the full size, is the verdict. A first look that passes was chosen from no others, and is the verdict itself.

/// What is to be done after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Look again after a pause: it has not settled yet.
    Wait,
    /// Look again at once: that look is the verdict.
    Judge,
    /// This look is the verdict.
    Done,
}

/// The looks of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looks {
    taken: usize,
    settled: bool,
}

impl Looks {
    /// Counts a look: whether it passed, and whether it began while there was time to settle: one that did and did not
    /// pass is no verdict, however long it took. The look that judges is taken whether there is time or not.
    pub fn after(&mut self, passed: bool, in_time: bool) -> Next {
        self.taken += 1;
        match (self.settled, passed) {
            (true, _) => Next::Done,
            (false, true) if self.taken == 1 => Next::Done,
            (false, true) => {
                self.settled = true;
                Next::Judge
            }
            (false, false) if in_time => Next::Wait,
            (false, false) => Next::Done,
        }
    }

    /// What the last look saw, and how many there were.
    pub fn summary(&self, seen: String) -> String {
        let all = [seen].into_iter().chain(self.words()).filter(|words| !words.is_empty());
        all.collect::<Vec<_>>().join("; ")
    }

    /// How many it took, for a report; `None` where the first one was the verdict.
    fn words(&self) -> Option<String> {
        match (self.taken, self.settled) {
            (0 | 1, _) => None,
            (taken, true) => Some(format!("settled after {} looks, judged by a fresh one", taken - 1)),
            (taken, false) => Some(format!("not settled in {taken} looks")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all of `looks` come to, as [`Looks`] asks for them: whether the last one passed, and how many there were.
    fn verdict(looks: impl IntoIterator<Item = bool>) -> (bool, usize) {
        let (mut state, mut last, mut taken) = (Looks::default(), false, 0);
        for passed in looks {
            (last, taken) = (passed, taken + 1);
            if state.after(passed, true) == Next::Done {
                break;
            }
        }
        (last, taken)
    }

    #[test]
    fn one_look_in_twenty_that_passes_by_luck_is_no_verdict() {
        // A proxy that is wrong in 5 % of 60 requests: about one look in twenty-two passes.
        let lucky = (1..).map(|look| look % 22 == 0);
        assert_eq!(verdict(lucky), (false, 23));
    }

    #[test]
    fn what_has_settled_is_judged_by_a_fresh_look() {
        assert_eq!(verdict([false, false, true, true, true]), (true, 4));
        assert_eq!(verdict([true, false]), (true, 1), "a first look was chosen from no others");
    }

    #[test]
    fn the_look_that_judges_is_taken_after_the_deadline_too() {
        let mut looks = Looks::default();
        assert_eq!(looks.after(false, true), Next::Wait);
        assert_eq!(looks.after(true, false), Next::Judge);
        assert_eq!(looks.after(false, false), Next::Done);
        assert_eq!(looks.words().as_deref(), Some("settled after 2 looks, judged by a fresh one"));
    }

    #[test]
    fn what_never_passes_ends_with_the_time() {
        let mut looks = Looks::default();
        assert_eq!(looks.after(false, true), Next::Wait);
        assert_eq!(looks.after(false, false), Next::Done);
        assert_eq!(looks.words().as_deref(), Some("not settled in 2 looks"));
        assert_eq!(Looks::default().words(), None);
    }
}
