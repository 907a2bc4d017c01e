//! How a Deployment goes from its old pods to the new ones: pure arithmetic, as upstream does it.

use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Upstream's default of both bounds.
const QUARTER: &str = "25%";

/// A set of pods of one template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplicaCounts {
    /// How many pods it asks for.
    pub(super) wanted: i32,
    /// How many there are.
    pub(super) there: i32,
    /// How many of them serve.
    pub(super) ready: i32,
}

/// How far a change may go at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RolloutPace {
    /// All the old ones go before a new one comes.
    Recreate,
    /// At most so many more than wanted, and so many fewer that serve.
    Rolling { surge: i32, unavailable: i32 },
}

impl RolloutPace {
    /// That of a strategy, for so many pods.
    pub(super) fn of(strategy: Option<&DeploymentStrategy>, wanted: i32) -> RolloutPace {
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
            return RolloutPace::Recreate;
        }
        let quarter = IntOrString::String(QUARTER.to_owned());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
        let (surge, unavailable) = (share(surge, wanted, true), share(unavailable, wanted, false));
        // Both zero would be no change at all.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        RolloutPace::Rolling { surge, unavailable: unavailable.min(wanted) }
    }
}

/// A number, or a percentage of `wanted`.
fn share(bound: &IntOrString, wanted: i32, up: bool) -> i32 {
    match bound {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0).max(0);
            let hundredths = percent * i64::from(wanted);
            i32::try_from(if up { (hundredths + 99) / 100 } else { hundredths / 100 }).unwrap_or(i32::MAX)
        }
    }
}

/// How many pods the new set and each of the old ones are to ask for next.
pub(super) fn next(pace: RolloutPace, wanted: i32, new: ReplicaCounts, old: &[ReplicaCounts]) -> (i32, Vec<i32>) {
    let asked: Vec<i32> = old.iter().map(|set| set.wanted).collect();
    match pace {
        RolloutPace::Recreate => {
            let left: i32 = old.iter().map(|set| set.there).sum();
            (if left > 0 { new.wanted } else { wanted }, vec![0; old.len()])
        }
        RolloutPace::Rolling { surge, unavailable } => {
            let total = new.wanted + asked.iter().sum::<i32>();
            let grown = new.wanted + (wanted + surge - total).max(0).min(wanted - new.wanted);
            let up = if new.wanted > wanted { wanted } else { grown };
            (up, fewer(asked, wanted - unavailable, new, old))
        }
    }
}

/// The old sets' numbers, so that `least` pods serve all the while.
fn fewer(mut asked: Vec<i32>, least: i32, new: ReplicaCounts, old: &[ReplicaCounts]) -> Vec<i32> {
    let total = new.wanted + asked.iter().sum::<i32>();
    let mut room = total - least - (new.wanted - new.ready).max(0);
    // Those that do not serve are missed by nobody.
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
        ReplicaCounts { wanted, there: wanted, ready }
    }

    fn pace(strategy: &serde_json::Value, wanted: i32) -> RolloutPace {
        RolloutPace::of(Some(&serde_json::from_value(strategy.clone()).unwrap()), wanted)
    }

    #[test]
    fn a_change_keeps_to_its_bounds() {
        let rolling = |surge, unavailable| RolloutPace::Rolling { surge, unavailable };
        assert_eq!(RolloutPace::of(None, 4), rolling(1, 1));
        assert_eq!(RolloutPace::of(None, 3), rolling(1, 0), "surge is rounded up, the other one down");
        let both = |surge: &str| serde_json::json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0}});
        assert_eq!(pace(&both("0%"), 3), rolling(0, 1));
        assert_eq!(pace(&serde_json::json!({"type": "Recreate"}), 3), RolloutPace::Recreate);
    }

    #[test]
    fn a_rolling_update_comes_to_its_end_and_always_serves() {
        for (wanted, surge, unavailable) in [(3, 1, 0), (4, 1, 1), (4, 0, 1), (10, 3, 2), (1, 1, 0), (5, 5, 5)] {
            let (mut new, mut old) = (set(0, 0), vec![set(wanted, wanted)]);
            let mut rounds = 0;
            while (new.ready, old[0].wanted) != (wanted, 0) {
                let (up, down) = next(RolloutPace::Rolling { surge, unavailable }, wanted, new, &old);
                assert!(up + down[0] <= wanted + surge, "{up} and {down:?} of {wanted}");
                // One new pod at a time becomes ready, the old ones go at once.
                old = down.iter().map(|asked| set(*asked, old[0].ready.min(*asked))).collect();
                new = ReplicaCounts { wanted: up, there: up, ready: (new.ready + 1).min(up) };
                assert!(new.ready + old[0].ready >= wanted - unavailable, "{new:?} {old:?}");
                rounds += 1;
                assert!(rounds < 100, "{new:?} {old:?}");
            }
        }
    }

    #[test]
    fn recreation_waits_for_the_last_old_pod() {
        assert_eq!(next(RolloutPace::Recreate, 3, set(0, 0), &[set(3, 3)]), (0, vec![0]));
        assert_eq!(next(RolloutPace::Recreate, 3, set(0, 0), &[set(0, 0)]), (3, vec![0]));
    }
}
