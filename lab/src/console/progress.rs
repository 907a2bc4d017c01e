//! The progress line on a terminal: the current work and its time.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(200);
/// The assumed width of terminals that do not report it.
const WIDTH: usize = 80;
/// ECMA-48: carriage return, erase line.
const ERASE: &str = "\r\u{1b}[2K";

#[derive(Default)]
struct ProgressLine {
    text: Option<(String, Instant)>,
    drawn: bool,
}

static LINE: Mutex<ProgressLine> = Mutex::new(ProgressLine { text: None, drawn: false });
static ENABLED: OnceLock<bool> = OnceLock::new();

fn line() -> MutexGuard<'static, ProgressLine> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the line if standard error is a terminal. Starts a thread, so call it after entering the sandbox.
pub(crate) fn enable() {
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

pub(crate) fn set(text: impl Into<String>) {
    if ENABLED.get().is_some() {
        let mut line = line();
        line.text = Some((text.into(), Instant::now()));
        line.draw();
    }
}

pub(crate) fn clear() {
    let mut line = line();
    line.text = None;
    line.erase();
}

/// Erases the line and calls `write`. The next tick draws the line again.
pub(crate) fn without<T>(write: impl FnOnce() -> T) -> T {
    let mut line = line();
    line.erase();
    write()
}

impl ProgressLine {
    fn draw(&mut self) {
        let Some((text, since)) = &self.text else { return };
        let width = terminal_size::terminal_size_of(io::stderr()).map_or(WIDTH, |(width, _)| usize::from(width.0));
        let shown = cut(text, since.elapsed(), width);
        self.drawn = write!(io::stderr(), "{ERASE}{shown}").is_ok();
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}

/// Cuts the line to the width, without the last column: some terminals wrap after it.
fn cut(text: &str, took: Duration, width: usize) -> String {
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
    fn a_line_is_cut_to_the_width_of_the_terminal() {
        let second = Duration::from_secs(12);
        assert_eq!(cut("hairpin: step 2 of 5", second, 80), "hairpin: step 2 of 5 12 s");
        assert_eq!(cut("hairpin: step 2 of 5", second, 20), "hairpin: step… 12 s");
        assert!(cut("a\nb", second, 80).starts_with("a b"));
        assert_eq!(cut("hairpin", second, 0), "… 12 s");
    }
}
