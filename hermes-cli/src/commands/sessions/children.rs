//! `hermes sessions children`: what a session gave away, how far it is, and its end before its time.

use std::io::Write;

use hermes_gateway::protocol::{
    Child, ChildState, ChildStop, ConversationId, DelegationId, Request, Response, SessionRefParams,
    SessionStopChildParams,
};

use crate::context::Context;
use crate::exit::Fault;
use crate::link::{Link, request};
use crate::text::{harmless, one_line};

/// Columns of a line beside its task.
const BESIDE_TASK: usize = 14;

/// Lists the children of a session, or stops one of them.
pub(super) async fn children(
    conversation: ConversationId,
    stop: Option<String>,
    link: &mut Link,
    context: &Context,
    out: &mut dyn Write,
) -> Result<(), Fault> {
    let asked = Request::SessionChildren(SessionRefParams { conversation: conversation.clone() });
    let children = request!(link, asked, Response::Children(children) => children)?;
    if let Some(name) = stop {
        let delegation = meant(&children, &name)?;
        let params = SessionStopChildParams { conversation, delegation };
        let stopped = request!(link, Request::SessionStopChild(params), Response::ChildStopped(how) => how)?;
        return match stopped {
            ChildStop::Stopped => Ok(writeln!(out, "It is stopped. The session is told with its next input.")?),
            ChildStop::Over => Ok(writeln!(out, "It was over already.")?),
            _ => Err(Fault::Failed(
                "another process runs it, and the session itself too; stop the session's turn there".to_owned(),
            )),
        };
    }
    if context.json {
        for child in &children {
            context.write_json(out, child)?;
        }
        return Ok(());
    }
    if children.is_empty() {
        return Ok(writeln!(out, "This session gave no task away.")?);
    }
    for child in &children {
        let task = one_line(&child.task, context.terminal.width.saturating_sub(BESIDE_TASK).max(BESIDE_TASK));
        writeln!(out, "{:<9}  {task}", word(child.state))?;
        writeln!(out, "           {}", harmless(child.delegation.as_str()))?;
    }
    Ok(())
}

fn word(state: ChildState) -> &'static str {
    match state {
        ChildState::Waiting => "waiting",
        ChildState::Running => "running",
        ChildState::Completed => "done",
        ChildState::Failed => "failed",
        ChildState::Stopped => "stopped",
        _ => "unknown",
    }
}

/// The one child that a name means: its id, or the beginning that no other has.
fn meant(children: &[Child], name: &str) -> Result<DelegationId, Fault> {
    let exact = children.iter().find(|child| child.delegation.as_str() == name);
    let mut begun = children.iter().filter(|child| child.delegation.as_str().starts_with(name));
    let found = match (exact, begun.next(), begun.next()) {
        (Some(child), ..) | (None, Some(child), None) => Ok(child.delegation.clone()),
        (None, None, _) => Err("this session has no such child; without --stop its children are shown"),
        (None, Some(_), Some(_)) => Err("several children begin so; write more of the id"),
    };
    found.map_err(|why| Fault::Usage(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SessionArgs;
    use crate::terminal::Terminal;
    use crate::testing::{Scripted, now};

    fn child(id: &str, state: ChildState) -> Child {
        Child {
            delegation: DelegationId::parse(id).unwrap(),
            conversation: ConversationId::parse(id).unwrap(),
            task: format!("task of {id}\nwith more"),
            state,
            reported: false,
            dispatched_at_ms: 1,
            ended_at_ms: None,
        }
    }

    async fn run(stop: Option<&str>) -> (Result<(), Fault>, String, Vec<Request>) {
        let list = vec![child("call-2.0", ChildState::Running), child("call-1.0", ChildState::Completed)];
        let (script, mut link) = Scripted::link(move |request, _| match request {
            Request::SessionChildren(_) => now(Response::Children(list.clone())),
            _ => now(Response::ChildStopped(ChildStop::Stopped)),
        });
        let mut out = Vec::new();
        let conversation = ConversationId::parse("c1").unwrap();
        let context =
            Context { session: SessionArgs::default(), json: false, profile: None, terminal: Terminal::none() };
        let done = children(conversation, stop.map(str::to_owned), &mut link, &context, &mut out).await;
        (done, String::from_utf8(out).unwrap(), script.requests())
    }

    #[tokio::test]
    async fn children_are_listed_with_the_ids_to_stop_them_by() {
        let (done, out, _) = run(None).await;
        done.unwrap();
        insta::assert_snapshot!(out, @r"
        running    task of call-2.0 with more
                   call-2.0
        done       task of call-1.0 with more
                   call-1.0
        ");
    }

    #[tokio::test]
    async fn the_beginning_of_an_id_stops_one_child_and_never_one_of_several() {
        let (done, out, requests) = run(Some("call-2")).await;
        done.unwrap();
        assert!(out.contains("stopped"), "{out}");
        let delegation = DelegationId::parse("call-2.0").unwrap();
        let params = SessionStopChildParams { conversation: ConversationId::parse("c1").unwrap(), delegation };
        assert_eq!(requests.last(), Some(&Request::SessionStopChild(params)));
        for name in ["call", "nobody"] {
            let (done, _, requests) = run(Some(name)).await;
            assert!(matches!(done, Err(Fault::Usage(_))), "{name}");
            assert_eq!(requests.len(), 1, "{name}: nothing was stopped");
        }
    }
}
