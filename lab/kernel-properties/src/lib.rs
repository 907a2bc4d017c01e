//! Generated clusters on the real kernel: compares the answers to real packets with the simulator's outcomes and the
//! oracle's promises.
//! The lab builds each [`testbed`] once. For each cluster drawn on it, every node's [`proxy`] replaces the rules of the
//! cluster before by its usual commands; the simulator reads the listings; [`question_sample`] selects questions, and
//! [`ask`] sends them. [`cluster_case`] compares the three judges, [`round_robin`] checks turns, [`disagreement`]
//! prints a difference, and [`sweep`] does all this for many clusters. In some clusters it breaks the rules, or adds
//! [`foreign_rules`], and compares kernel and simulator alone.
//! The crate is separate from `lab/properties` because it links the whole lab, for which the fast tests there should
//! not wait.

pub mod ask;
pub mod cluster_case;
pub mod counts;
pub mod disagreement;
pub mod foreign_rules;
pub mod observation;
pub mod proxy;
pub mod question_sample;
pub mod round_robin;
pub mod scenarios;
pub mod sweep;
pub mod testbed;
