//! Runs tools without a shell, with no variable but `PATH`, a deadline and bounded output.

use std::env;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A user's `PATH` often lacks the sbin directories.
const DIRECTORIES: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
/// The limit of standard error, in bytes; its first line is kept.
const COMPLAINTS: u64 = 64 << 10;

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) deadline: Duration,
    pub(super) largest: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("there is no {program} on this machine")]
    Missing { program: String },
    #[error("cannot run {program}: {source}")]
    Run { program: String, source: io::Error },
    #[error("{program} took longer than {deadline:?} and was killed")]
    Late { program: String, deadline: Duration },
    #[error("{program} printed more than {largest} bytes and was killed")]
    Long { program: String, largest: u64 },
    #[error("{program} failed ({status}): {said}")]
    Failed { program: String, status: ExitStatus, said: String },
}

pub(super) async fn run(command: &[&str], limits: Limits) -> Result<String, ToolError> {
    let [program, args @ ..] = command else { return Ok(String::new()) };
    let name = || (*program).to_owned();
    let mut child = start(program, args).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ToolError::Missing { program: name() },
        _ => ToolError::Run { program: name(), source },
    })?;
    let output = match timeout(limits.deadline, output(&mut child, limits.largest)).await {
        Ok(output) => output.map_err(|source| ToolError::Run { program: name(), source }),
        Err(_) => Err(ToolError::Late { program: name(), deadline: limits.deadline }),
    };
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            let _ = child.kill().await;
            return Err(error);
        }
    };
    if output.printed.len() as u64 > limits.largest {
        let _ = child.kill().await;
        return Err(ToolError::Long { program: name(), largest: limits.largest });
    }
    match output.status {
        Some(status) if !status.success() => {
            let said = String::from_utf8_lossy(&output.complaints);
            let said = said.lines().next().unwrap_or("it does not say why").trim().to_owned();
            Err(ToolError::Failed { program: name(), status, said })
        }
        _ => Ok(String::from_utf8_lossy(&output.printed).into_owned()),
    }
}

struct Output {
    printed: Vec<u8>,
    complaints: Vec<u8>,
    /// `None` if the tool printed too much and was not waited for.
    status: Option<ExitStatus>,
}

/// The tool has its own process group, so that the terminal's signals do not reach it.
fn start(program: &str, args: &[&str]) -> io::Result<Child> {
    let path = env::var("PATH").unwrap_or_default();
    let path = if path.is_empty() { DIRECTORIES.to_owned() } else { format!("{DIRECTORIES}:{path}") };
    Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Reads both pipes at once: a full pipe would block the tool.
async fn output(child: &mut Child, largest: u64) -> io::Result<Output> {
    let (printed, complaints) = (child.stdout.take(), child.stderr.take());
    let (printed, complaints) = tokio::try_join!(bounded(printed, largest + 1), drained(complaints))?;
    let status = if printed.len() as u64 > largest { None } else { Some(child.wait().await?) };
    Ok(Output { printed, complaints, status })
}

async fn bounded(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

async fn drained(from: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let Some(mut from) = from else { return Ok(Vec::new()) };
    let kept = bounded(Some(&mut from), COMPLAINTS).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LIMITS: Limits = Limits { deadline: Duration::from_secs(60), largest: 1000 };

    async fn refused(command: &[&str]) -> String {
        run(command, LIMITS).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn every_end_is_told() {
        assert_eq!(run(&["echo", "hello"], LIMITS).await.unwrap(), "hello\n");
        assert_eq!(refused(&["no-such-tool"]).await, "there is no no-such-tool on this machine");
        let failed = refused(&["sh", "-c", "echo first >&2; echo second >&2; exit 3"]).await;
        assert_eq!(failed, "sh failed (exit status: 3): first");
        let long = refused(&["sh", "-c", "while :; do echo xxxxxxxxxxxxxxxx; done"]).await;
        assert_eq!(long, "sh printed more than 1000 bytes and was killed");
    }

    #[tokio::test]
    async fn who_is_late_is_killed() {
        let start = Instant::now();
        let limits = Limits { deadline: Duration::from_millis(300), ..LIMITS };
        let late = run(&["sleep", "60"], limits).await.unwrap_err().to_string();
        assert_eq!(late, "sleep took longer than 300ms and was killed");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn nothing_of_the_environment_is_passed_on() {
        let environment = run(&["env"], LIMITS).await.unwrap();
        let names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(names.iter().all(|name| ["PATH", "LC_ALL", "PWD"].contains(name)), "{names:?}");
        assert!(environment.contains("LC_ALL=C") && environment.contains("/usr/sbin"), "{environment}");
    }
}
