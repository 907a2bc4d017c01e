//! How long the lab waits for a proxy, and what it says of a proxy that never becomes right.

use std::time::{Duration, Instant};

use svclab_cluster::process::ProcessHandle;

/// The limit of a wait, unless a description has a `startTimeout`. A full sync takes far less than a second, but three proxies starting together on a loaded or
/// emulated machine took 20 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// A proxy that did next to nothing for so long will not become right: kube-proxy repeats a failed sync after its
/// `syncPeriod`, 30 s.
const IDLE: Duration = Duration::from_secs(40);
/// Next to nothing: less than 1/100 of a core.
const SHARE: u32 = 100;
/// The interval of the checks, each of which reads all processes.
const LOOK: Duration = Duration::from_secs(1);
/// The longest part of a log line in a message.
const SHOWN: usize = 300;

pub(super) struct Patience<'a> {
    handle: &'a ProcessHandle,
    begun: Instant,
    limit: Duration,
    /// The end of a wait for an idle proxy; `None`: clients of an API server that failed may sleep for a minute.
    idle_limit: Option<Duration>,
    /// The start of the time without work, and the processor time at that moment.
    idle: (Instant, Duration),
}

impl<'a> Patience<'a> {
    /// `backs_off`: whether the proxy may sleep before it asks the API server again. `limit`: the limit of a
    /// description, which holds for an idle proxy, too.
    pub(super) fn new(handle: &'a ProcessHandle, backs_off: bool, limit: Option<Duration>) -> Self {
        let begun = Instant::now();
        let idle_limit = (!backs_off && limit.is_none()).then_some(IDLE);
        let idle = (begun, processor(handle).unwrap_or_default());
        Patience { handle, begun, limit: limit.unwrap_or(PATIENCE), idle_limit, idle }
    }

    /// Returns at the end of the wait, with what the proxy did.
    pub(super) async fn over(mut self) -> String {
        while !self.is_over() {
            tokio::time::sleep(LOOK).await;
        }
        self.words()
    }

    fn is_over(&mut self) -> bool {
        let (since, before) = self.idle;
        let now = processor(self.handle).unwrap_or(before);
        if now.saturating_sub(before) > IDLE / SHARE {
            self.idle = (Instant::now(), now);
        }
        self.begun.elapsed() > self.limit || self.idle_limit.is_some_and(|limit| since.elapsed() > limit)
    }

    fn words(&self) -> String {
        let (waited, idle) = (self.begun.elapsed().as_secs(), self.idle.0.elapsed().as_secs());
        let idle =
            if idle >= IDLE.as_secs() { format!(", and the proxy was idle for {idle} s of it") } else { String::new() };
        format!("the lab has waited for {waited} s{idle}; {}", log_words(&self.handle.log_tail(1)))
    }
}

fn log_words(last: &str) -> String {
    match last.trim() {
        "" => "it has logged nothing".to_owned(),
        line => format!("its log ends with: {}", line.chars().take(SHOWN).collect::<String>()),
    }
}

fn processor(handle: &ProcessHandle) -> Option<Duration> {
    Some(handle.tree_usage()?.processor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_line_is_cut() {
        assert_eq!(log_words("\n"), "it has logged nothing");
        assert_eq!(log_words("WARN no\n"), "its log ends with: WARN no");
        assert_eq!(log_words(&"é".repeat(1000)).chars().count(), SHOWN + "its log ends with: ".len());
    }
}
