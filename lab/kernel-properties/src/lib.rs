//! Generated clusters on the real kernel: it must treat packets as the simulator says and the oracle promises.
//!
//! The lab builds each [`testbed`] once. For each cluster every node's [`proxy`] replaces the rules by its usual
//! commands, the simulator reads the listings, [`question_sample`] selects questions, and [`ask`] sends them;
//! [`cluster_case`] compares, [`round_robin`] checks turns. In some clusters [`sweep`] breaks the rules or adds
//! [`foreign_rules`] or [`foreign_tables`], and compares kernel and simulator alone.
//!
//! These tests are slow, and therefore separate from `lab/properties`.

pub mod ask;
pub mod cluster_case;
pub mod counts;
pub mod disagreement;
pub mod foreign_rules;
pub mod foreign_tables;
pub mod observation;
pub mod proxy;
pub mod question_sample;
pub mod round_robin;
pub mod scenarios;
pub mod sweep;
pub mod testbed;
pub mod wrong_proxies;
