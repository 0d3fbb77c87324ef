//! Files of the prompt: the profile's own (`SOUL.md`, `memories/`) and those of the project.
//!
//! One kind of project file only, the first that is there: `.hermes.md` or `HERMES.md`, nearest to the working
//! directory up to the repository's root; the chain of `AGENTS.md` from the root down; `CLAUDE.md`; `.cursorrules`.
//! A file that does not come in time is left out with a note: a hanging file system must not hold up a turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hermes_core::{ContextFile, PromptMaterial, PromptSource};

use crate::clock::date_of;
use crate::workspace;

/// Largest file that is read into a prompt at all; the engine cuts what it keeps much further.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Most directories between a working directory and the root of its repository.
const ANCESTORS_MAX: usize = 64;

/// Reads prompt files of one profile, and looks at the workspace.
pub(crate) struct FilePrompt {
    pub(crate) profile: String,
    pub(crate) soul: PathBuf,
    pub(crate) memory: PathBuf,
    pub(crate) user: PathBuf,
    pub(crate) read_timeout: Duration,
    /// The program that says what a repository looks like.
    pub(crate) git: PathBuf,
    pub(crate) clock: Arc<dyn hermes_core::Clock>,
}

impl FilePrompt {
    /// The text of a file; `None` when there is none. What goes wrong becomes a note.
    async fn read(&self, path: &Path, notes: &mut Vec<String>) -> Option<String> {
        match tokio::time::timeout(self.read_timeout, read_text(path)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                notes.push(format!("{} was left out of the prompt: {error}", path.display()));
                None
            }
            Err(_) => {
                notes.push(format!(
                    "{} was left out of the prompt: it could not be read within {} s",
                    path.display(),
                    self.read_timeout.as_secs_f32()
                ));
                None
            }
        }
    }

    async fn first_of(&self, dir: &Path, names: &[&str], notes: &mut Vec<String>) -> Option<ContextFile> {
        for name in names {
            let path = dir.join(name);
            if let Some(text) = self.read(&path, notes).await.filter(|text| !text.trim().is_empty()) {
                return Some(ContextFile { name: path.display().to_string(), text });
            }
        }
        None
    }

    async fn project_files(&self, cwd: &Path, notes: &mut Vec<String>) -> Vec<ContextFile> {
        let chain = match tokio::time::timeout(self.read_timeout, repository_chain(cwd)).await {
            Ok(chain) => chain,
            Err(_) => {
                notes.push(format!("project files of {} were left out: the directory does not answer", cwd.display()));
                return Vec::new();
            }
        };
        for dir in &chain {
            if let Some(mut file) = self.first_of(dir, &[".hermes.md", "HERMES.md"], notes).await {
                file.text = without_front_matter(&file.text).to_owned();
                return vec![file];
            }
        }
        let mut agents: Vec<ContextFile> = Vec::new();
        for dir in chain.iter().rev() {
            let names = ["AGENTS.override.md", "AGENTS.md", "agents.md"];
            if let Some(file) = self.first_of(dir, &names, notes).await
                && !agents.iter().any(|known| known.text == file.text)
            {
                agents.push(file);
            }
        }
        if !agents.is_empty() {
            return agents;
        }
        let single = self.first_of(cwd, &["CLAUDE.md", "claude.md", ".cursorrules"], notes).await;
        single.into_iter().collect()
    }

    /// What the repository around `cwd` looks like, when there is one.
    async fn workspace(&self, cwd: Option<&str>) -> Result<Option<String>, String> {
        let Some(cwd) = cwd else { return Ok(None) };
        let chain = tokio::time::timeout(self.read_timeout, repository_chain(Path::new(cwd))).await;
        // One that does not answer is told with the project's files.
        let Some(root) = chain.ok().and_then(|mut chain| chain.pop()) else { return Ok(None) };
        if !tokio::fs::try_exists(root.join(".git")).await.unwrap_or(false) {
            return Ok(None);
        }
        workspace::snapshot(&self.git, &root, Duration::from_millis(workspace::PROBE_MS)).await
    }
}

