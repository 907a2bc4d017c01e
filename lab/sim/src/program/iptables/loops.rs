use super::{Action, CompiledChain};

pub(super) fn find(chains: &[CompiledChain]) -> Option<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        No,
        Open,
        Done,
    }
    let mut seen = vec![VisitState::No; chains.len()];
    let calls = |at: usize| {
        chains[at].steps.iter().filter_map(|step| match step.action {
            Action::Jump(to) | Action::Goto(to) => Some(to),
            _ => None,
        })
    };
    for start in 0..chains.len() {
        if seen[start] != VisitState::No {
            continue;
        }
        seen[start] = VisitState::Open;
        let mut path: Vec<(usize, Vec<usize>)> = vec![(start, calls(start).collect())];
        while let Some((at, next)) = path.last_mut() {
            match next.pop() {
                Some(to) if seen[to] == VisitState::Open => return Some(to),
                Some(to) if seen[to] == VisitState::No => {
                    seen[to] = VisitState::Open;
                    path.push((to, calls(to).collect()));
                }
                Some(_) => {}
                None => {
                    seen[*at] = VisitState::Done;
                    path.pop();
                }
            }
        }
    }
    None
}
