//! Where a prompt cache may end, for wires that must be told.
//!
//! A request is the one before with more behind it, so two places are worth a mark: its own end, which the next request
//! will read, and the end of the one before, which this request reads. Codecs whose wire has marks add their own for
//! the system prompt and the tools (providers allow four in all); the others ignore them. Marks stand beside the
//! messages and not in them: they move, and what a message is does not.

use hermes_providers::ChatMessage;

/// Marks on messages: the end of this request and of the one before it.
const MARKS_MAX: usize = 2;

/// The places of the messages behind which a cache may end, in order. Looks at the newest messages only.
pub(crate) fn ends(messages: &[ChatMessage]) -> Vec<usize> {
    let mut found = Vec::with_capacity(MARKS_MAX);
    // Behind the newest message a request ends, and before each answer of the model one has ended.
    let mut ends_here = true;
    for (at, message) in messages.iter().enumerate().rev() {
        let is_answer = matches!(message, ChatMessage::Assistant { .. });
        if ends_here && !is_answer {
            found.push(at);
            if found.len() == MARKS_MAX {
                break;
            }
        }
        ends_here = is_answer;
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use hermes_store::{CallOutcome, MessageId, NewMessage, Role};

    use super::*;
    use crate::projection;

    fn user() -> ChatMessage {
        projection::user("u".to_owned())
    }

    fn answer() -> ChatMessage {
        let row = NewMessage::text(MessageId::parse("a").unwrap(), Role::Assistant, "a");
        projection::assistant(&row, Vec::new())
    }

    fn tool() -> ChatMessage {
        projection::tool("c".to_owned(), "t".to_owned(), "r".to_owned(), CallOutcome::Ok)
    }

    #[test]
    fn e33_a_request_marks_its_own_end_and_the_end_of_the_one_before_however_often_it_is_made() {
        let mut messages = vec![user()];
        assert_eq!(ends(&messages), [0]);
        messages.extend([answer(), tool(), tool()]);
        assert_eq!(ends(&messages), [0, 3]);
        messages.extend([answer(), tool()]);
        assert_eq!(ends(&messages), [3, 5]);
        assert_eq!(ends(&messages), [3, 5], "again for another route");
        messages.extend([answer(), user()]);
        assert_eq!(ends(&messages), [5, 7]);
        assert_eq!(ends(&[]), [0_usize; 0]);
    }
}
