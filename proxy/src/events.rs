//! Kubernetes Events. Recording one never blocks: without an API server, or when too many wait, the Event is lost, and
//! the log has the same text.

use tokio::sync::mpsc;

use crate::model::ObjectKey;

/// Capacity of the queue.
const WAITING: usize = 64;

/// The object that an Event regards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSubject {
    /// This node.
    Node,
    Service(ObjectKey),
    EndpointSlice(ObjectKey),
    /// By name.
    ServiceCidr(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: EventType,
    pub about: EventSubject,
    /// A CamelCase word for machines; kube-proxy's, where it has one.
    pub reason: &'static str,
    /// The attempted action, CamelCase.
    pub action: &'static str,
    /// A sentence for people.
    pub note: String,
}

/// Records Events. The default recorder drops them, as no API server is configured.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Option<mpsc::Sender<Event>>);

impl Recorder {
    /// A recorder, and the queue of what it records.
    pub fn new() -> (Recorder, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Recorder(Some(sender)), receiver)
    }

    /// Records an Event, if the queue has space.
    pub fn record(&self, event: Event) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telling_never_waits() {
        let event = |number: usize| Event {
            kind: EventType::Warning,
            about: EventSubject::Node,
            reason: "Test",
            action: "Test",
            note: number.to_string(),
        };
        let (recorder, mut events) = Recorder::new();
        (0..2 * WAITING).for_each(|number| recorder.record(event(number)));
        let reported: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(reported.len(), WAITING);
        assert_eq!(reported[0], event(0));
        drop(events);
        recorder.record(event(0));
        Recorder::default().record(event(0));
    }
}
