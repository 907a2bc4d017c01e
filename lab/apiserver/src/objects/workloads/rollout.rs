//! The arithmetic of a Deployment's rollout, as in Kubernetes.

use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Default of `maxSurge` and `maxUnavailable`.
const QUARTER: &str = "25%";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplicaCounts {
    pub(super) wanted: i32,
    pub(super) existing: i32,
    pub(super) ready: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RolloutPace {
    /// Removes all old pods before it creates a new one.
    Recreate,
    /// At most `surge` pods more than wanted, and at most `unavailable` ready pods fewer.
    Rolling { surge: i32, unavailable: i32 },
}

impl RolloutPace {
    pub(super) fn of(strategy: Option<&DeploymentStrategy>, wanted: i32) -> RolloutPace {
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
            return RolloutPace::Recreate;
        }
        let quarter = IntOrString::String(QUARTER.to_owned());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
        let (surge, unavailable) = (resolve_bound(surge, wanted, true), resolve_bound(unavailable, wanted, false));
        // With both zero the rollout could not advance.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        RolloutPace::Rolling { surge, unavailable: unavailable.min(wanted) }
    }
}

fn resolve_bound(bound: &IntOrString, wanted: i32, up: bool) -> i32 {
    match bound {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0).max(0);
            let hundredths = percent * i64::from(wanted);
            i32::try_from(if up { (hundredths + 99) / 100 } else { hundredths / 100 }).unwrap_or(i32::MAX)
        }
    }
}

/// Returns the next `spec.replicas` of the new and of each old ReplicaSet.
pub(super) fn next(pace: RolloutPace, wanted: i32, new: ReplicaCounts, old: &[ReplicaCounts]) -> (i32, Vec<i32>) {
    let asked: Vec<i32> = old.iter().map(|set| set.wanted).collect();
    match pace {
        RolloutPace::Recreate => {
            let left: i32 = old.iter().map(|set| set.existing).sum();
            (if left > 0 { new.wanted } else { wanted }, vec![0; old.len()])
        }
        RolloutPace::Rolling { surge, unavailable } => {
            let total = new.wanted + asked.iter().sum::<i32>();
            let grown = new.wanted + (wanted + surge - total).max(0).min(wanted - new.wanted);
            let up = if new.wanted > wanted { wanted } else { grown };
            (up, scale_down(asked, wanted - unavailable, new, old))
        }
    }
}

/// Keeps at least `least` pods ready.
fn scale_down(mut asked: Vec<i32>, least: i32, new: ReplicaCounts, old: &[ReplicaCounts]) -> Vec<i32> {
    let total = new.wanted + asked.iter().sum::<i32>();
    let mut room = total - least - (new.wanted - new.ready).max(0);
    // Pods that are not ready are removed first.
    for (asked, set) in asked.iter_mut().zip(old) {
        let idle = (set.wanted - set.ready).clamp(0, room.max(0));
        *asked -= idle;
        room -= idle;
    }
    let serving: i32 = new.ready + old.iter().map(|set| set.ready).sum::<i32>();
    let mut spare = (serving - least).min(room);
    for asked in &mut asked {
        let down = (*asked).min(spare.max(0));
        *asked -= down;
        spare -= down;
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(wanted: i32, ready: i32) -> ReplicaCounts {
        ReplicaCounts { wanted, existing: wanted, ready }
    }

    fn pace(strategy: &serde_json::Value, wanted: i32) -> RolloutPace {
        RolloutPace::of(Some(&serde_json::from_value(strategy.clone()).unwrap()), wanted)
    }

    #[test]
    fn rollout_bounds_round_surge_up_and_unavailable_down() {
        let rolling = |surge, unavailable| RolloutPace::Rolling { surge, unavailable };
        assert_eq!(RolloutPace::of(None, 4), rolling(1, 1));
        assert_eq!(RolloutPace::of(None, 3), rolling(1, 0), "surge is rounded up, the other one down");
        let both = |surge: &str| serde_json::json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}});
        assert_eq!(pace(&both("0%"), 3), rolling(0, 1));
        assert_eq!(pace(&serde_json::json!({"type": "Recreate"}), 3), RolloutPace::Recreate);
    }

    #[test]
    fn a_rolling_update_finishes_within_its_bounds() {
        for (wanted, surge, unavailable) in [(3, 1, 0), (4, 1, 1), (4, 0, 1), (10, 3, 2), (1, 1, 0), (5, 5, 5)] {
            let (mut new, mut old) = (set(0, 0), vec![set(wanted, wanted)]);
            let mut rounds = 0;
            while (new.ready, old[0].wanted) != (wanted, 0) {
                let (up, down) = next(RolloutPace::Rolling { surge, unavailable }, wanted, new, &old);
                assert!(up + down[0] <= wanted + surge, "{up} and {down:?} of {wanted}");
                // Per round, one new pod becomes ready; old pods disappear at once.
                old = down.iter().map(|asked| set(*asked, old[0].ready.min(*asked))).collect();
                new = ReplicaCounts { wanted: up, existing: up, ready: (new.ready + 1).min(up) };
                assert!(new.ready + old[0].ready >= wanted - unavailable, "{new:?} {old:?}");
                rounds += 1;
                assert!(rounds < 100, "{new:?} {old:?}");
            }
        }
    }

    #[test]
    fn recreate_waits_for_the_last_old_pod() {
        assert_eq!(next(RolloutPace::Recreate, 3, set(0, 0), &[set(3, 3)]), (0, vec![0]));
        assert_eq!(next(RolloutPace::Recreate, 3, set(0, 0), &[set(0, 0)]), (3, vec![0]));
    }
}
