//! Decides which attempt of a repeated step is the verdict.
//!
//! A passing attempt among many proves nothing: a proxy that fails one request in twenty passes some attempts. So the
//! attempts up to the first passing one only show that the state has settled, and one more attempt of the same size is
//! the verdict. If the first attempt passes, it is the verdict.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    Wait,
    /// Repeat at once for the verdict.
    Judge,
    /// This attempt is the verdict.
    Done,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts {
    taken: usize,
    settled: bool,
}

impl Attempts {
    /// Returns what to do after an attempt. `in_time`: the attempt began before the deadline. The judging attempt may
    /// begin later.
    pub fn after(&mut self, passed: bool, in_time: bool) -> NextAttempt {
        self.taken += 1;
        match (self.settled, passed) {
            (true, _) => NextAttempt::Done,
            (false, true) if self.taken == 1 => NextAttempt::Done,
            (false, true) => {
                self.settled = true;
                NextAttempt::Judge
            }
            (false, false) if in_time => NextAttempt::Wait,
            (false, false) => NextAttempt::Done,
        }
    }

    pub fn summary(&self, seen: String) -> String {
        let all = [seen].into_iter().chain(self.words()).filter(|words| !words.is_empty());
        all.collect::<Vec<_>>().join("; ")
    }

    /// Describes the attempts; `None` if the first attempt was the verdict.
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

    fn verdict(looks: impl IntoIterator<Item = bool>) -> (bool, usize) {
        let (mut state, mut last, mut taken) = (Attempts::default(), false, 0);
        for passed in looks {
            (last, taken) = (passed, taken + 1);
            if state.after(passed, true) == NextAttempt::Done {
                break;
            }
        }
        (last, taken)
    }

    #[test]
    fn a_lucky_attempt_is_no_verdict() {
        // A proxy that fails 5 % of 60 requests passes about one attempt in 22.
        let lucky = (1..).map(|look| look % 22 == 0);
        assert_eq!(verdict(lucky), (false, 23));
    }

    #[test]
    fn a_settled_state_is_judged_by_another_attempt() {
        assert_eq!(verdict([false, false, true, true, true]), (true, 4));
        assert_eq!(verdict([true, false]), (true, 1), "a first look was chosen from no others");
    }

    #[test]
    fn the_judging_attempt_may_begin_after_the_deadline() {
        let mut looks = Attempts::default();
        assert_eq!(looks.after(false, true), NextAttempt::Wait);
        assert_eq!(looks.after(true, false), NextAttempt::Judge);
        assert_eq!(looks.after(false, false), NextAttempt::Done);
        assert_eq!(looks.words().as_deref(), Some("settled after 2 looks, judged by a fresh one"));
    }

    #[test]
    fn attempts_that_never_pass_end_at_the_deadline() {
        let mut looks = Attempts::default();
        assert_eq!(looks.after(false, true), NextAttempt::Wait);
        assert_eq!(looks.after(false, false), NextAttempt::Done);
        assert_eq!(looks.words().as_deref(), Some("not settled in 2 looks"));
        assert_eq!(Attempts::default().words(), None);
    }
}
