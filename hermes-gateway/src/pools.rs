//! The credentials of this gateway's providers: one pool each, whoever asks with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_providers::Profile;
use hermes_providers::credential::file::AuthFile;
use hermes_providers::credential::pool::{LimitScope, Strategy};
use hermes_providers::credential::refresh::{HttpTokens, Refresher};
use hermes_providers::credential::{KeyPool, KeyPoolConfig, system_now};

use crate::config::Scope;
use crate::model::PoolPlan;

/// The provider that counts requests for each model by itself (provider reference, 5.3).
const COUNTS_BY_MODEL: &str = "anthropic";

/// Every pool that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    by_provider: Mutex<HashMap<String, Arc<KeyPool>>>,
}

impl Pools {
    /// The pool of a provider; the same one for every model of it.
    pub(crate) fn of(&self, plan: &PoolPlan, profile: &Profile, scope: &Scope, strategy: Strategy) -> Arc<KeyPool> {
        let mut all = self.by_provider.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let file = AuthFile::at(scope.auth_json());
            let now = system_now();
            let refresher = profile
                .oauth
                .as_ref()
                .map(|oauth| Refresher::new(file.clone(), oauth.endpoint(), Arc::new(HttpTokens), now.clone()));
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
