//! The line of progress: on a terminal, what is being done and for how long; elsewhere nothing.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often it is drawn.
const TICK: Duration = Duration::from_millis(200);
/// Columns of a terminal that does not tell how wide it is.
const WIDTH: usize = 80;
/// To the begin of the line, and erase it (ECMA-48).
const ERASE: &str = "\r\u{1b}[2K";

/// What is being done.
#[derive(Default)]
struct Line {
    text: Option<(String, Instant)>,
    /// Whether it stands on the terminal.
    drawn: bool,
}

static LINE: Mutex<Line> = Mutex::new(Line { text: None, drawn: false });
static ENABLED: OnceLock<bool> = OnceLock::new();

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows lines of progress from now on, if standard error is a terminal that can erase them. Not before the sandbox is entered: it
/// begins a thread.
pub(super) fn enable() {
    let able = io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    if able && ENABLED.set(true).is_ok() {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(TICK);
                line().draw();
            }
        });
    }
}

/// Says what is being done from now on; the time counts from here. It is drawn at once: a short run is over before the next tick.
pub(super) fn set(text: impl Into<String>) {
    if ENABLED.get().is_some() {
        let mut line = line();
        line.text = Some((text.into(), Instant::now()));
        line.draw();
    }
}

/// Nothing is being done.
pub(super) fn clear() {
    let mut line = line();
    line.text = None;
    line.erase();
}

/// Writes something else than the line, which makes room.
pub(super) fn aside<T>(write: impl FnOnce() -> T) -> T {
    let mut line = line();
    line.erase();
    write()
}

impl Line {
    fn draw(&mut self) {
        let Some((text, since)) = &self.text else { return };
        let width = terminal_size::terminal_size_of(io::stderr()).map_or(WIDTH, |(width, _)| usize::from(width.0));
        let shown = shown(text, since.elapsed(), width);
        self.drawn = write!(io::stderr(), "{ERASE}{shown}").is_ok();
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}

/// One line, however narrow the terminal is: the last column stays free, or some terminals begin another.
fn shown(text: &str, took: Duration, width: usize) -> String {
    let time = format!(" {} s", took.as_secs());
    let room = width.saturating_sub(time.len() + 1);
    let mut shown: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(room).collect();
    if shown.chars().count() < text.chars().count() {
        shown.pop();
        shown.push('…');
    }
    shown + &time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_longer_than_the_terminal_is_wide() {
        let second = Duration::from_secs(12);
        assert_eq!(shown("hairpin: step 2 of 5", second, 80), "hairpin: step 2 of 5 12 s");
        assert_eq!(shown("hairpin: step 2 of 5", second, 20), "hairpin: step… 12 s");
        assert!(shown("a\nb", second, 80).starts_with("a b"));
        assert_eq!(shown("hairpin", second, 0), "… 12 s");
    }
}
