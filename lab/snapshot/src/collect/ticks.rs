/// The values of `CONFIG_HZ` (`kernel/Kconfig.hz`).
const CHOICES: [i128; 4] = [100, 250, 300, 1000];
/// The largest difference of the clocks, in seconds; a machine that was suspended exceeds it.
const OFF: i128 = 60;

/// Returns the quotient of `timestamp` in `/proc/schedstat`, in ticks, and `/proc/uptime`. Ticks start five minutes
/// before 2^32 (`INITIAL_JIFFIES`, `include/linux/jiffies.h`).
pub(super) fn per_second(schedstat: &str, uptime: &str) -> Option<u64> {
    let ticks: i128 = schedstat.lines().find_map(|line| line.strip_prefix("timestamp "))?.trim().parse().ok()?;
    let uptime: i128 = uptime.split(['.', ' ']).next()?.parse().ok()?;
    let off = |hz: i128| ((ticks - (1 << 32)) / hz + 300 - uptime).abs();
    let best = CHOICES.into_iter().min_by_key(|hz| off(*hz)).filter(|hz| off(*hz) < OFF)?;
    u64::try_from(best).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_uptime_tell_it() {
        let count = |hz: u64, uptime: u64| format!("version 15\ntimestamp {}\n", (1u64 << 32) - 300 * hz + uptime * hz);
        for hz in [100, 250, 300, 1000] {
            for uptime in [1_000, 28_596, 10_000_000] {
                assert_eq!(per_second(&count(hz, uptime), &format!("{uptime}.76 12061.67\n")), Some(hz));
            }
        }
        assert_eq!(per_second("version 15\ntimestamp 7\n", "100.0 1.0"), None);
        assert_eq!(per_second("", ""), None);
    }
}
