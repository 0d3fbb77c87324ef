//! The credentials of this gateway's providers: one pool each, whoever asks with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_providers::credential::file::AuthFile;
use hermes_providers::credential::pool::{LimitScope, Strategy};
use hermes_providers::credential::refresh::{HttpTokens, Refresher};
use hermes_providers::credential::{Credentials, KeyPool, KeyPoolConfig, system_now};
use hermes_providers::{Profile, Transport};

use crate::config::Scope;
use crate::lent::Lender;
use crate::model::{Choice, PoolPlan};

/// The provider that counts requests for each model by itself (provider reference, 5.3).
const COUNTS_BY_MODEL: &str = "anthropic";

/// Every pool that was asked for, and every secret that somebody else keeps.
#[derive(Default)]
pub(crate) struct Pools {
    by_provider: Mutex<HashMap<String, Arc<KeyPool>>>,
    /// By profile and address: the address may be a part of what is fetched.
    lent: Mutex<HashMap<(String, String), Arc<dyn Credentials>>>,
}

impl Pools {
    /// The pool of a provider; the same one for every model of it.
    pub(crate) fn of(
        &self,
        plan: &PoolPlan,
        profile: &Profile,
        scope: &Scope,
        strategy: Strategy,
        transport: &Transport,
    ) -> Arc<KeyPool> {
        let mut all = self.by_provider.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let file = AuthFile::at(scope.auth_json());
            let now = system_now();
            let tokens = || Arc::new(HttpTokens::new(transport.clone()));
            let refresher = profile
                .oauth
                .as_ref()
                .map(|oauth| Refresher::new(file.clone(), oauth.endpoint(), tokens(), now.clone()));
            Arc::new(KeyPool::new(KeyPoolConfig {
                provider: plan.provider.clone(),
                seeded: plan.seeded.clone(),
                file: Some(file),
                refresher,
                strategy,
                scope: if profile.id == COUNTS_BY_MODEL { LimitScope::Model } else { LimitScope::Row },
                now,
            }))
        };
        all.entry(plan.provider.clone()).or_insert_with(make).clone()
    }

    /// What a choice without a key of its own is let in with, when its profile says that somebody else keeps it.
    pub(crate) fn lent(
        &self,
        lender: Lender<'_>,
        choice: &Choice,
        profile: &Profile,
        transport: &Transport,
    ) -> Option<Arc<dyn Credentials>> {
        let mut all = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (profile.id.clone(), choice.base_url.clone());
        if let Some(known) = all.get(&key) {
            return Some(Arc::clone(known));
        }
        let named = Some(choice.base_url.as_str()).filter(|url| !url.is_empty() && *url != profile.base_url);
        let made = lender.credentials(profile, named, transport)?;
        all.insert(key, Arc::clone(&made));
        Some(made)
    }

    /// Ends renewals that are under way, and writes down what is not written yet.
    pub(crate) async fn close(&self) {
        let all: Vec<Arc<KeyPool>> = {
            let pools = self.by_provider.lock().unwrap_or_else(PoisonError::into_inner);
            pools.values().cloned().collect()
        };
        for pool in all {
            pool.close().await;
        }
    }
}
