//! How much of a result a model is shown; the rest goes to a file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::run::ExecutorLimits;
use crate::text::{clean_controls, cut_chars, head_tail};
use crate::tool::{CallReport, ToolScope};

/// Characters that one token stands for, roughly, when a budget is scaled to a model's window.
const CHARS_PER_TOKEN: u64 = 4;

/// Part of the window that one result may fill, in percent (tools reference, 4.4).
const RESULT_WINDOW_PERCENT: u64 = 15;

/// Part of the window that one round's results may fill, in percent.
const ROUND_WINDOW_PERCENT: u64 = 30;

/// What a result may always have, in characters, however small the window.
const RESULT_FLOOR_CHARS: usize = 8_000;

/// What a round may always have, in characters, however small the window.
const ROUND_FLOOR_CHARS: usize = 16_000;

/// Part of a cut text that is its beginning, in percent.
const HEAD_PERCENT: usize = 40;

/// Longest part of a call id in a file name, in bytes.
const FILE_ID_BYTES: usize = 64;

/// What is left of a round's budget.
pub(crate) struct RoundBudget {
    result_chars: usize,
    round_chars: usize,
    used_chars: usize,
    preview_chars: usize,
    dir: Option<PathBuf>,
}

impl RoundBudget {
    /// The budget of a round, scaled to the model's window (tokens).
    pub(crate) fn new(limits: &ExecutorLimits, window: Option<u64>, scope: &ToolScope) -> Self {
        let scaled = |max: usize, percent: u64, floor: usize| match window {
            None => max,
            Some(tokens) => {
                let chars = tokens.saturating_mul(CHARS_PER_TOKEN).saturating_mul(percent) / 100;
                max.min(usize::try_from(chars).unwrap_or(usize::MAX)).max(floor.min(max))
            }
        };
        Self {
            result_chars: scaled(limits.result_max_chars, RESULT_WINDOW_PERCENT, RESULT_FLOOR_CHARS),
            round_chars: scaled(limits.round_max_chars, ROUND_WINDOW_PERCENT, ROUND_FLOOR_CHARS),
            used_chars: 0,
            preview_chars: limits.preview_chars,
            dir: scope.home.as_ref().map(|home| home.join("cache").join("spillover")),
        }
    }

    /// The report as it may be shown: control characters made visible, and cut when it is too long for itself or for
    /// what the round has left. `own_max` is the tool's own limit ([`crate::ToolSpec::result_max_chars`]).
    pub(crate) async fn fit(&mut self, id: &str, own_max: Option<usize>, mut report: CallReport) -> CallReport {
        if let std::borrow::Cow::Owned(clean) = clean_controls(&report.content) {
            report.content = clean;
        }
        let chars = report.content.chars().count();
        let max = own_max.unwrap_or(self.result_chars);
        let limits_itself = own_max == Some(usize::MAX);
        let left = self.round_chars.saturating_sub(self.used_chars);
        // A result that is shorter than its own preview would not get shorter.
        let too_long = chars > max || (!limits_itself && chars > left && chars > self.preview_chars);
        if too_long {
            report = self.spill(id, max.min(left), chars, report).await;
        }
        self.used_chars += if too_long { report.content.chars().count() } else { chars };
        report
    }

    async fn spill(&self, id: &str, max: usize, chars: usize, mut report: CallReport) -> CallReport {
        let bytes = report.content.len();
        let written = match &self.dir {
            None => None,
            Some(dir) => match write_private(dir, &file_name(id, &report.content), report.content.as_bytes()).await {
                Ok(path) => Some(path),
                Err(error) => {
                    tracing::warn!(%error, "a long result could not be spilled; it is cut");
                    None
                }
            },
        };
        match written {
            Some(path) => {
                let preview = cut_chars(&report.content, self.preview_chars).into_owned();
                report.content = format!(
                    "<persisted-output>\nThis result is {chars} characters ({bytes} bytes). All of it is in:\n{}\nRead it \
                     in parts with read_file (offset, limit) or search it. It begins:\n{preview}\n</persisted-output>",
                    path.display()
                );
                let meta = report.meta.get_or_insert_with(|| json!({}));
                if let Value::Object(meta) = meta {
                    meta.insert("spill_path".to_owned(), json!(path));
                    meta.insert("spill_bytes".to_owned(), json!(bytes));
                }
            }
            None => {
                // A round that is used up still gets a preview of each result.
                if let Some(cut) = head_tail(&report.content, max.max(self.preview_chars), HEAD_PERCENT) {
                    report.content = format!(
                        "{}\n[{} of {chars} characters left out here; they were not kept]\n{}",
                        cut.head, cut.omitted, cut.tail
                    );
                }
            }
        }
        report
    }
}

