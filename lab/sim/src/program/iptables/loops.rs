//! Chains that call each other in a circle, which the kernel refuses.

use super::{Action, Block};

/// A chain that is reached from itself.
pub(super) fn find(chains: &[Block]) -> Option<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let mut seen = vec![Seen::No; chains.len()];
    let calls = |at: usize| {
        chains[at].steps.iter().filter_map(|step| match step.action {
            Action::Jump(to) | Action::Goto(to) => Some(to),
            _ => None,
        })
    };
    for start in 0..chains.len() {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::Open;
        let mut path: Vec<(usize, Vec<usize>)> = vec![(start, calls(start).collect())];
        while let Some((at, next)) = path.last_mut() {
            match next.pop() {
                Some(to) if seen[to] == Seen::Open => return Some(to),
                Some(to) if seen[to] == Seen::No => {
                    seen[to] = Seen::Open;
                    path.push((to, calls(to).collect()));
                }
                Some(_) => {}
                None => {
                    seen[*at] = Seen::Done;
                    path.pop();
                }
            }
        }
    }
    None
}
