//! The guest's serial line, shared with kernel messages. Marked lines: `svclab> TEXT` is progress, `svclab= NAME
//! BASE64` a piece of a result, `svclab! STATUS LENGTH` the end, with the bytes of all results. A kernel message may
//! precede or follow a marked line on the same line.

use std::collections::BTreeMap;
use std::io::{self, Write};

use data_encoding::BASE64;

const TEXT: &str = "svclab> ";
const PIECE: &str = "svclab= ";
const END: &str = "svclab! ";
/// Bytes of a result per line.
const PIECE_BYTES: usize = 3 * 1024;
/// Lines in an error message.
const TAIL: usize = 30;

/// Writes progress.
pub fn text(line: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(line, "{TEXT}{text}")
}

/// Writes results and end.
pub fn results(line: &mut impl Write, status: u8, results: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for (name, content) in results {
        for piece in content.chunks(PIECE_BYTES) {
            writeln!(line, "{PIECE}{name} {}", BASE64.encode(piece))?;
        }
    }
    writeln!(line, "{END}{status} {}", results.values().map(Vec::len).sum::<usize>())
}

/// A finished job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Exit status.
    pub status: u8,
    /// Files by name.
    pub results: BTreeMap<String, Vec<u8>>,
}

/// Parses the serial line.
#[derive(Debug, Default)]
pub struct Console {
    rest: Vec<u8>,
    tail: std::collections::VecDeque<String>,
    panic: Option<String>,
    results: BTreeMap<String, Vec<u8>>,
    ended: Option<(u8, usize)>,
}

impl Console {
    /// Returns complete lines of progress.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend(bytes);
        let mut progress = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            progress.extend(self.line(String::from_utf8_lossy(&line).trim_end()));
        }
        progress
    }

    fn line(&mut self, line: &str) -> Option<String> {
        if let Some((_, text)) = line.split_once(TEXT) {
            self.keep(text);
            return Some(text.to_owned());
        }
        if let Some((name, piece)) = line.split_once(PIECE).and_then(|(_, rest)| rest.split_once(' ')) {
            // The final count of bytes reveals a damaged piece.
            let piece = start_of(piece, |letter| letter.is_ascii_alphanumeric() || "+/=".contains(letter));
            let bytes = BASE64.decode(piece.as_bytes()).unwrap_or_default();
            self.results.entry(name.to_owned()).or_default().extend(bytes);
        } else if let Some((status, length)) = line.split_once(END).and_then(|(_, rest)| rest.split_once(' ')) {
            let length = start_of(length, |letter| letter.is_ascii_digit());
            self.ended = status.parse().ok().zip(length.parse().ok());
        } else {
            // Kept separately, because register dumps fill the last lines.
            let panic = line.split_once("Kernel panic - not syncing: ").map(|(_, why)| why.to_owned());
            self.panic = self.panic.take().or(panic);
            self.keep(line);
        }
        None
    }

    fn keep(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
    }

    /// Returns the finished job once all results have arrived.
    pub fn ended(&self) -> Option<Ended> {
        let (status, length) = self.ended?;
        let complete = self.results.values().map(Vec::len).sum::<usize>() == length;
        complete.then(|| Ended { status, results: self.results.clone() })
    }

    /// The reason of a kernel panic.
    pub fn panic(&self) -> Option<&str> {
        self.panic.as_deref()
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        let rest = String::from_utf8_lossy(&self.rest);
        let lines = self.tail.iter().map(String::as_str).chain([rest.trim_end()]).filter(|line| !line.is_empty());
        lines.map(|line| format!("  {line}\n")).collect()
    }
}

/// Returns the start of a text, up to a kernel message, whose first letter is `[`.
fn start_of(text: &str, is_part: impl Fn(char) -> bool) -> &str {
    text.find(|letter| !is_part(letter)).map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> (BTreeMap<String, Vec<u8>>, Vec<u8>) {
        let long: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let files = BTreeMap::from([("json".to_owned(), long), ("junit".to_owned(), b"<a>\n".to_vec())]);
        let mut line = Vec::new();
        text(&mut line, "ok it answers").unwrap();
        results(&mut line, 1, &files).unwrap();
        (files, line)
    }

    #[test]
    fn results_arrive_whole_in_whatever_pieces() {
        let (files, line) = sent();
        let mut console = Console::default();
        let mut progress = console.feed(b"[    0.1] the kernel says something\r\n");
        for piece in line.chunks(7) {
            assert_eq!(console.ended(), None);
            progress.extend(console.feed(piece));
        }
        assert_eq!(progress, ["ok it answers"]);
        assert_eq!(console.ended(), Some(Ended { status: 1, results: files }));
        assert_eq!(console.tail(), "  [    0.1] the kernel says something\n  ok it answers\n");
    }

    #[test]
    fn a_kernel_message_on_the_same_line_damages_no_result() {
        let (files, line) = sent();
        let text = String::from_utf8(line).unwrap();
        let marked = text.lines().map(|line| format!("[  1.0] before{line}[  272.3] IPVS: rr: no destination\n"));
        let mut console = Console::default();
        let progress = console.feed(marked.collect::<String>().as_bytes());
        assert_eq!(progress, ["ok it answers[  272.3] IPVS: rr: no destination"]);
        assert_eq!(console.ended(), Some(Ended { status: 1, results: files }));
    }

    #[test]
    fn a_damaged_result_is_no_result() {
        let (_, line) = sent();
        let mut console = Console::default();
        let text = String::from_utf8(line).unwrap().replacen("svclab= json ", "svclab= json !", 1);
        console.feed(text.as_bytes());
        assert_eq!(console.ended(), None);
    }

    #[test]
    fn the_tail_is_the_end() {
        let mut console = Console::default();
        for n in 0..100 {
            console.feed(format!("line {n}\n").as_bytes());
        }
        assert_eq!(console.panic(), None);
        console.feed(b"[  4.1] Kernel panic - not syncing: sysrq triggered crash\n");
        assert_eq!(console.panic(), Some("sysrq triggered crash"));
        console.feed(b"half a line");
        assert_eq!(console.tail().lines().count(), TAIL + 1);
        assert!(console.tail().ends_with(": sysrq triggered crash\n  half a line\n"), "{}", console.tail());
    }
}
