//! Compares outcomes with promises; pure.
//!
//! Every statistical check blames a correct proxy with a probability of at most [`stats::FALSE_ALARM`].

pub mod chi_square;
pub mod counters;
mod judge;
pub mod listed;
pub mod settle;
pub mod stats;

pub use judge::{
    Bounds, Mismatch, OutcomeTally, ProbePromise, SourcePromise, StepAnswers, bounds, judge, smallest_skew,
};

#[cfg(test)]
mod tests;