/// A name that is safe whatever the id holds, and new for other content: ids are unique in one conversation only.
fn file_name(id: &str, content: &str) -> String {
    let safe: String = id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' })
        .take(FILE_ID_BYTES)
        .collect();
    let digest = Sha256::digest(content.as_bytes());
    let mark: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{safe}-{mark}.txt")
}

/// Writes a file that only its owner can read, in directories that only he can enter.
async fn write_private(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<PathBuf> {
    let mut builder = tokio::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(dir).await?;
    let path = dir.join(name);
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    options.mode(0o600);
    let mut file = options.open(&path).await?;
    file.write_all(bytes).await?;
    file.flush().await?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::CallOutcome;

    fn budget(home: Option<&Path>, window: Option<u64>) -> RoundBudget {
        let scope = ToolScope { profile: "p".to_owned(), home: home.map(Path::to_owned) };
        RoundBudget::new(&ExecutorLimits::default(), window, &scope)
    }

    #[tokio::test]
    async fn t24_e55_a_long_result_is_spilled_whole_and_previewed() {
        let home = tempfile::tempdir().unwrap();
        let text = "é".repeat(300_000);
        let report = CallReport::new(CallOutcome::Ok, text.clone());
        let report = budget(Some(home.path()), None).fit("../call/1", None, report).await;
        assert!(report.content.starts_with("<persisted-output>"));
        assert!(report.content.contains("300000 characters (600000 bytes)"), "{}", report.content);
        assert!(report.content.matches('é').count() <= 1_500);
        let path = report.meta.unwrap()["spill_path"].as_str().unwrap().to_owned();
        assert!(report.content.contains(&path));
        assert!(path.starts_with(home.path().to_str().unwrap()) && !path.contains(".."));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(Path::new(&path)), 0o600);
            assert_eq!(mode(&home.path().join("cache/spillover")), 0o700);
            assert_eq!(mode(&home.path().join("cache")), 0o700);
        }
    }

    #[tokio::test]
    async fn t25_a_round_stays_below_its_total() {
        let home = tempfile::tempdir().unwrap();
        let mut budget = budget(Some(home.path()), None);
        let mut total = 0;
        for n in 0..3 {
            let report = CallReport::new(CallOutcome::Ok, "x".repeat(90_000));
            total += budget.fit(&format!("c{n}"), None, report).await.content.len();
        }
        assert!(total <= 200_000, "{total}");
    }

    #[tokio::test]
    async fn without_a_home_a_long_result_is_cut_with_a_note() {
        let report = CallReport::new(CallOutcome::Ok, "y".repeat(150_000));
        let report = budget(None, None).fit("c", None, report).await;
        assert!(report.content.contains("50000 of 150000 characters left out"), "cut");
        assert!(report.content.len() < 100_200);
    }

    #[tokio::test]
    async fn budgets_follow_the_model_window_down_to_a_floor() {
        assert_eq!(budget(None, Some(100_000)).result_chars, 60_000);
        assert_eq!(budget(None, Some(1_000)).result_chars, 8_000);
        assert_eq!(budget(None, Some(1_000)).round_chars, 16_000);
        assert_eq!(budget(None, Some(u64::MAX)).result_chars, 100_000);
    }

    #[tokio::test]
    async fn c7_control_characters_of_a_result_are_made_safe() {
        let report = budget(None, None).fit("c", None, CallReport::new(CallOutcome::Ok, "a\0b\u{1b}[2J")).await;
        assert_eq!(report.content, "a␀b␛[2J");
    }

    #[tokio::test]
    async fn a_tool_that_limits_itself_is_never_spilled() {
        let report = CallReport::new(CallOutcome::Ok, "x".repeat(150_000));
        let report = budget(None, Some(1_000)).fit("c", Some(usize::MAX), report).await;
        assert_eq!(report.content.len(), 150_000);
    }
}
