//! Compares existing chains with the desired rules. The kernel lists one chain per request, which takes most of a
//! restart's time. So a second thread compares too, if the kernel adapter has a second reader.

use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::{Chains, Rule, Table};

/// The number of rules per message to the thread.
const PIECE: usize = 1000;
/// The most waiting messages. At the limit the calling thread compares too.
const WAITING: usize = 2;

pub(super) struct PresentChain {
    pub(super) chain: String,
    pub(super) present: Vec<String>,
    pub(super) rules: Vec<Rule>,
}

pub(super) struct ChainComparison<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    piece: Vec<PresentChain>,
    rules: usize,
    other: CompareThread<'scope>,
    differing: Chains,
}

enum CompareThread<'scope> {
    NotAsked,
    Absent,
    Thread(SyncSender<Vec<PresentChain>>, ScopedJoinHandle<'scope, Result<Chains, IptablesError>>),
}

impl<'scope, 'env> ChainComparison<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>) -> ChainComparison<'scope, 'env> {
        ChainComparison { scope, piece: Vec::new(), rules: 0, other: CompareThread::NotAsked, differing: Chains::new() }
    }

    /// Queues a chain, and compares or hands over a full queue.
    pub(super) fn add(&mut self, kernel: &mut dyn PacketFilter, present: PresentChain) -> Result<(), IptablesError> {
        self.rules += present.rules.len() + 1;
        self.piece.push(present);
        if self.rules < PIECE {
            return Ok(());
        }
        self.rules = 0;
        let mut piece = std::mem::take(&mut self.piece);
        if let CompareThread::NotAsked = self.other {
            self.other = self.begin(kernel);
        }
        if let CompareThread::Thread(pieces, _) = &self.other {
            match pieces.try_send(piece) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => piece = back,
            }
        }
        self.compare_now(kernel, piece)
    }

    pub(super) fn finish(mut self, kernel: &mut dyn PacketFilter) -> Result<Chains, IptablesError> {
        let piece = std::mem::take(&mut self.piece);
        self.compare_now(kernel, piece)?;
        if let CompareThread::Thread(pieces, thread) = self.other {
            drop(pieces);
            self.differing.append(&mut thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(self.differing)
    }

    fn begin(&self, kernel: &mut dyn PacketFilter) -> CompareThread<'scope> {
        let Some(mut comparer) = kernel.comparer() else { return CompareThread::Absent };
        let (pieces, inbox) = sync_channel::<Vec<PresentChain>>(WAITING);
        let work = move || {
            let mut differing = Chains::new();
            for piece in inbox {
                compare(piece, &mut differing, |chain, present, rules| {
                    comparer.chain_equals(Table::Nat, chain, present, &mut rules.iter())
                })?;
            }
            Ok(differing)
        };
        // Without a thread (resource limits), the calling thread compares.
        let thread = Builder::new().name("compare".to_owned()).spawn_scoped(self.scope, work);
        thread.map_or(CompareThread::Absent, |thread| CompareThread::Thread(pieces, thread))
    }

    fn compare_now(&mut self, kernel: &mut dyn PacketFilter, piece: Vec<PresentChain>) -> Result<(), IptablesError> {
        compare(piece, &mut self.differing, |chain, present, rules| {
            kernel.chain_equals(Table::Nat, chain, present, &mut rules.iter())
        })
    }
}

fn compare(
    piece: Vec<PresentChain>,
    differing: &mut Chains,
    mut holds: impl FnMut(&str, &[String], &[Rule]) -> Result<bool, IptablesError>,
) -> Result<(), IptablesError> {
    for PresentChain { chain, present, rules } in piece {
        if !holds(&chain, &present, &rules)? {
            differing.insert(chain, rules);
        }
    }
    Ok(())
}
