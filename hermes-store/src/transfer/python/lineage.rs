//! Which sessions are one conversation.
//!
//! The Python program writes `parent_session_id` for several things: a compression that went on in a new session, a
//! branch, a delegated task, a reset, a tool. Only the first is the same conversation. Chains are flattened from the
//! root to the tip; everything else is a conversation of its own that remembers where it left.

use std::collections::{HashMap, HashSet};

/// The reason that a compression closes a session with.
const COMPRESSION: &str = "compression";
/// Reasons after which a child of the same route is a fresh start.
const RESETS: &[&str] =
    &["session_reset", "session_switch", "new_session", "idle", "daily", "suspended", "resume_pending_expired"];

/// What decides about a session's place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) source: String,
    pub(super) session_key: Option<String>,
    pub(super) end_reason: Option<String>,
    pub(super) started_at: f64,
    pub(super) ended_at: Option<f64>,
    pub(super) last_activity: f64,
    /// `_branched_from`, `_delegate_from`, `_reset_from`: whether it is there, and the session that it names.
    pub(super) branched: Mark,
    pub(super) delegated: Mark,
    pub(super) reset: Mark,
}

/// A mark in a session's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    None,
    /// It names a session.
    Of(String),
    /// It is there and names none.
    Bare,
}

impl Mark {
    /// Whether it is about this edge: a mark that names another session was copied along with the configuration.
    fn is_about(&self, parent: &str) -> bool {
        match self {
            Self::None => false,
            Self::Of(named) => named == parent,
            Self::Bare => true,
        }
    }
}

/// How a session left another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// The same conversation.
    Continuation,
    Branch,
    Delegate,
    Reset,
    Tool,
    /// A continuation that another one was preferred to.
    Sibling,
    /// Nothing says how.
    Child,
}

impl Edge {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Continuation => "continuation",
            Self::Branch => "branch",
            Self::Delegate => "delegate",
            Self::Reset => "reset",
            Self::Tool => "tool",
            Self::Sibling => "sibling",
            Self::Child => "child",
        }
    }
}

/// How a session left its parent.
pub(super) fn classify(child: &Node, parent: &Node) -> Edge {
    if child.branched.is_about(&parent.id) {
        return Edge::Branch;
    }
    if child.delegated.is_about(&parent.id) {
        return Edge::Delegate;
    }
    if child.reset.is_about(&parent.id) {
        return Edge::Reset;
    }
    if child.source == "tool" {
        return Edge::Tool;
    }
    let reason = parent.end_reason.as_deref().unwrap_or_default();
    if reason == COMPRESSION {
        // A task that was given away while its parent was compressed is no continuation.
        return if child.source == "subagent" && parent.source != "subagent" {
            Edge::Delegate
        } else {
            Edge::Continuation
        };
    }
    if reason == "branched" && parent.ended_at.is_none_or(|ended| child.started_at >= ended) {
        return Edge::Branch;
    }
    if RESETS.contains(&reason) && child.session_key.is_some() && child.session_key == parent.session_key {
        return Edge::Reset;
    }
    match child.source.as_str() {
        "subagent" => Edge::Delegate,
        _ => Edge::Child,
    }
}

/// One conversation: the places of its sessions from the root to the tip, and how the root left another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) sessions: Vec<usize>,
    pub(super) left: Option<(Edge, String)>,
}

/// The conversations of a store. Every session is in exactly one; a cycle is cut where it is entered.
pub(super) fn chains(nodes: &[Node]) -> Vec<Chain> {
    let by_id: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).collect();
    let parent_of = |at: usize| nodes[at].parent.as_deref().and_then(|id| by_id.get(id).copied()).filter(|p| *p != at);
    let mut preferred: HashMap<usize, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let Some(parent) = parent_of(at) else { continue };
        if classify(node, &nodes[parent]) != Edge::Continuation {
            continue;
        }
        preferred
            .entry(parent)
            .and_modify(|held| {
                if rank(node) > rank(&nodes[*held]) {
                    *held = at;
                }
            })
            .or_insert(at);
    }
    let continues: HashSet<usize> = preferred.values().copied().collect();
    let mut seen = vec![false; nodes.len()];
    let mut out = Vec::new();
    // Roots first; what is left then is a cycle, which is cut at its oldest session.
    let mut cycles: Vec<usize> = (0..nodes.len()).collect();
    cycles.sort_by(|a, b| {
        nodes[*a].started_at.total_cmp(&nodes[*b].started_at).then_with(|| nodes[*a].id.cmp(&nodes[*b].id))
    });
    let roots = (0..nodes.len()).filter(|at| !continues.contains(at));
    for root in roots.chain(cycles) {
        if seen[root] {
            continue;
        }
        let mut sessions = Vec::new();
        let mut next = Some(root);
        while let Some(at) = next.filter(|at| !seen[*at]) {
            seen[at] = true;
            sessions.push(at);
            next = preferred.get(&at).copied();
        }
        let left = nodes[root].parent.clone().map(|parent| {
            let edge = parent_of(root).map_or_else(|| orphan(&nodes[root]), |at| classify(&nodes[root], &nodes[at]));
            (if edge == Edge::Continuation { Edge::Sibling } else { edge }, parent)
        });
        out.push(Chain { sessions, left });
    }
    out
}

