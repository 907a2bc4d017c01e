use svclab_cluster::process::ProcessEnd;

use super::error::LabError;
use super::lab::KernelLab;
use crate::expect::Mismatch;
use crate::scenario::execute::StepOutcome;
use crate::scenario::file::{ExecFile, ExpectFile};
use crate::scenario::resolve;
use crate::scenario::values::{OneOrMany, PlainText};

impl KernelLab {
    pub(super) async fn command(&self, exec: &ExecFile, expect: &ExpectFile) -> Result<StepOutcome, LabError> {
        let place = self.store.read(|store| resolve::place(store, &exec.at))?;
        let output = self.exec(&place, &exec.command).await?;
        let mut broken = Vec::new();
        let wanted = ProcessEnd::Exited(expect.status.unwrap_or(0));
        if output.ended != wanted {
            let seen = format!("{:?}: {}{}", output.ended, output.stdout.trim(), output.stderr.trim());
            broken.push(Mismatch::new(format!("{} ends with {wanted:?}", exec.command.join(" ")), seen));
        }
        let text = format!("{}{}", output.stdout, output.stderr);
        for part in texts(expect.output.as_ref()).filter(|part| !text.contains(*part)) {
            broken.push(Mismatch::new(format!("output with {part:?}"), text.trim()));
        }
        for part in texts(expect.lacks.as_ref()).filter(|part| text.contains(*part)) {
            broken.push(Mismatch::new(format!("output without {part:?}"), text.trim()));
        }
        Ok(StepOutcome::new(text.lines().next().unwrap_or_default(), broken))
    }
}

fn texts(list: Option<&OneOrMany<PlainText>>) -> impl Iterator<Item = &str> {
    list.into_iter().flat_map(|list| &list.0).map(|text| text.value.0.as_str())
}
