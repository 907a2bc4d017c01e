//! Chains that are there against what should be in them. The kernel is asked for each chain by itself, which takes most of a start
//! with everything there; so another thread compares as well, where the kernel adapter has a second reader.

use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::kernel::iptables::IptablesError;
use crate::kernel::packet_filter::PacketFilter;
use crate::ruleset::{Chains, Rule, Table};

/// Rules that are handed to the other thread together. Fewer are compared without one.
const PIECE: usize = 1000;
/// Pieces that wait for the other thread. While so many do, this one compares too.
const WAITING: usize = 2;

/// A chain of the table `nat` that is there.
pub(super) struct Standing {
    pub(super) chain: String,
    /// What was reported of it.
    pub(super) present: Vec<String>,
    /// What should be in it.
    pub(super) rules: Vec<Rule>,
}

/// Chains are compared in pieces, as they are added.
pub(super) struct Comparing<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    piece: Vec<Standing>,
    /// Rules in the piece.
    rules: usize,
    other: Other<'scope>,
    differing: Chains,
}

enum Other<'scope> {
    NotAsked,
    Absent,
    Thread(SyncSender<Vec<Standing>>, ScopedJoinHandle<'scope, Result<Chains, IptablesError>>),
}

impl<'scope, 'env> Comparing<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>) -> Comparing<'scope, 'env> {
        Comparing { scope, piece: Vec::new(), rules: 0, other: Other::NotAsked, differing: Chains::new() }
    }

    /// Compares the chain, now or later.
    pub(super) fn add(&mut self, kernel: &mut dyn PacketFilter, standing: Standing) -> Result<(), IptablesError> {
        self.rules += standing.rules.len() + 1;
        self.piece.push(standing);
        if self.rules < PIECE {
            return Ok(());
        }
        self.rules = 0;
        let mut piece = std::mem::take(&mut self.piece);
        if let Other::NotAsked = self.other {
            self.other = self.begin(kernel);
        }
        if let Other::Thread(pieces, _) = &self.other {
            match pieces.try_send(piece) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => piece = back,
            }
        }
        self.here(kernel, piece)
    }

    /// The chains that hold something else than they should.
    pub(super) fn finish(mut self, kernel: &mut dyn PacketFilter) -> Result<Chains, IptablesError> {
        let piece = std::mem::take(&mut self.piece);
        self.here(kernel, piece)?;
        if let Other::Thread(pieces, thread) = self.other {
            drop(pieces);
            self.differing.append(&mut thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(self.differing)
    }

    fn begin(&self, kernel: &mut dyn PacketFilter) -> Other<'scope> {
        let Some(mut comparer) = kernel.comparer() else { return Other::Absent };
        let (pieces, inbox) = sync_channel::<Vec<Standing>>(WAITING);
        let work = move || {
            let mut differing = Chains::new();
            for piece in inbox {
                compare(piece, &mut differing, |chain, present, rules| {
                    comparer.holds(Table::Nat, chain, present, &mut rules.iter())
                })?;
            }
            Ok(differing)
        };
        // Where the limits allow no thread, this one does all of it.
        let thread = Builder::new().name("compare".to_owned()).spawn_scoped(self.scope, work);
        thread.map_or(Other::Absent, |thread| Other::Thread(pieces, thread))
    }

    fn here(&mut self, kernel: &mut dyn PacketFilter, piece: Vec<Standing>) -> Result<(), IptablesError> {
        compare(piece, &mut self.differing, |chain, present, rules| {
            kernel.holds(Table::Nat, chain, present, &mut rules.iter())
        })
    }
}

fn compare(
    piece: Vec<Standing>,
    differing: &mut Chains,
    mut holds: impl FnMut(&str, &[String], &[Rule]) -> Result<bool, IptablesError>,
) -> Result<(), IptablesError> {
    for Standing { chain, present, rules } in piece {
        if !holds(&chain, &present, &rules)? {
            differing.insert(chain, rules);
        }
    }
    Ok(())
}