/// How a session left a parent that is not there any more.
fn orphan(node: &Node) -> Edge {
    match (&node.branched, &node.delegated, node.source.as_str()) {
        (Mark::Of(_) | Mark::Bare, ..) => Edge::Branch,
        (_, Mark::Of(_) | Mark::Bare, _) | (_, _, "subagent") => Edge::Delegate,
        (_, _, "tool") => Edge::Tool,
        _ => Edge::Child,
    }
}

/// Which of several continuations goes on: one that was compressed itself, then a live one, then a closed one; then the
/// one with the newest activity.
fn rank(node: &Node) -> (u8, Ordered, Ordered, &str) {
    let kind = match (&node.end_reason, node.ended_at) {
        (Some(reason), _) if reason == COMPRESSION => 2,
        (_, None) => 1,
        _ => 0,
    };
    (kind, Ordered(node.last_activity), Ordered(node.started_at), &node.id)
}

/// A time that can be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, parent: Option<&str>, end: Option<&str>) -> Node {
        Node {
            id: id.to_owned(),
            parent: parent.map(str::to_owned),
            source: "cli".to_owned(),
            end_reason: end.map(str::to_owned),
            ended_at: end.map(|_| 10.0),
            started_at: 11.0,
            last_activity: 12.0,
            ..Node::default()
        }
    }

    fn of(nodes: &[Node]) -> Vec<(Vec<&str>, Option<&'static str>)> {
        chains(nodes)
            .into_iter()
            .map(|chain| {
                let ids = chain.sessions.iter().map(|at| nodes[*at].id.as_str()).collect();
                (ids, chain.left.map(|(edge, _)| edge.as_str()))
            })
            .collect()
    }

    #[test]
    fn s36_a_chain_of_compressions_is_one_conversation() {
        let nodes = [
            node("a", None, Some("compression")),
            node("b", Some("a"), Some("compression")),
            node("c", Some("b"), None),
            node("other", None, None),
        ];
        assert_eq!(of(&nodes), [(vec!["a", "b", "c"], None), (vec!["other"], None)]);
    }

    #[test]
    fn s37_branches_delegates_resets_and_tools_are_conversations_of_their_own() {
        let mut branch = node("branch", Some("a"), None);
        branch.branched = Mark::Of("a".to_owned());
        let mut task = node("task", Some("a"), None);
        task.delegated = Mark::Of("a".to_owned());
        let mut reset = node("reset", Some("a"), None);
        reset.reset = Mark::Bare;
        let mut tool = node("tool", Some("a"), None);
        tool.source = "tool".to_owned();
        let mut sub = node("sub", Some("a"), None);
        sub.source = "subagent".to_owned();
        // A mark that was copied with the configuration says nothing about this edge.
        let mut copied = node("copied", Some("a"), None);
        copied.branched = Mark::Of("long ago".to_owned());
        let nodes = [node("a", None, Some("compression")), branch, task, reset, tool, sub, copied];
        assert_eq!(
            of(&nodes),
            [
                (vec!["a", "copied"], None),
                (vec!["branch"], Some("branch")),
                (vec!["task"], Some("delegate")),
                (vec!["reset"], Some("reset")),
                (vec!["tool"], Some("tool")),
                (vec!["sub"], Some("delegate")),
            ]
        );
        let mut old = node("a", None, Some("session_reset"));
        old.session_key = Some("k".to_owned());
        let mut child = node("b", Some("a"), None);
        child.session_key = Some("k".to_owned());
        assert_eq!(classify(&child, &old), Edge::Reset);
        assert_eq!(classify(&node("b", Some("a"), None), &node("a", None, Some("branched"))), Edge::Branch);
        assert_eq!(of(&[node("x", Some("gone"), None)]), [(vec!["x"], Some("child"))]);
    }

    #[test]
    fn the_continuation_that_goes_on_is_preferred() {
        let mut stale = node("stale", Some("a"), Some("ws_orphan_reap"));
        stale.last_activity = 99.0;
        let live = node("live", Some("a"), None);
        let nodes = [node("a", None, Some("compression")), stale, live];
        assert_eq!(of(&nodes), [(vec!["a", "live"], None), (vec!["stale"], Some("sibling"))]);
    }

    #[test]
    fn i27_cycles_are_cut_and_every_session_comes_once() {
        let nodes = [
            node("a", Some("b"), Some("compression")),
            node("b", Some("a"), Some("compression")),
            node("self", Some("self"), Some("compression")),
        ];
        let found = of(&nodes);
        let mut all: Vec<&str> = found.iter().flat_map(|(ids, _)| ids.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, ["a", "b", "self"]);
    }
}
