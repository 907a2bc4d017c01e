//! A kernel adapter that counts what goes through it, and one that takes everything and keeps nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use svcproxy::kernel::iptables::{Iptables, IptablesError, Table};

use crate::allocations::Allocated;

/// What a proxy asked of the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Tables read.
    pub dumps: usize,
    /// Transactions sent: with the commands, child processes that write.
    pub restores: usize,
    /// Looks at how chains are in use.
    pub looks: usize,
    /// Bytes sent.
    pub bytes: usize,
    /// Rules sent.
    pub rules: usize,
    /// Chains written or emptied.
    pub chains: usize,
    /// Chains removed.
    pub removed_chains: usize,
}

impl std::ops::Sub for Asked {
    type Output = Asked;

    fn sub(self, before: Asked) -> Asked {
        Asked {
            dumps: self.dumps - before.dumps,
            restores: self.restores - before.restores,
            looks: self.looks - before.looks,
            bytes: self.bytes - before.bytes,
            rules: self.rules - before.rules,
            chains: self.chains - before.chains,
            removed_chains: self.removed_chains - before.removed_chains,
        }
    }
}

/// All that was seen of a proxy's calls.
#[derive(Debug, Default)]
pub struct Seen {
    /// How much was asked.
    pub asked: Asked,
    /// How long the kernel and the commands took.
    pub busy: Duration,
    /// What the adapter below allocated, which is not the proxy's.
    pub allocated: Allocated,
    /// The first failure.
    pub error: Option<String>,
    /// The transactions as text, if they are to be kept.
    pub texts: Option<Vec<String>>,
}

/// A handle on what is seen, for whoever measures.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Seen>>);

impl Log {
    /// What was seen so far.
    pub fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts and times every call.
pub struct Observed {
    kernel: Box<dyn Iptables + Send>,
    log: Log,
}

impl Observed {
    /// Hands calls on to `kernel`.
    pub fn new(kernel: Box<dyn Iptables + Send>, log: Log) -> Observed {
        Observed { kernel, log }
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Iptables) -> Result<T, IptablesError>,
        count: impl FnOnce(&mut Asked),
    ) -> Result<T, IptablesError> {
        let (start, allocated) = (Instant::now(), Allocated::by_this_thread());
        let result = call(&mut *self.kernel);
        let (busy, allocated) = (start.elapsed(), Allocated::by_this_thread() - allocated);
        let mut seen = self.log.lock();
        count(&mut seen.asked);
        seen.busy += busy;
        seen.allocated += allocated;
        if let Err(error) = &result {
            seen.error.get_or_insert_with(|| error.to_string());
        }
        result
    }
}

impl Iptables for Observed {
    fn save(&mut self, table: Table) -> Result<String, IptablesError> {
        self.call(|kernel| kernel.save(table), |asked| asked.dumps += 1)
    }

    fn restore(&mut self, input: &str) -> Result<(), IptablesError> {
        let before = Allocated::by_this_thread();
        if let Some(texts) = &mut self.log.lock().texts {
            texts.push(input.to_owned());
        }
        let kept = Allocated::by_this_thread() - before;
        self.log.lock().allocated += kept;
        self.call(
            |kernel| kernel.restore(input),
            |asked| {
                asked.restores += 1;
                asked.bytes += input.len();
                for line in input.lines() {
                    match line.get(..1) {
                        Some(":") => asked.chains += 1,
                        Some("-") if line.starts_with("-X") => asked.removed_chains += 1,
                        Some("-") => asked.rules += 1,
                        _ => {}
                    }
                }
            },
        )
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.call(|kernel| kernel.uses(table, chains), |asked| asked.looks += 1)
    }

    fn random_fully(&self) -> bool {
        self.kernel.random_fully()
    }
}

/// A packet filter that takes everything and keeps nothing. Its dumps are empty, so a full sync sends everything.
#[derive(Debug, Default)]
pub struct Silent;

impl Iptables for Silent {
    fn save(&mut self, _: Table) -> Result<String, IptablesError> {
        Ok(String::new())
    }

    fn restore(&mut self, _: &str) -> Result<(), IptablesError> {
        Ok(())
    }

    fn uses(&mut self, _: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        Ok(vec![Some(usize::MAX); chains.len()])
    }

    fn random_fully(&self) -> bool {
        true
    }
}
