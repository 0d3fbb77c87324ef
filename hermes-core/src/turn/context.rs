//! The context phase: prompt snapshot, then session row, then user row, then the history as it will be sent.

use std::sync::Arc;

use hermes_providers::{ChatModel, ToolSchema};
use hermes_store::{
    AdmissionRecord, MessageKind, MessagePage, NewMessage, NewSession, OpenTurn, PromptSnapshot, Role, SessionRecord,
    StoreError, StoredMessage, View,
};
use hermes_tools::{Judge, Tool, ToolContext};

use crate::end::EndReason;
use crate::engine::Inner;
use crate::event::EventKind;
use crate::image;
use crate::input::Input;
use crate::limits::HYDRATE_MAX_ROWS;
use crate::nudge::Nudge;
use crate::persist::persist;
use crate::platform;
use crate::projection;
use crate::prompt;
use crate::recovery::Recovery;
use crate::shown::Shown;
use crate::trail::Trail;
use crate::turn::compress::model_rows;
use crate::turn::request::leave_sidecar_out;
use crate::turn::{Ending, Turn, TurnTools};
use crate::watchdog::Sign;

impl Turn<'_> {
    /// Opens or reopens the session, writes the user's row, deals with calls that a crash left open, and loads the
    /// history.
    pub(crate) async fn open_context(&mut self, open: Option<Box<OpenTurn>>) -> Result<(), Ending> {
        let conversation = self.fence.conversation().clone();
        let summary = self.store(self.engine.store.conversation(&conversation).await)?;
        let session = match &summary.tip {
            Some(tip) => Some(self.store(self.engine.store.session(tip).await)?),
            None => None,
        };
        self.know_child(&summary.source).await?;
        let cwd = session.as_ref().map_or_else(|| self.child_cwd(), |session| session.cwd.clone());
        let tool_session = self.engine.tool_session(&conversation, cwd.as_deref()).await;
        let host = &self.engine.tools;
        let available = self.equip(&summary.source, cwd.or_else(|| host.cwd.clone()));
        let schemas: Arc<[ToolSchema]> = available.iter().map(|tool| schema(tool.as_ref())).collect();
        let tools_snapshot = tools_bytes(&schemas)?;
        let judge = self.approval_judge();
        self.tools = Some(TurnTools {
            available,
            schemas: schemas.clone(),
            context: ToolContext {
                scope: host.scope.clone(),
                session: tool_session,
                cancel: self.stop.hard().clone(),
                approver: self.pulse.approver(self.approver()),
                judge: judge.clone().map(|judge| judge as Arc<dyn Judge>),
                clarifier: self.pulse.clarifier(self.clarifier()),
                progress: Arc::new(|_| {}),
            },
            judge,
        });
        let resumed = open.is_some();
        match session {
            Some(session) => self.reopen_session(session, &tools_snapshot, resumed).await?,
            None => {
                self.hide_child().await?;
                self.open_session(tools_snapshot).await?;
            }
        }
        if let Some(open) = open {
            // Boxed: it is rare, and every turn would carry its size.
            Box::pin(self.recover_calls(*open)).await?;
        }
        let rows = self.rows_in_view().await?;
        if resumed {
            self.go_on_from(&rows);
        }
        self.show_rows(rows).await
    }

    /// Opens the conversation's first session with the user's row.
    async fn open_session(&mut self, tools: PromptSnapshot) -> Result<(), Ending> {
        let session = self.first_session(tools).await;
        let rows = vec![self.user_row().await?];
        self.persist(|| self.engine.store.open_session(&self.fence, &self.id, session.clone(), rows.clone())).await?;
        self.system = session.prompt.bytes().clone();
        self.session = Some(session.id.clone());
        self.emit(EventKind::SessionOpened { session: session.id, model: self.model_name() });
        Ok(())
    }

    /// The conversation's first session.
    pub(crate) async fn first_session(&self, tools: PromptSnapshot) -> NewSession {
        let cwd = self.child_cwd().or_else(|| self.engine.tools.cwd.clone());
        // The chosen model, also while another stands in for it.
        let info = self.engine.model.info();
        NewSession {
            id: self.fence.conversation().first_session(),
            parent: None,
            provider: info.provider.clone(),
            model: info.model.clone(),
            prompt: self.build_prompt(cwd.as_deref()).await,
            cwd,
            tools,
        }
    }

    /// Goes on with a session: its prompt and its tools are replayed byte for byte. Another model or other tools, which
    /// only a person can have chosen, are written down and told; only other tools cost the prompt cache.
    async fn reopen_session(
        &mut self,
        session: SessionRecord,
        tools: &PromptSnapshot,
        resumed: bool,
    ) -> Result<(), Ending> {
        let prompt = self.store(self.engine.store.prompt(&session.prompt).await)?;
        self.system = prompt.bytes().clone();
        self.session = Some(session.id.clone());
        let info = self.engine.model.info();
        let mut changes = Vec::new();
        if (session.provider.as_str(), session.model.as_str()) != (info.provider.as_str(), info.model.as_str()) {
            let (was, is) =
                (format!("{}/{}", session.provider, session.model), format!("{}/{}", info.provider, info.model));
            changes.push(format!("the model of this session is now {is}; it was {was}"));
        }
        if session.tools != *tools.hash() {
            changes.push("the tools of this session have changed; its prompt cache begins anew".to_owned());
        }
        if !changes.is_empty() {
            let changed = NewSession {
                id: session.id,
                parent: None,
                provider: info.provider.clone(),
                model: info.model.clone(),
                cwd: session.cwd,
                prompt,
                tools: tools.clone(),
            };
            self.persist(|| self.engine.store.change_session(&self.fence, &self.id, changed.clone())).await?;
            for text in changes {
                self.emit(EventKind::Notice { text });
            }
        }
        if resumed {
            return Ok(());
        }
        let rows = vec![self.user_row().await?];
        self.persist(|| self.engine.store.append(&self.fence, &self.id, rows.clone(), None)).await
    }

    pub(crate) async fn build_prompt(&self, cwd: Option<&str>) -> PromptSnapshot {
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.schemas.is_empty());
        let (prompt, notes) = prompt_of(self.engine, self.model.as_ref(), has_tools, cwd).await;
        for text in notes {
            self.emit(EventKind::Notice { text });
        }
        prompt
    }

    /// The row of the admission's input. Its id comes from the admission, so that a turn that is begun again writes
    /// the same row.
    async fn user_row(&self) -> Result<NewMessage, Ending> {
        let mut row = user_row(&self.admission, MessageKind::Normal)?;
        let platform = Input::from_payload(&self.admission.payload).ok().and_then(|input| input.platform);
        let noted = platform::note(self.engine, self.fence.conversation(), platform.as_deref(), &mut row).await;
        self.store(noted)?;
        Ok(row)
    }

    /// What an earlier owner left of the turn: the parts of a cut answer, and how much of the budget was used.
    fn go_on_from(&mut self, rows: &[StoredMessage]) {
        let (trail, continuations) = Trail::of_rows(rows, &self.id);
        let nudged =
            rows.last().is_some_and(|row| row.turn == self.id && Nudge::of(row) == Some(Nudge::AnswerAfterTools));
        self.recovery = Recovery::resumed(continuations, nudged);
        self.shown = Shown::after(&trail);
        self.trail = trail;
        let answers = rows.iter().filter(|row| row.turn == self.id && row.role == Role::Assistant);
        for answer in answers {
            self.budget.was_used(answer.calls.iter().map(|call| call.name.as_str()));
        }
    }

    /// Loads what the model is shown. What the turn itself knows of its answer stays: a compression may have put parts of
    /// it behind the notes.
    pub(crate) async fn load_history(&mut self) -> Result<(), Ending> {
        let rows = self.rows_in_view().await?;
        self.show_rows(rows).await
    }

    /// All of what the model is shown, however many pages: without its oldest rows it would not begin with what was sent
    /// before (I18). How much there can be is the model's window, which compression keeps it in, and else the provider's
    /// word.
    async fn rows_in_view(&self) -> Result<Vec<StoredMessage>, Ending> {
        self.store(model_rows(self.engine.store.as_ref(), self.fence.conversation()).await)
    }

    /// Makes the history of rows, and gives the tools their state back.
    async fn show_rows(&mut self, rows: Vec<StoredMessage>) -> Result<(), Ending> {
        self.hydrate(&rows).await?;
        self.guard().view_changed();
        self.call_ids = rows.iter().flat_map(|row| row.calls.iter().map(|call| call.provider_id.clone())).collect();
        self.history = projection::messages(rows);
        if self.sidecars_left_out {
            self.history.iter_mut().for_each(leave_sidecar_out);
        }
        Ok(())
    }

    /// Gives the tools back what their results once said. In a process that did not run them, what a compression took out
    /// of the model's view is among it: it is still what the tools did.
    async fn hydrate(&self, rows: &[StoredMessage]) -> Result<(), Ending> {
        let conversation = self.fence.conversation();
        if self.engine.knows_its_state(conversation) {
            return Ok(());
        }
        if rows.iter().any(|row| row.kind == MessageKind::Summary) {
            let page = MessagePage { from_end: true, limit: HYDRATE_MAX_ROWS, ..MessagePage::default() };
            let all = self.engine.store.messages(conversation, View::Display, page).await;
            self.hydrate_from(&self.store(all)?);
        }
        self.hydrate_from(rows);
        self.engine.state_is_known(conversation);
        Ok(())
    }

    fn hydrate_from(&self, rows: &[StoredMessage]) {
        let Some(tools) = &self.tools else { return };
        for row in rows {
            let Some(call) = &row.answers else { continue };
            if let Some(tool) = tools.available.iter().find(|tool| tool.spec().name == call.name) {
                tool.hydrate(&tools.context.session, &row.content);
            }
        }
    }

    /// Appends inputs that were meant for the running turn (steers, and redirects that had nothing to cut); each reaches
    /// the model once. Where the model has not spoken since the last user row they wait: strict providers refuse two user
    /// messages in a row, and what is in a request cannot be changed any more.
    pub(crate) async fn take_steers(&mut self) -> Result<(), Ending> {
        if matches!(self.history.last(), Some(hermes_providers::ChatMessage::User { .. }) | None) {
            return Ok(());
        }
        self.take_inputs(None, false).await.map(|_| ())
    }

    /// Writes, and repeats what may be repeated.
    pub(crate) async fn persist<T, F>(&self, write: impl FnMut() -> F) -> Result<T, Ending>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let written = self.store(persist(self.engine.clock.as_ref(), write).await)?;
        self.pulse.stamp(Sign::Write);
        Ok(written)
    }

    /// Turns a failure of the store into the end of the turn.
    pub(crate) fn store<T>(&self, result: Result<T, StoreError>) -> Result<T, Ending> {
        result.map_err(|error| Ending::storage(&error))
    }
}

