//! Recording never blocks: without an API server, or when too many Events wait, an Event is only logged.

use tokio::sync::mpsc;

use crate::model::ObjectKey;

const WAITING: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSubject {
    Node,
    Service(ObjectKey),
    EndpointSlice(ObjectKey),
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
    /// A CamelCase word; kube-proxy's if it has one.
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
}

impl Event {
    pub fn warning(about: EventSubject, reason: &'static str, action: &'static str, note: String) -> Event {
        Event { kind: EventType::Warning, about, reason, action, note }
    }
}

/// The default recorder drops Events.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Option<mpsc::Sender<Event>>);

impl Recorder {
    pub fn new() -> (Recorder, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Recorder(Some(sender)), receiver)
    }

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
    fn recording_never_blocks() {
        let event = |number: usize| Event::warning(EventSubject::Node, "Test", "Test", number.to_string());
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
