//! `hermes sessions`.

mod children;
mod prune;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use hermes_gateway::protocol::{
    ConversationId, ConversationSummary, Decision, Request, Response, Role, SearchOrder, SearchPage,
    SessionBranchParams, SessionCompressParams, SessionDecideParams, SessionExportParams, SessionFlagsParams,
    SessionRefParams, SessionReindexParams, SessionRenameParams, SessionSearchParams, SessionShowParams,
    SessionUndoParams,
};

use crate::args::{PickArgs, SessionArgs};
use crate::context::Context;
use crate::exit::{Exit, Fault};
use crate::link::{Link, request};
use crate::render::export::{self, Format};
use crate::render::lists;
use crate::talk::{self, Plan};
use crate::text::{harmless, one_line};

/// Rows of an export that are asked for at one time. Bounds what a long session takes in memory.
const EXPORT_PAGE_ROWS: usize = 10_000;
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Arguments of `hermes sessions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Sessions, newest activity first
    List {
        /// Most sessions
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: usize,
        /// Show those that were put away too
        #[arg(long)]
        archived: bool,
        /// One JSON object on each line
        #[arg(long)]
        json: bool,
    },
    /// One session with its rows
    Show {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Rows that hold words
    Search {
        /// Words, "phrases", pre*, *part*, with AND, OR and NOT; the shell may have signs of its own: quote *, ( and "
        #[arg(required = true, value_name = "WORDS")]
        text: Vec<String>,
        #[command(flatten)]
        filter: SearchArgs,
        /// One JSON object on each line
        #[arg(long)]
        json: bool,
    },
    /// Build the search index anew, after damage
    Reindex {
        /// Go on with what was interrupted, in place of a new index
        #[arg(long)]
        resume: bool,
    },
    /// Give a session a title
    Rename {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// The new title
        #[arg(allow_hyphen_values = true)]
        title: String,
    },
    /// Write a session, or all, to a file or to stdout
    Export {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE", required_unless_present = "all")]
        name: Option<String>,
        /// All sessions, in the format that `hermes import` reads
        #[arg(long, conflicts_with_all = ["name", "format"])]
        all: bool,
        /// How it is written
        #[arg(long, value_enum, default_value = "jsonl")]
        format: Format,
        /// The file; it must not exist yet. Stdout when left out
        #[arg(short = 'o', long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Bring conversations in: the same as `hermes import`
    Import(super::import::Args),
    /// Put a session away: the list and a search have it only with --archived
    Archive {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// Bring it back
        #[arg(long)]
        undo: bool,
    },
    /// Keep a session at hand: it is never pruned
    Pin {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// Let it go
        #[arg(long)]
        undo: bool,
    },
    /// Make a new session that begins where this one is
    Branch {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// Its title
        #[arg(long)]
        title: Option<String>,
    },
    /// Shorten what the model sees of a session: notes take the place of the earlier part. You still see all of it
    Compress {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// What the notes are to be about
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        focus: Option<String>,
    },
    /// What a session gave away to children, and how far they are
    Children {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// Stop this one, by its id or the beginning of it
        #[arg(long, value_name = "CHILD")]
        stop: Option<String>,
    },
    /// Decide what became of an input of which nobody knows: it blocks the session until then. Without a decision, show it
    Decide {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// What became of it
        #[arg(value_enum)]
        decision: Option<Decided>,
    },
    /// Undo the last inputs with all that came of them in the session (not what tools did)
    Undo {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// How many inputs
        #[arg(default_value_t = 1)]
        turns: usize,
    },
    /// Undo the last input and send it again. The first answer is kept, and no longer shown to the model
    Retry {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
    },
    /// Take the last undo back, when nothing was written since (a retry that was answered cannot be taken back)
    Redo {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
    },
    /// End sessions that nobody used for long, and remove those that were ended so long ago. Pinned ones stay.
    /// Asks first when no other session would stay as it is
    Prune {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        /// How long, in days; 90 when left out
        #[arg(long, value_name = "N")]
        days: Option<u32>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Delete a session. Asks first
    Delete {
        /// An id, the beginning of one, or a title
        #[arg(value_name = "ID|TITLE")]
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Where `hermes sessions search` looks.
#[derive(Debug, clap::Args)]
struct SearchArgs {
    /// Most rows
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only this session: an id, the beginning of one, or a title
    #[arg(long, value_name = "ID|TITLE")]
    session: Option<String>,
    /// Only sessions from here (cli, telegram, cron, ...)
    #[arg(long)]
    source: Option<String>,
    /// Only what this one said
    #[arg(long, value_enum)]
    role: Option<Speaker>,
    /// Only the last so many days
    #[arg(long, value_name = "N")]
    days: Option<u32>,
    /// Also archived sessions
    #[arg(long)]
    archived: bool,
    /// Also what children said that were given a task
    #[arg(long)]
    children: bool,
    /// Which rows come first
    #[arg(long, value_enum, default_value = "newest")]
    sort: Sort,
    /// With the rows before and after
    #[arg(long)]
    context: bool,
    /// The `next` of the page before
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Speaker {
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Sort {
    Rank,
    Newest,
    Oldest,
}

impl SearchArgs {
    /// What a person can try when nothing was found.
    fn tries(&self, text: &str) -> Vec<String> {
        let mut tries = Vec::new();
        let given = [
            ("--session", self.session.is_some()),
            ("--source", self.source.is_some()),
            ("--role", self.role.is_some()),
            ("--days", self.days.is_some()),
        ];
        let given: Vec<&str> = given.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect();
        if !given.is_empty() {
            tries.push(format!("leave out {}", given.join(" and ")));
        }
        let words = text.split_whitespace().count();
        if words > 1 {
            tries.push("fewer words, or OR between them (all must stand in one row)".to_owned());
        }
        if !text.contains('*') && words > 0 {
            tries.push("the beginning or a part of a word ('pre*', '*part*')".to_owned());
        }
        if !self.archived {
            tries.push("--archived".to_owned());
        }
        if !self.children && self.session.is_none() {
            tries.push("--children".to_owned());
        }
        tries
    }

    /// The request for it.
    async fn params(self, query: String, link: &mut Link) -> Result<SessionSearchParams, Fault> {
        let conversation = match &self.session {
            Some(name) => Some(resolve(link, name).await?.id),
            None => None,
        };
        let since_ms = self.days.map(|days| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(now.as_millis()).unwrap_or(i64::MAX).saturating_sub(i64::from(days) * DAY_MS)
        });
        Ok(SessionSearchParams {
            query,
            limit: self.limit,
            source: self.source,
            role: self.role.map(|role| match role {
                Speaker::User => Role::User,
                Speaker::Assistant => Role::Assistant,
                Speaker::Tool => Role::Tool,
            }),
            conversation,
            since_ms,
            until_ms: None,
            archived: self.archived,
            children: self.children,
            order: match self.sort {
                Sort::Rank => SearchOrder::Rank,
                Sort::Newest => SearchOrder::Newest,
                Sort::Oldest => SearchOrder::Oldest,
            },
            neighbours: self.context,
            cursor: self.after,
        })
    }
}

pub(super) fn run(args: Args, context: &Context) -> Result<Exit, Fault> {
    if let What::Import(args) = args.what {
        return super::import::run(args, context);
    }
    if let What::Delete { yes: false, .. } = args.what
        && !context.terminal.attended()
    {
        return Err(Fault::Usage("there is no terminal to ask on; --yes deletes without asking".to_owned()));
    }
    if let What::Retry { name } = args.what {
        let pick = PickArgs { last: false, resume: Some(name) };
        let session = SessionArgs { pick, ..SessionArgs::default() }.or(&context.session);
        return talk::run(context, &session, Plan::retry(context.json));
    }
    let select = context.session.select.clone();
    let needs_model = matches!(args.what, What::Compress { .. } | What::Decide { .. } | What::Children { .. });
    context.ask(&select, needs_model, async |link| execute(args.what, link, context, &mut io::stdout().lock()).await)
}

/// What is said when a page is empty and no other follows it.
fn nothing_found(page: &SearchPage, tries: &[String]) -> Option<String> {
    if !page.hits.is_empty() {
        return None;
    }
    if page.next.is_some() {
        return Some("Nothing was found among the rows looked through so far; go on with --after.".to_owned());
    }
    let tries = if tries.is_empty() { String::new() } else { format!(" Try: {}.", tries.join("; ")) };
    Some(format!("Nothing was found.{tries}"))
}

/// Builds the index part by part: each is one transaction, and an interruption loses none of them.
async fn reindex(link: &mut Link, resume: bool, out: &mut dyn Write) -> Result<(), Fault> {
    let mut begin = !resume;
    loop {
        let params = SessionReindexParams { begin };
        let part = request!(link, Request::SessionReindex(params), Response::Reindexed(part) => part)?;
        begin = false;
        if part.is_done {
            writeln!(out, "The search index holds {} rows.", part.status.rows)?;
            return Ok(());
        }
    }
}

/// What a person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Decided {
    /// It was done
    Done,
    /// It was tried, and failed
    Failed,
    /// It is given up
    GivenUp,
}

/// Shows the input that blocks a session, and decides about exactly what was shown.
async fn decide(
    link: &mut Link,
    conversation: ConversationId,
    decision: Option<Decided>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Fault> {
    let asked = Request::SessionUnknown(SessionRefParams { conversation });
    let found = request!(link, asked, Response::Unknown(found) => found)?;
    let Some(first) = found.into_iter().next() else {
        writeln!(out, "There is nothing to decide: what became of every input is known.")?;
        return Ok(());
    };
    let Some(decision) = decision else {
        if json {
            writeln!(out, "{}", serde_json::to_string(&first).map_err(|error| Fault::Failed(error.to_string()))?)?;
            return Ok(());
        }
        writeln!(out, "Nobody knows what became of: {}", harmless(&first.text))?;
        for call in &first.calls {
            let state = if call.was_begun { "may have had an effect" } else { "was not begun" };
            writeln!(out, "  {} {}: {state}", harmless(&call.name), harmless(&call.arguments))?;
        }
        writeln!(out, "Look what really happened, then say done, failed or given-up.")?;
        return Ok(());
    };
    let decision = match decision {
        Decided::Done => Decision::Done,
        Decided::Failed => Decision::Failed,
        Decided::GivenUp => Decision::GivenUp,
    };
    let params = SessionDecideParams { admission: first.admission, generation: first.generation, decision };
    request!(link, Request::SessionDecide(params), Response::Decided(_) => ())?;
    writeln!(out, "Decided. The session goes on.")?;
    Ok(())
}

async fn execute(what: What, link: &mut Link, context: &Context, out: &mut dyn Write) -> Result<Exit, Fault> {
    let (style, width) = (context.terminal.out_style(), context.terminal.width);
    match what {
        What::List { limit, archived, json } => {
            let list = link.list(limit, archived).await?;
            if json || context.json {
                for session in &list {
                    context.write_json(out, session)?;
                }
            } else {
                out.write_all(lists::sessions(&list, style, width).as_bytes())?;
            }
        }
        What::Show { name, json } => {
            let session = resolve(link, &name).await?;
            let shown = link.show(SessionShowParams { conversation: session.id, after_seq: 0, limit: 0 }).await?;
            if json || context.json {
                context.write_json(out, &shown)?;
            } else {
                out.write_all(lists::session(&shown, style).as_bytes())?;
            }
        }
        What::Search { text, .. } if text.iter().all(|word| word.trim().is_empty()) => {
            return Err(Fault::Usage(
                "there is nothing to search for; `hermes sessions list` shows all sessions".to_owned(),
            ));
        }
        What::Search { text, filter, json } => {
            let text = text.join(" ");
            let tries = filter.tries(&text);
            let params = filter.params(text, link).await?;
            let page = request!(link, Request::SessionSearch(params), Response::Found(page) => page)?;
            if json || context.json {
                for hit in &page.hits {
                    context.write_json(out, hit)?;
                }
            } else {
                out.write_all(lists::found(&page, style, width).as_bytes())?;
            }
            // To stderr, with --json too: stdout is an empty list, and says so by being empty.
            if let Some(note) = nothing_found(&page, &tries) {
                eprintln!("{note}");
            }
        }
        What::Reindex { resume } => reindex(link, resume, out).await?,
        What::Archive { name, undo } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionFlagsParams { conversation, archived: Some(!undo), pinned: None };
            request!(link, Request::SessionFlags(params), Response::Flagged(_) => ())?;
            writeln!(out, "{}", if undo { "The session is back." } else { "The session is put away." })?;
        }
        What::Pin { name, undo } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionFlagsParams { conversation, archived: None, pinned: Some(!undo) };
            request!(link, Request::SessionFlags(params), Response::Flagged(_) => ())?;
            writeln!(out, "{}", if undo { "The session is not pinned any more." } else { "The session is pinned." })?;
        }
        What::Branch { name, title } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionBranchParams { conversation, title };
            let new =
                request!(link, Request::SessionBranch(params), Response::Branched { conversation } => conversation)?;
            writeln!(out, "{new}")?;
        }
        What::Compress { name, focus } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionCompressParams { conversation, focus };
            let done = request!(link, Request::SessionCompress(params), Response::Compressed(done) => done)?;
            if context.json {
                context.write_json(out, &done)?;
            } else {
                writeln!(out, "About {} tokens are now {} ({} rows).", done.before, done.after, done.rows)?;
            }
        }
        What::Decide { name, decision } => {
            let conversation = link.find_exactly(&name).await?.id;
            decide(link, conversation, decision, context.json, out).await?;
        }
        What::Undo { name, turns } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionUndoParams { conversation, turns };
            let done = request!(link, Request::SessionUndo(params), Response::Undone(done) => done)?;
            writeln!(out, "{} rows are undone; the input was: {}", done.rows, one_line(&done.text, width))?;
        }
        // Done before this: one answers like `chat` does, the other is a command of its own.
        What::Retry { .. } | What::Import(_) => {}
        What::Children { name, stop } => {
            let conversation = resolve(link, &name).await?.id;
            children::children(conversation, stop, link, context, out).await?;
        }
        What::Redo { name } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionRefParams { conversation };
            let rows = request!(link, Request::SessionRedo(params), Response::Redone { rows } => rows)?;
            writeln!(out, "{rows} rows are back.")?;
        }
        What::Prune { dry_run, days, yes } => {
            prune::prune(prune::Wish { dry_run, days, yes }, link, context, out).await?;
        }
        What::Rename { name, title } => {
            let conversation = link.find_exactly(&name).await?.id;
            let params = SessionRenameParams { conversation, title };
            let title = request!(link, Request::SessionRename(params), Response::Renamed { title } => title)?;
            writeln!(out, "The title is now: {}", one_line(&title, width))?;
        }
        What::Export { name, all: _, format, output } => {
            let session = match name {
                Some(name) => Some(resolve(link, &name).await?),
                None => None,
            };
            match output {
                None => export_rows(link, session, format, out).await?,
                Some(path) => export_to_file(link, session, format, &path).await?,
            }
        }
        What::Delete { name, yes } => {
            let session = link.find_exactly(&name).await?;
            if !yes && !confirmed(session.clone(), width).await? {
                eprintln!("Nothing was deleted.");
                return Ok(Exit::Answered);
            }
            link.delete(SessionRefParams { conversation: session.id.clone() }).await?;
            writeln!(out, "Deleted {}", session.id)?;
        }
    }
    out.flush()?;
    Ok(Exit::Answered)
}

async fn resolve(link: &Link, name: &str) -> Result<ConversationSummary, Fault> {
    let found = link.find(name).await?;
    if let Some(note) = found.note {
        eprintln!("note: {}", crate::text::harmless(&note));
    }
    Ok(found.session)
}

async fn export_to_file(
    link: &Link,
    session: Option<ConversationSummary>,
    format: Format,
    path: &std::path::Path,
) -> Result<(), Fault> {
    let told = |error: io::Error| Fault::Failed(format!("{}: {error}", path.display()));
    // Never over a file that is there: an export is taken back by deleting it, an overwritten file by nothing.
    let file =
        std::fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Fault::Usage(format!(
                "{} is there already and is not written over; name another file with -o, or delete this one first",
                path.display()
            )),
            _ => told(error),
        })?;
    let mut writer = io::BufWriter::new(file);
    let result = export_rows(link, session, format, &mut writer).await;
    let result = result.and_then(|()| writer.flush().map_err(told));
    if result.is_err() {
        // Half an export must not look like one.
        let _ = std::fs::remove_file(path);
    }
    result
}

async fn export_rows(
    link: &Link,
    session: Option<ConversationSummary>,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Fault> {
    let session = match session {
        Some(session) if format != Format::Jsonl => session,
        all_or_one => return export_lines(link, all_or_one.map(|session| session.id), out).await,
    };
    let mut after_seq = 0;
    let mut first = true;
    loop {
        let conversation = session.id.clone();
        let shown = link.show(SessionShowParams { conversation, after_seq, limit: 0 }).await?;
        if std::mem::take(&mut first) {
            export::head(out, format, &shown.session)?;
        }
        for row in &shown.rows {
            export::row(out, format, row)?;
        }
        match shown.rows.last() {
            // A place that does not grow would never end.
            Some(last) if last.seq > after_seq && shown.rows.len() >= EXPORT_PAGE_ROWS => after_seq = last.seq,
            _ => break,
        }
    }
    export::tail(out, format)?;
    Ok(out.flush()?)
}

/// Writes what `hermes import` reads: one session, or all.
async fn export_lines(link: &Link, conversation: Option<ConversationId>, out: &mut dyn Write) -> Result<(), Fault> {
    let mut next = None;
    loop {
        let params = SessionExportParams { conversation: conversation.clone(), next };
        let piece = request!(link, Request::SessionExport(params), Response::Exported(piece) => piece)?;
        out.write_all(piece.text.as_bytes())?;
        next = piece.next;
        if next.is_none() {
            return Ok(out.flush()?);
        }
    }
}

/// Asks whether a session is to be deleted.
async fn confirmed(session: ConversationSummary, width: usize) -> Result<bool, Fault> {
    let name = one_line(&lists::name_of(&session), width.saturating_sub(40).max(20));
    typed_yes(format!(
        "Delete \"{name}\" ({}, {} rows)? It cannot be brought back. Type yes: ",
        session.id, session.messages
    ))
    .await
}

/// Asks on the terminal; nothing but `yes` means yes.
async fn typed_yes(question: String) -> Result<bool, Fault> {
    eprint!("{question}");
    io::stderr().flush()?;
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    })
    .await
    .map_err(|error| Fault::Failed(error.to_string()))??;
    Ok(line.trim() == "yes")
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
