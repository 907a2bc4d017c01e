use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::ControlPlaneError;

/// Maximum number of stored log lines.
const KEPT: usize = 200;
/// Number of log lines in an error message.
const SHOWN: usize = 3;

pub(crate) struct ChildProgram {
    name: &'static str,
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl ChildProgram {
    pub(crate) fn start(directory: &Path, name: &'static str, args: &[String]) -> Result<Self, ControlPlaneError> {
        let mut command = Command::new(directory.join(name));
        // An empty environment: only flags configure the program.
        command.args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).process_group(0);
        svclab_netns::die_with_this_process(command.as_std_mut());
        let child = command.spawn();
        let mut child = child.map_err(ControlPlaneError::io(format!("starting {}", directory.join(name).display())))?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(output) = child.stdout.take() {
            tokio::spawn(read(output, Arc::clone(&log)));
        }
        if let Some(output) = child.stderr.take() {
            tokio::spawn(read(output, Arc::clone(&log)));
        }
        Ok(ChildProgram { name, child, log })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) async fn kill(&mut self) -> Result<(), ControlPlaneError> {
        self.child.kill().await.map_err(ControlPlaneError::io(format!("ending {}", self.name)))
    }

    pub(crate) fn alive(&mut self) -> Result<(), ControlPlaneError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.failed(format!("has ended: {status}"))),
            Err(error) => Err(self.failed(format!("cannot be checked: {error}"))),
        }
    }

    pub(crate) fn failed(&self, problem: String) -> ControlPlaneError {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let last = log.iter().skip(log.len().saturating_sub(SHOWN)).cloned().collect::<Vec<_>>().join(" | ");
        ControlPlaneError::Daemon { program: self.name, problem, log: last }
    }
}

async fn read(output: impl AsyncRead + Unpin, log: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == KEPT {
            log.pop_front();
        }
        log.push_back(line);
    }
}