/// A session's prompt, and what went wrong while its material was read.
pub(crate) async fn prompt_of(
    engine: &Inner,
    model: &dyn ChatModel,
    has_tools: bool,
    cwd: Option<&str>,
) -> (PromptSnapshot, Vec<String>) {
    let material = engine.prompt.material(cwd).await;
    let limit = prompt::context_files_max_chars(engine.window_of(model), engine.settings.context_files_max_chars);
    let prompt = prompt::build(&material, has_tools, limit);
    let warnings = prompt::warnings(&material);
    (prompt, material.notes.into_iter().chain(warnings).collect())
}

pub(crate) fn user_row(admission: &AdmissionRecord, kind: MessageKind) -> Result<NewMessage, Ending> {
    let input = Input::from_payload(&admission.payload)
        .map_err(|error| Ending::failed(EndReason::InvariantViolated, "HM4018", error.to_string()))?;
    let mut row = NewMessage::text(admission.receipt.admission.input_row(), Role::User, input.text);
    row.sidecar = image::to_row(&input.images);
    row.kind = kind;
    Ok(row)
}

fn schema(tool: &dyn Tool) -> ToolSchema {
    let spec = tool.spec();
    ToolSchema { name: spec.name.clone(), description: spec.description.clone(), parameters: spec.parameters.clone() }
}

/// The canonical bytes of a tool list: what the session pins.
pub(crate) fn tools_bytes(schemas: &[ToolSchema]) -> Result<PromptSnapshot, Ending> {
    let bytes = serde_json::to_vec(schemas).map_err(|error| {
        Ending::failed(EndReason::InvariantViolated, "HM4018", format!("a tool's schema cannot be written: {error}"))
    })?;
    Ok(PromptSnapshot::new(bytes))
}
