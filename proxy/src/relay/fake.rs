use std::collections::{BTreeMap, BTreeSet};

use super::{ListenError, Listener, RelayBackends, Relays};
use crate::model::{Protocol, ServicePortName};

#[derive(Debug, Clone, Default)]
pub struct FakeRelays {
    pub listening: BTreeMap<Listener, u16>,
    pub active: BTreeMap<ServicePortName, RelayBackends>,
    pub taken: BTreeSet<(Protocol, u16)>,
    pub exhausted: bool,
}

impl Relays for FakeRelays {
    fn set_backends(&mut self, name: &ServicePortName, backends: Option<RelayBackends>) {
        match backends {
            Some(backends) => self.active.insert(name.clone(), backends),
            None => self.active.remove(name),
        };
    }

    fn listen(&mut self, listener: &Listener, port: u16) -> Result<(), ListenError> {
        let protocol = listener.name.protocol;
        let refused = |text: &str| Err(ListenError::Refused { port, source: std::io::Error::other(text.to_owned()) });
        if self.exhausted {
            return refused("too many open files");
        }
        if !self.active.contains_key(&listener.name)
            || protocol == Protocol::Sctp
            || self.listening.contains_key(listener)
        {
            return refused("nothing to listen for, or not once more");
        }
        let ours = self.listening.iter().any(|(other, taken)| other.name.protocol == protocol && *taken == port);
        if ours || self.taken.contains(&(protocol, port)) {
            return Err(ListenError::Taken(port));
        }
        self.listening.insert(listener.clone(), port);
        Ok(())
    }

    fn close(&mut self, listener: &Listener) {
        self.listening.remove(listener);
    }
}
