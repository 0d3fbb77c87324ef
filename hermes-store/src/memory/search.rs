//! Search by looking at every row: what the indexes of the other stores are compared with.

use std::cmp::Reverse;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Row, State};
use crate::error::StoreError;
use crate::search::query::Parsed;
use crate::search::{
    IndexProgress, IndexState, IndexStatus, Neighbour, SearchHit, SearchOrder, SearchPage, SearchQuery, SearchStore,
};

/// What the numbers of a cursor count: hits that were shown before.
const OFFSET: char = 'm';

fn neighbour(row: Option<&Row>) -> Option<Neighbour> {
    row.map(|row| Neighbour::new(row.seq, row.new.role.as_str(), &row.new.content))
}

impl State {
    fn find(&self, query: &SearchQuery, parsed: &Parsed) -> Vec<SearchHit> {
        let mut hits = Vec::new();
        for row in self.rows.values().filter(|row| row.is_visible()) {
            let Some(conv) = self.conversations.get(&row.conversation) else { continue };
            let is_wanted = query.profile.as_ref().is_none_or(|profile| *profile == conv.profile)
                && query.source.as_ref().is_none_or(|source| *source == conv.source)
                && query.role.is_none_or(|role| role == row.new.role)
                && query.conversation.as_ref().is_none_or(|id| *id == row.conversation)
                && (query.include_archived || !conv.flags.archived)
                && (query.looks_at_hidden() || !conv.flags.hidden)
                && query.since_ms.is_none_or(|since| row.created_ms >= since)
                && query.until_ms.is_none_or(|until| row.created_ms < until);
            let Some(snippet) = is_wanted.then(|| parsed.snippet(row.new.role, &row.new.content)).flatten() else {
                continue;
            };
            hits.push(SearchHit {
                conversation: row.conversation.clone(),
                title: conv.title.clone(),
                message: row.new.id.clone(),
                seq: row.seq,
                role: row.new.role.as_str().to_owned(),
                snippet,
                created_at_ms: row.created_ms,
                before: None,
                after: None,
            });
        }
        hits.sort_by_key(|hit| Reverse((hit.created_at_ms, hit.seq, hit.conversation.clone())));
        if query.order == SearchOrder::Oldest {
            hits.reverse();
        }
        hits
    }

    fn add_neighbours(&self, hit: &mut SearchHit) {
        let seen = |row: &&Row| row.is_visible();
        let before = self.rows_of(&hit.conversation).rev().filter(seen).find(|row| row.seq < hit.seq);
        let after = self.rows_of(&hit.conversation).filter(seen).find(|row| row.seq > hit.seq);
        hit.before = neighbour(before);
        hit.after = neighbour(after);
    }
}

#[async_trait]
impl SearchStore for MemoryStore {
    async fn search(&self, query: SearchQuery) -> Result<SearchPage, StoreError> {
        let parsed = Parsed::parse(&query.text)?;
        let skip = usize::try_from(query.place(OFFSET)?.unwrap_or(0)).unwrap_or(0);
        let state = self.state();
        let found = if parsed.is_empty() { Vec::new() } else { state.find(&query, &parsed) };
        let end = skip.saturating_add(query.page_size());
        let next = (found.len() > end).then(|| format!("{OFFSET}{end}"));
        let mut hits: Vec<_> = found.into_iter().skip(skip).take(query.page_size()).collect();
        if query.neighbours {
            hits.iter_mut().for_each(|hit| state.add_neighbours(hit));
        }
        Ok(SearchPage { hits, next, index: IndexState::Ready, pending: 0 })
    }

    async fn index_step(&self, _limit: usize) -> Result<IndexProgress, StoreError> {
        Ok(IndexProgress { is_done: true, ..IndexProgress::default() })
    }

    async fn rebuild_index(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn index_status(&self) -> Result<IndexStatus, StoreError> {
        let rows = self.state().rows.values().filter(|row| row.is_visible()).count() as u64;
        Ok(IndexStatus { state: IndexState::Ready, rows, pending: 0, bytes: None, has_parts: true, note: None })
    }
}
