//! A simulation by events in virtual time: nodes, an API server that works on requests in their order, and its network.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use super::model::{
    AT_ONCE, AWAY, Encoding, IN_FLIGHT, NETWORK, NODES, POD_START, PROCESSORS, REFUSAL, REPLACED, Retry, SYNC, UPDATE,
};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// When each node had converged, in order.
    pub converged: Vec<Duration>,
    /// When each request reached the server.
    pub asked: Vec<Duration>,
    pub refused: u64,
    /// The most requests at once that waited for a processor or for the network.
    pub peak_queue: usize,
    pub bytes: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A node without a connection tries to reach the server; so many attempts failed before.
    Connects { node: u32, failures: u32 },
    /// A node asks for lists of everything.
    Asks { node: u32, failures: u32 },
    /// A processor is free again, and an answer goes to the network.
    Worked,
    /// A node has its last byte.
    Sent,
}

struct Simulation<'a> {
    encoding: &'a Encoding,
    retry: Retry,
    chance: Rng,
    /// The number makes the order of simultaneous steps that of their making.
    steps: BinaryHeap<Reverse<(Duration, u64, Step)>>,
    made: u64,
    queue: usize,
    busy: usize,
    /// When the network has sent what it has.
    network: Duration,
    sending: usize,
    /// The nodes that a rollout has not reached.
    unreached: std::ops::Range<u32>,
    outcome: Outcome,
}

/// A new version of a DaemonSet: a share of the nodes at once, the next ones as they are ready.
pub fn rollout(encoding: &Encoding, retry: Retry) -> Outcome {
    let mut simulation = Simulation::new(encoding, retry);
    simulation.unreached = 0..NODES;
    for _ in 0..AT_ONCE {
        simulation.replace_next(Duration::ZERO);
    }
    simulation.run()
}

/// The API server is away at first; then all nodes ask for everything, because its watches begin anew.
pub fn restart(encoding: &Encoding, retry: Retry) -> Outcome {
    let mut simulation = Simulation::new(encoding, retry);
    for node in 0..NODES {
        let wait = retry.after(1, simulation.chance.f64());
        simulation.later(wait, Step::Connects { node, failures: 1 });
    }
    simulation.run()
}

/// Endpoints are replaced at an even rate, and each change is sent to every node. Each node counts once, with the last change.
pub fn update(encoding: &Encoding) -> Outcome {
    let (changes, nodes) = (2 * REPLACED, f64::from(NODES));
    let (work, sending) =
        (encoding.event_work.mul_f64(nodes / PROCESSORS as f64), encoding.event_bytes * nodes / NETWORK);
    let sending = Duration::from_secs_f64(sending);
    let (mut worked, mut sent) = (Duration::ZERO, Duration::ZERO);
    let mut outcome = Outcome::default();
    let mut waiting = VecDeque::new();
    for change in 0..changes {
        let now = UPDATE.mul_f64(f64::from(change) / f64::from(changes));
        worked = worked.max(now) + work;
        sent = sent.max(worked) + sending;
        while waiting.front().is_some_and(|end| *end <= now) {
            waiting.pop_front();
        }
        waiting.push_back(sent);
        outcome.peak_queue = outcome.peak_queue.max(waiting.len() * NODES as usize);
    }
    outcome.bytes = f64::from(changes) * nodes * encoding.event_bytes;
    outcome.converged = vec![sent + SYNC; NODES as usize];
    outcome
}

impl<'a> Simulation<'a> {
    fn new(encoding: &'a Encoding, retry: Retry) -> Simulation<'a> {
        Simulation {
            encoding,
            retry,
            chance: Rng::with_seed(1),
            steps: BinaryHeap::new(),
            made: 0,
            queue: 0,
            busy: 0,
            network: Duration::ZERO,
            sending: 0,
            unreached: 0..0,
            outcome: Outcome::default(),
        }
    }

    fn later(&mut self, at: Duration, step: Step) {
        self.made += 1;
        self.steps.push(Reverse((at, self.made, step)));
    }

    fn run(mut self) -> Outcome {
        while let Some(Reverse((now, _, step))) = self.steps.pop() {
            match step {
                Step::Connects { node, failures } if now < AWAY => {
                    let wait = self.retry.after(failures + 1, self.chance.f64());
                    self.later(now + wait, Step::Connects { node, failures: failures + 1 });
                }
                Step::Connects { node, .. } => {
                    let pause = self.retry.before_relist(self.chance.f64());
                    self.later(now + pause, Step::Asks { node, failures: 0 });
                }
                Step::Asks { node, failures } => self.ask(now, node, failures),
                Step::Worked => self.send(now),
                Step::Sent => {
                    self.sending -= 1;
                    self.outcome.converged.push(now + SYNC);
                    self.replace_next(now + SYNC);
                }
            }
            self.outcome.peak_queue = self.outcome.peak_queue.max(self.queue + self.sending);
        }
        self.outcome
    }

    fn replace_next(&mut self, now: Duration) {
        let Some(node) = self.unreached.next() else { return };
        let (shortest, longest) = POD_START;
        let start = shortest + (longest - shortest).mul_f64(self.chance.f64());
        self.later(now + start, Step::Asks { node, failures: 0 });
    }

    fn ask(&mut self, now: Duration, node: u32, failures: u32) {
        self.outcome.asked.push(now);
        if self.queue + self.busy + self.sending >= IN_FLIGHT {
            self.outcome.refused += 1;
            let wait = self.retry.after(failures + 1, self.chance.f64());
            return self.later(now + REFUSAL + wait, Step::Asks { node, failures: failures + 1 });
        }
        self.queue += 1;
        self.work(now);
    }

    fn work(&mut self, now: Duration) {
        while self.busy < PROCESSORS && self.queue > 0 {
            self.queue -= 1;
            self.busy += 1;
            self.later(now + self.encoding.list_work, Step::Worked);
        }
    }

    fn send(&mut self, now: Duration) {
        self.busy -= 1;
        self.sending += 1;
        self.outcome.bytes += self.encoding.list_bytes;
        self.network = self.network.max(now) + Duration::from_secs_f64(self.encoding.list_bytes / NETWORK);
        self.later(self.network, Step::Sent);
        self.work(now);
    }
}
