//! The one judge of calls: what never runs, what runs, what a person is asked about.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use crate::approval::{ApprovalAnswer, ApprovalMode, ApprovalRequest, Authorized, Denial, Presence, Risk};
use crate::command::{self, Ground};
use crate::executor::PreparedCall;
use crate::judge::{self, JUDGE_REFUSALS_MAX, JUDGED_COMMAND_MAX_BYTES, JudgeCase, Judgement, Ruling};
use crate::paths::{self, Homes, PathVerdict};
use crate::tool::{Call, CallProgress, ToolContext};

/// How long an answer is waited for when nothing else is configured, in milliseconds (`approvals.timeout`: 300 s).
pub const DEFAULT_APPROVAL_TIMEOUT_MS: u64 = 300_000;

/// What a policy is made of.
#[derive(Debug, Clone)]
pub struct PolicyConfig {
    /// How questions are answered in general.
    pub mode: ApprovalMode,
    /// Whether somebody is there.
    pub presence: Presence,
    /// What was allowed "always" (`command_allowlist`): patterns of earlier requests, or globs on commands.
    pub allow_list: Vec<String>,
    /// Globs on commands that never run (`approvals.deny`), whatever the mode.
    pub deny: Vec<String>,
    /// How long an answer is waited for, in milliseconds.
    pub timeout_ms: u64,
    /// Refusals by a judge in a row after which the model is told to stop; 0 = never
    /// (`approvals.denial_breaker_threshold`).
    pub judge_refusals_max: u32,
}

impl Default for PolicyConfig {
    /// Asks a person about what is dangerous; nothing is allowed or denied in advance.
    fn default() -> Self {
        Self {
            mode: ApprovalMode::Prompt,
            presence: Presence::Attended,
            allow_list: Vec::new(),
            deny: Vec::new(),
            timeout_ms: DEFAULT_APPROVAL_TIMEOUT_MS,
            judge_refusals_max: JUDGE_REFUSALS_MAX,
        }
    }
}

/// What is to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    subject: String,
    reasons: Vec<String>,
    patterns: Vec<String>,
    /// What a judge may be asked first.
    case: Option<JudgeCase>,
}

/// What the policy says without asking anybody.
#[derive(Debug)]
pub(crate) enum Verdict {
    Allow(Authorized<Call>),
    Deny(Denial),
    Ask(Question),
}

/// Judges calls. One policy serves a conversation in this process.
pub struct ApprovalPolicy {
    config: PolicyConfig,
    /// One question at a time.
    turn_to_ask: Semaphore,
    /// Patterns that were allowed "always" since the start.
    always: Mutex<Vec<String>>,
    /// Questions that are open, by what they are about: the same question again waits for the same answer.
    open: Mutex<HashMap<String, watch::Receiver<Option<ApprovalAnswer>>>>,
    next_id: AtomicU64,
}

