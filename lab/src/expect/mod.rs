//! Judgement: did what happened keep the promise? Pure, and stingy with false alarms.
//!
//! Every statistical check states its bound: a correct proxy is blamed with probability at most [`stats::FALSE_ALARM`].

pub mod chi_square;
pub mod counters;
mod judge;
pub mod listed;
pub mod settle;
pub mod stats;

pub use judge::{Answers, Bounds, Mismatch, SourceWanted, Tally, Wanted, bounds, judge, smallest_skew};

#[cfg(test)]
mod tests;
