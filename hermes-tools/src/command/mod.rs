//! What a shell command would run, and what is to be said of it.

use crate::paths::Homes;

/// Where a command would run.
pub(crate) struct Ground {
    pub(crate) cwd: std::path::PathBuf,
    pub(crate) homes: Homes,
}

/// What a person has to be asked about.
pub(crate) struct Finding {
    pub(crate) reason: String,
    pub(crate) pattern: String,
}

/// What is to be said of a command.
pub(crate) struct Assessment {
    pub(crate) never: Vec<String>,
    pub(crate) ask: Vec<Finding>,
}

pub(crate) struct Reading;
pub(crate) fn read(_text: &str) -> Reading {
    Reading
}
pub(crate) fn assess(_text: &str, _reading: &Reading, ground: &Ground) -> Assessment {
    let _ = (&ground.cwd, &ground.homes);
    Assessment { never: vec![], ask: vec![Finding { reason: "runs a command".into(), pattern: "command".into() }] }
}
pub(crate) fn any_matches(_glob: &str, _text: &str, _r: &Reading) -> bool {
    false
}
pub(crate) fn all_match(_globs: &[String], _text: &str, _r: &Reading) -> bool {
    false
}