/// The working directory and its parents up to the root of its repository; only itself outside of one.
async fn repository_chain(cwd: &Path) -> Vec<PathBuf> {
    let mut chain = Vec::new();
    for dir in cwd.ancestors().take(ANCESTORS_MAX) {
        chain.push(dir.to_owned());
        if tokio::fs::try_exists(dir.join(".git")).await.unwrap_or(false) {
            return chain;
        }
    }
    vec![cwd.to_owned()]
}

async fn read_text(path: &Path) -> std::io::Result<Option<String>> {
    let metadata = match tokio::fs::metadata(path).await {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // A pipe or a device would never end.
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.len() > FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {FILE_MAX_BYTES} bytes")));
    }
    let bytes = tokio::fs::read(path).await?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The text after a YAML front matter.
fn without_front_matter(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("---\n") else { return text };
    rest.split_once("\n---\n").map_or(text, |(_, body)| body)
}

#[async_trait]
impl PromptSource for FilePrompt {
    async fn material(&self, cwd: Option<&str>) -> PromptMaterial {
        let mut notes = Vec::new();
        let files = async {
            let soul = self.read(&self.soul, &mut notes).await;
            let memory = self.read(&self.memory, &mut notes).await;
            let user = self.read(&self.user, &mut notes).await;
            let files = match cwd {
                Some(cwd) => self.project_files(Path::new(cwd), &mut notes).await,
                None => Vec::new(),
            };
            (soul, memory, user, files)
        };
        // Side by side: git takes about as long as all of the files.
        let ((soul, memory, user, files), workspace) = tokio::join!(files, self.workspace(cwd));
        let workspace = workspace.unwrap_or_else(|note| {
            notes.push(note);
            None
        });
        PromptMaterial {
            soul,
            files,
            workspace,
            memory,
            user,
            cwd: cwd.map(str::to_owned),
            profile: self.profile.clone(),
            date: date_of(self.clock.now_ms()),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            notes,
            ..PromptMaterial::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;

    fn source(home: &Path) -> FilePrompt {
        FilePrompt {
            profile: "default".into(),
            soul: home.join("SOUL.md"),
            memory: home.join("memories/MEMORY.md"),
            user: home.join("memories/USER.md"),
            read_timeout: Duration::from_secs(5),
            git: home.join("no-git"),
            clock: Arc::new(TokioClock::default()),
        }
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    async fn names(root: &Path, cwd: &Path) -> Vec<String> {
        let material = source(root).material(cwd.to_str()).await;
        material.files.iter().map(|file| file.text.clone()).collect()
    }

    #[tokio::test]
    async fn one_kind_of_project_file_in_the_order_of_precedence() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        let cwd = root.join("a/b");
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::create_dir_all(&cwd).unwrap();
        write(&dir.path().join("AGENTS.md"), "outside");
        assert!(names(dir.path(), &cwd).await.is_empty());
        write(&cwd.join("CLAUDE.md"), "claude");
        assert_eq!(names(dir.path(), &cwd).await, ["claude"]);
        write(&root.join("AGENTS.md"), "root rules");
        write(&root.join("a/AGENTS.md"), "root rules");
        write(&cwd.join("AGENTS.md"), "near rules");
        assert_eq!(names(dir.path(), &cwd).await, ["root rules", "near rules"]);
        write(&root.join("HERMES.md"), "---\nx: 1\n---\nhermes rules");
        assert_eq!(names(dir.path(), &cwd).await, ["hermes rules"]);
    }

    #[tokio::test]
    async fn the_profile_s_files_are_read_and_strange_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("SOUL.md"), "soul \u{fffd}");
        write(&dir.path().join("memories/USER.md"), "Ada");
        std::fs::create_dir_all(dir.path().join("memories/MEMORY.md")).unwrap();
        let material = source(dir.path()).material(None).await;
        assert_eq!(material.soul.as_deref(), Some("soul \u{fffd}"));
        assert_eq!(material.user.as_deref(), Some("Ada"));
        assert_eq!(material.memory, None);
        assert!(material.notes.is_empty());
    }

    #[tokio::test]
    async fn e32_a_pipe_that_nobody_writes_does_not_hold_up_the_prompt() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("SOUL.md");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(source(dir.path()).material(None).await.soul, None);
    }
}
