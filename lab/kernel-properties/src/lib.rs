//! Generated clusters on the real kernel: who answers there, whom they see, and who is refused, against what the simulator
//! says of the same rules and what the oracle promises.
//!
//! A [`testbed`] is a set of machines that the laboratory builds once, of network namespaces. Clusters are drawn on it that
//! differ in services, endpoints and settings. For each, every node's [`proxy`] writes its rules over those of the cluster
//! before, by the commands that it uses anywhere; what those commands then print goes to the simulator; some of the cluster's
//! questions are [chosen](choice), and [`asked`](ask) as packets. [`cluster_case`] has all three judges say their word on
//! each, [`disagreement`] tells a disagreement, and [`sweep`] does so for many clusters. Now and then it breaks the rules, or puts those
//! of [`others`] beside them, and has the kernel and the simulator alone judge.
//!
//! Nothing here decides what is right. It is a crate of its own because it builds the laboratory, which the property tests
//! that need no kernel should not wait for.

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
