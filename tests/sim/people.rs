//! What people do beside sending inputs: they decide about inputs of which nobody knows what came of them, and have
//! histories shortened.

use hermes_core::{Clock, Decision, Engine};
use hermes_store::{ConversationId, Generation, Role};

use crate::family;
use crate::parts::shown;

/// Time between two looks of a person at what waits for a decision, in milliseconds.
const DECISION_LOOK_MS: u64 = 15_000;

/// Decides about every input that is unknown, in these conversations and in their children. Never ends.
pub(crate) async fn decide(engine: &Engine, clock: &dyn Clock, roots: &[ConversationId]) {
    loop {
        clock.sleep(DECISION_LOOK_MS).await;
        for conversation in family::everybody(engine.store().as_ref(), roots).await {
            decide_in(engine, &conversation).await;
        }
    }
}

/// (I06) A decision about another start than the one that is unknown decides nothing; one about the right start holds,
/// unless somebody else was faster or the store failed, which the next look finds.
async fn decide_in(engine: &Engine, conversation: &ConversationId) {
    for unknown in engine.unknown(conversation).await.unwrap() {
        for other in [unknown.generation.0 + 1, unknown.generation.0 - 1] {
            let decided = engine.resolve(&unknown.admission, Generation(other), Decision::Done).await;
            assert!(decided.is_err(), "I06: a decision about the start {other} was taken: {unknown:?}");
        }
        let rows = shown(engine.store().as_ref(), conversation).await;
        let has_begun = rows.iter().any(|row| row.role == Role::User && row.turn == unknown.turn);
        let decision = match unknown.generation.0 % 3 {
            // Nobody says that something was done which has not even a row.
            0 if has_begun => Decision::Done,
            1 => Decision::Failed,
            _ => Decision::GivenUp,
        };
        let _ = engine.resolve(&unknown.admission, unknown.generation, decision).await;
    }
}

/// Has a history shortened; says what came of it. Nothing but a busy conversation, a short history and the store may
/// keep it from that.
pub(crate) async fn shorten(engine: &Engine, conversation: &ConversationId) -> String {
    match engine.compress(conversation, Some("the names")).await {
        Ok(done) => {
            assert!(done.after < done.before, "I20: not shorter: {done:?}");
            format!("{} rows", done.rows)
        }
        Err(error) => {
            let is_known = ["HM4103", "HM4104"].contains(&error.code()) || error.code().starts_with("HM10");
            assert!(is_known, "{error}");
            error.code().to_owned()
        }
    }
}