impl std::fmt::Debug for ApprovalPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApprovalPolicy").field("config", &self.config).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ApprovalPolicy {
    /// A policy.
    #[must_use]
    pub fn new(config: PolicyConfig) -> Self {
        Self {
            config,
            turn_to_ask: Semaphore::new(1),
            always: Mutex::default(),
            open: Mutex::default(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Judges a call, and asks a person where that is needed.
    ///
    /// # Errors
    /// [`Denial`] when the call may not run.
    pub async fn authorize(&self, prepared: &PreparedCall, cx: &ToolContext) -> Result<Authorized<Call>, Denial> {
        match self.judge(prepared, cx).await {
            Verdict::Allow(authorized) => Ok(authorized),
            Verdict::Deny(denial) => Err(denial),
            Verdict::Ask(question) => self.ask(prepared, cx, question).await,
        }
    }

    /// Judges a call without asking anybody.
    pub(crate) async fn judge(&self, prepared: &PreparedCall, cx: &ToolContext) -> Verdict {
        match prepared.tool.risk(&prepared.call, cx) {
            Risk::None => allow(prepared),
            Risk::Read { path } => match paths::may_read(&paths::real(path).await, &homes(cx).await) {
                PathVerdict::Never(why) => hard(&why),
                // Reading is never asked about today; a rule that says so is asked like a write.
                PathVerdict::Ask(why) => self.judge_reasons(prepared, cx, vec![why]),
                PathVerdict::Free => allow(prepared),
            },
            Risk::Write { paths } => self.judge_writes(prepared, cx, paths).await,
            Risk::Command { command, workdir } => self.judge_command(prepared, cx, &command, workdir).await,
            Risk::Ask { why } => self.judge_reasons(prepared, cx, vec![why]),
        }
    }

    async fn judge_writes(&self, prepared: &PreparedCall, cx: &ToolContext, written: Vec<PathBuf>) -> Verdict {
        let homes = homes(cx).await;
        let mut reasons = Vec::new();
        for path in written {
            // The link itself and what it leads to: neither may be protected.
            let real = paths::real(path.clone()).await;
            for path in [&path, &real] {
                match paths::may_write(path, &homes) {
                    PathVerdict::Never(why) => return hard(&why),
                    PathVerdict::Ask(why) if !reasons.contains(&why) => reasons.push(why),
                    PathVerdict::Ask(_) | PathVerdict::Free => {}
                }
            }
        }
        self.judge_reasons(prepared, cx, reasons)
    }

    fn judge_reasons(&self, prepared: &PreparedCall, cx: &ToolContext, reasons: Vec<String>) -> Verdict {
        let subject = prepared.tool.label(&prepared.call);
        let patterns = reasons.iter().map(|why| format!("{}: {why}", prepared.call.name)).collect();
        // Only a person decides about these: what is sent, spent or written for others to obey is no question of danger.
        self.decide(prepared, cx, Question { subject, reasons, patterns, case: None })
    }

    async fn judge_command(&self, prepared: &PreparedCall, cx: &ToolContext, text: &str, workdir: PathBuf) -> Verdict {
        let ground = Ground {
            cwd: paths::real(workdir).await,
            homes: homes(cx).await,
            env: Arc::new(cx.session.config().env.clone()),
        };
        let (judged, place) = (text.to_owned(), ground.cwd.clone());
        // Paths are looked up on disk, so not on a thread that others wait for.
        let work = tokio::task::spawn_blocking(move || {
            let reading = command::read(&judged, &ground);
            let assessment = command::assess(&reading, &ground);
            (reading, assessment)
        });
        let Ok((reading, assessment)) = work.await else { return hard("the command could not be read") };
        if let Some(why) = assessment.never.first() {
            return hard(why);
        }
        if let Some(glob) = self.config.deny.iter().find(|glob| command::any_matches(glob, &reading)) {
            return hard(&format!("the configuration denies commands that match {glob:?}"));
        }
        if self.config.mode == ApprovalMode::Off || command::all_match(&self.config.allow_list, &reading) {
            return allow(prepared);
        }
        let (mut reasons, mut patterns): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for finding in assessment.ask {
            if !patterns.contains(&finding.pattern) {
                reasons.push(finding.reason);
                patterns.push(finding.pattern);
            }
        }
        let case = (text.len() <= JUDGED_COMMAND_MAX_BYTES).then(|| JudgeCase {
            call_id: prepared.call.id.clone(),
            tool: prepared.call.name.clone(),
            command: command::without_comments(text),
            workdir: place,
            reasons: reasons.clone(),
        });
        self.decide(prepared, cx, Question { subject: text.to_owned(), reasons, patterns, case })
    }

    /// What follows from the reasons to ask, without asking.
    fn decide(&self, prepared: &PreparedCall, cx: &ToolContext, question: Question) -> Verdict {
        let allowed = |pattern: &String| {
            self.config.allow_list.contains(pattern)
                || lock(&self.always).contains(pattern)
                || cx.session.is_approved(pattern)
        };
        if question.patterns.iter().all(allowed) || self.config.mode == ApprovalMode::Off {
            return allow(prepared);
        }
        if self.config.presence == Presence::Unattended {
            return Verdict::Deny(Denial {
                message: format!(
                    "not allowed: nobody is there to approve it ({}). Do it in another way, or leave it and say so.",
                    question.reasons.join("; ")
                ),
                hard: false,
            });
        }
        Verdict::Ask(question)
    }

    /// Asks the judge where there is one, and then a person.
    pub(crate) async fn ask(
        &self,
        prepared: &PreparedCall,
        cx: &ToolContext,
        question: Question,
    ) -> Result<Authorized<Call>, Denial> {
        match self.consult(cx, &question).await {
            Consulted::Allowed => {
                cx.session.forget_refusals();
                Ok(Authorized::seal(prepared.call.clone()))
            }
            Consulted::Refused(denial) => Err(denial),
            Consulted::Open => self.ask_person(prepared, cx, question).await,
        }
    }

    /// What the judge says, if there is one to ask.
    async fn consult(&self, cx: &ToolContext, question: &Question) -> Consulted {
        let judge = cx.judge.as_ref().filter(|_| self.config.mode == ApprovalMode::Smart);
        let (Some(judge), Some(case)) = (judge, question.case.clone()) else { return Consulted::Open };
        let Judgement { ruling, judge, note } = tokio::select! {
            judgement = judge.judge(case) => judgement,
            () = cx.cancel.cancelled() => Judgement::escalate("", "the turn was stopped"),
        };
        if ruling != Ruling::Escalate {
            (cx.progress)(CallProgress::Judged { judge: judge.clone(), ruling });
        }
        match ruling {
            Ruling::Approve => Consulted::Allowed,
            Ruling::Deny => {
                let refusals = cx.session.judge_refused();
                let denial = judge::refusal(&judge, &question.reasons, refusals, self.config.judge_refusals_max);
                Consulted::Refused(denial)
            }
            Ruling::Escalate => {
                tracing::info!(judge, note, "a person is asked, because the judge left it open");
                Consulted::Open
            }
        }
    }

    /// Asks a person, one question at a time. A question that is open already is not asked twice: its answer counts for
    /// both, unless it was given for one call's sake and the other is refused by it.
    async fn ask_person(
        &self,
        prepared: &PreparedCall,
        cx: &ToolContext,
        question: Question,
    ) -> Result<Authorized<Call>, Denial> {
        let about = format!("{}\0{}\0{}", prepared.call.name, question.subject, cx.session.cwd().display());
        let answer = match self.join(&about) {
            Joined::Other(mut other) => {
                let answer = other.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
                answer.unwrap_or_else(|| ApprovalAnswer::Deny { reason: "the question was withdrawn".to_owned() })
            }
            Joined::First(tell) => {
                // Closed when it is dropped: the question is no longer open, whatever happened.
                let _open = OpenQuestion { policy: self, about: &about };
                let answer = self.put(prepared, cx, &question).await;
                tell.send_replace(Some(answer.clone()));
                answer
            }
        };
        if !matches!(answer, ApprovalAnswer::Deny { .. }) {
            cx.session.forget_refusals();
        }
        match answer {
            ApprovalAnswer::Once => Ok(Authorized::seal(prepared.call.clone())),
            ApprovalAnswer::Session => {
                question.patterns.iter().for_each(|pattern| cx.session.approve(pattern));
                Ok(Authorized::seal(prepared.call.clone()))
            }
            ApprovalAnswer::Always => {
                for pattern in &question.patterns {
                    let new = {
                        let mut always = lock(&self.always);
                        let new = !always.contains(pattern);
                        if new {
                            always.push(pattern.clone());
                        }
                        new
                    };
                    if new {
                        cx.approver.remember(pattern).await;
                    }
                }
                Ok(Authorized::seal(prepared.call.clone()))
            }
            ApprovalAnswer::Deny { reason } => Err(Denial { message: denied(&reason), hard: false }),
        }
    }

    fn join(&self, about: &str) -> Joined {
        let mut open = lock(&self.open);
        if let Some(other) = open.get(about) {
            return Joined::Other(other.clone());
        }
        let (tell, hear) = watch::channel(None);
        open.insert(about.to_owned(), hear);
        Joined::First(tell)
    }

    async fn put(&self, prepared: &PreparedCall, cx: &ToolContext, question: &Question) -> ApprovalAnswer {
        let Ok(_turn) = self.turn_to_ask.acquire().await else {
            return ApprovalAnswer::Deny { reason: String::new() };
        };
        // Answered meanwhile for the whole session by another question.
        if question.patterns.iter().all(|pattern| cx.session.is_approved(pattern)) {
            return ApprovalAnswer::Once;
        }
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = ApprovalRequest {
            id: format!("{}#{number}", prepared.call.id),
            call_id: prepared.call.id.clone(),
            tool: prepared.call.name.clone(),
            subject: question.subject.clone(),
            reasons: question.reasons.clone(),
            pattern: question.patterns.join(", "),
            timeout_ms: self.config.timeout_ms,
        };
        (cx.progress)(CallProgress::Waiting { what: question.reasons.join("; ") });
        let limit = Duration::from_millis(self.config.timeout_ms);
        tokio::select! {
            biased;
            answer = tokio::time::timeout(limit, cx.approver.ask(request)) => {
                answer.unwrap_or_else(|_| ApprovalAnswer::Deny { reason: "nobody answered in time".to_owned() })
            }
            () = cx.cancel.cancelled() => ApprovalAnswer::Deny { reason: "the turn was stopped".to_owned() },
        }
    }
}

/// What became of the question to the judge.
enum Consulted {
    Allowed,
    Refused(Denial),
    /// A person decides.
    Open,
}

enum Joined {
    First(watch::Sender<Option<ApprovalAnswer>>),
    Other(watch::Receiver<Option<ApprovalAnswer>>),
}

struct OpenQuestion<'a> {
    policy: &'a ApprovalPolicy,
    about: &'a str,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        lock(&self.policy.open).remove(self.about);
    }
}

fn allow(prepared: &PreparedCall) -> Verdict {
    Verdict::Allow(Authorized::seal(prepared.call.clone()))
}

fn hard(why: &str) -> Verdict {
    Verdict::Deny(Denial { message: format!("never allowed: {why}. It was not run."), hard: true })
}

fn denied(reason: &str) -> String {
    let because = if reason.trim().is_empty() { String::new() } else { format!(": {}", reason.trim()) };
    format!("the user did not allow it{because}. It was not run. Do not try it again in another form.")
}

/// The homes with links followed, as the paths that are compared with them.
async fn homes(cx: &ToolContext) -> Homes {
    let (user, hermes) = (cx.session.home(), cx.scope.home.clone());
    let write_root = cx.session.config().write_root.clone();
    let real = move || {
        let real = |path: Option<PathBuf>| path.map(|path| paths::real_blocking(&path));
        Homes { user: real(user), hermes: real(hermes), write_root: real(write_root) }
    };
    tokio::task::spawn_blocking(real).await.unwrap_or_default()
}
