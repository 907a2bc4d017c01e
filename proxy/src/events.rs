//! What an operator must see in the cluster itself, as Kubernetes Events. Recording one never waits: where no API server can
//! take it, or where there are too many, it is lost, and the log has it anyway.

use tokio::sync::mpsc;

use crate::model::ObjectKey;

/// Events that wait to be sent.
const WAITING: usize = 64;

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// This node.
    Node,
    /// A Service.
    Service(ObjectKey),
    /// An EndpointSlice.
    EndpointSlice(ObjectKey),
    /// A ServiceCIDR, by name.
    ServiceCidr(String),
}

/// Whether an Event tells of trouble; the API's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Something went wrong.
    Warning,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether it is trouble.
    pub kind: EventType,
    /// With what.
    pub about: About,
    /// A word for machines; upstream's, where it has one.
    pub reason: &'static str,
    /// What was tried.
    pub action: &'static str,
    /// A sentence for people.
    pub note: String,
}

/// Takes Events. The default one drops them: without the Kubernetes API there is no one to send them to.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Option<mpsc::Sender<Event>>);

impl Recorder {
    /// A recorder, and what it records.
    pub fn new() -> (Recorder, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Recorder(Some(sender)), receiver)
    }

    /// Records an Event, if there is room.
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
            about: About::Node,
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
