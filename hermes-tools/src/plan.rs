//! Cuts a round into segments: what may run side by side, and what must wait.

use std::path::{Path, PathBuf};

use crate::executor::PreparedCall;
use crate::paths;
use crate::tool::{Concurrency, ToolContext};

/// A path of a call with its links followed.
#[derive(Debug, Clone)]
struct Claim {
    path: PathBuf,
    writes: bool,
}

/// The calls of a round in segments, in call order. The calls of one segment may run side by side; a segment begins when
/// the one before it has ended.
pub(crate) async fn segments(batch: Vec<PreparedCall>, cx: &ToolContext) -> Vec<Vec<PreparedCall>> {
    let mut segments: Vec<Vec<PreparedCall>> = Vec::new();
    let mut claims: Vec<Claim> = Vec::new();
    let mut open = false;
    for call in batch {
        let wanted = match call.tool.spec().concurrency {
            Concurrency::Barrier => {
                segments.push(vec![call]);
                open = false;
                continue;
            }
            Concurrency::Shared => Vec::new(),
            Concurrency::Paths => claims_of(&call, cx).await,
        };
        if !open || conflict(&claims, &wanted) {
            segments.push(Vec::new());
            claims.clear();
            open = true;
        }
        claims.extend(wanted);
        if let Some(segment) = segments.last_mut() {
            segment.push(call);
        }
    }
    segments
}

async fn claims_of(call: &PreparedCall, cx: &ToolContext) -> Vec<Claim> {
    let mut claims = Vec::new();
    for used in call.tool.paths(&call.call, cx) {
        claims.push(Claim { path: paths::real(used.path).await, writes: used.writes });
    }
    claims
}

fn conflict(held: &[Claim], wanted: &[Claim]) -> bool {
    held.iter().any(|a| wanted.iter().any(|b| (a.writes || b.writes) && overlap(&a.path, &b.path)))
}

/// Equal, or one inside the other.
fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(path: &str, writes: bool) -> Claim {
        Claim { path: PathBuf::from(path), writes }
    }

    #[test]
    fn t15_a_writer_conflicts_with_equal_inner_and_outer_paths() {
        let writer = [claim("/d", true)];
        assert!(conflict(&writer, &[claim("/d/x", false)]));
        assert!(conflict(&writer, &[claim("/", true)]));
        assert!(conflict(&writer, &[claim("/d", true)]));
        assert!(!conflict(&writer, &[claim("/dx", true)]));
        assert!(!conflict(&[claim("/d", false)], &[claim("/d", false)]));
    }
}
