//! Impairs outgoing packets (`netem`).

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::NetnsError;
use super::links::Links;

/// linux/rtnetlink.h; the netlink crate does not support netem's options.
const TCA_OPTIONS: u16 = 2;
/// linux/pkt_sched.h.
const REORDER: u16 = 3;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;
/// Queue length in packets.
const QUEUE: u32 = 10_000;

/// Impairments; probabilities are 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Impairment {
    /// Delay of each packet.
    pub delay: Duration,
    /// Uniformly distributed addition to the delay, which also reorders packets.
    pub jitter: Duration,
    /// Probability of loss.
    pub loss: f64,
    /// Probability of duplication.
    pub duplicate: f64,
    /// Probability of sending without delay.
    pub reorder: f64,
}

impl Impairment {
    /// Returns `struct tc_netem_qopt` and attributes.
    fn options(&self) -> Vec<u8> {
        // Every `gap`-th packet may be reordered; 0 means none.
        let gap = u32::from(self.reorder > 0.0);
        // The attributes below carry latency and jitter.
        let structure = [0, QUEUE, share(self.loss), gap, share(self.duplicate), 0];
        let mut bytes: Vec<u8> = structure.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let mut attribute = |kind: u16, value: [u8; 8]| {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
        };
        attribute(LATENCY64, nanoseconds(self.delay));
        attribute(JITTER64, nanoseconds(self.jitter));
        if gap > 0 {
            // Probability and correlation.
            let [a, b, c, d] = share(self.reorder).to_ne_bytes();
            attribute(REORDER, [a, b, c, d, 0, 0, 0, 0]);
        }
        bytes
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jitter = if self.jitter.is_zero() { String::new() } else { format!(" ± {:?}", self.jitter) };
        let delay = (!self.delay.is_zero()).then(|| format!("{:?}{jitter} late", self.delay));
        let shares = [(self.loss, "lost"), (self.duplicate, "sent twice"), (self.reorder, "not delayed")];
        let shares = shares.into_iter().filter(|(part, _)| *part > 0.0);
        let parts = delay.into_iter().chain(shares.map(|(part, what)| format!("{:.1}% {what}", part * 100.0)));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

fn nanoseconds(span: Duration) -> [u8; 8] {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX).to_ne_bytes()
}

fn share(part: f64) -> u32 {
    (part * f64::from(u32::MAX)).round() as u32
}

impl Links {
    /// Replaces the impairment; `None` removes it.
    ///
    /// # Errors
    /// The kernel lacks `netem`, or there is nothing to remove.
    pub async fn impair(&self, index: u32, impairment: Option<&Impairment>) -> Result<(), NetnsError> {
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = TcHandle::ROOT;
        let (message, flags) = match impairment {
            Some(impairment) => {
                message.attributes.push(TcAttribute::Kind("netem".to_owned()));
                message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, impairment.options())));
                (RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE)
            }
            None => (RouteNetlinkMessage::DelQueueDiscipline(message), 0),
        };
        let done = self.request(message, flags).await;
        done.map_err(self.failed(format_args!("impairing interface {index}")))
    }

    async fn request(&self, message: RouteNetlinkMessage, flags: u16) -> Result<(), rtnetlink::Error> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut answers = self.handle.clone().request(request)?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload {
                return Err(rtnetlink::Error::NetlinkError(error));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_kernels_layout() {
        let words = |impairment: Impairment| -> Vec<u32> {
            let bytes = impairment.options();
            bytes.chunks(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
        };
        let attribute = |kind: u32| 12 | kind << 16;
        let delayed = Impairment { delay: Duration::from_millis(50), loss: 0.5, ..Impairment::default() };
        let latency = [attribute(10), 50_000_000, 0, attribute(11), 0, 0];
        assert_eq!(words(delayed), [&[0, 10_000, 1 << 31, 0, 0, 0], &latency[..]].concat());
        let all = Impairment { jitter: Duration::from_secs(5), duplicate: 1.0, reorder: 0.25, ..delayed };
        let seconds = 5_000_000_000_u64;
        let latency = [attribute(10), 50_000_000, 0, attribute(11), seconds as u32, (seconds >> 32) as u32];
        let reorder = [attribute(3), 1 << 30, 0];
        assert_eq!(words(all), [&[0, 10_000, 1 << 31, 1, u32::MAX, 0], &latency[..], &reorder[..]].concat());
    }
}
