//! What is known of models before they are asked: windows, output limits, what they read, whether they reason, prices.
//!
//! [`Catalogue`] answers by the order of discovery: what the configuration says, what the provider's own list says, what the
//! bundled snapshot says, and what is usual in the model's family. Every fact names its source, and what nobody knows stays
//! unknown: no number is made up. Money is counted in whole pico-dollars, without floats.
//!
//! The snapshot (`data/models.toml`) was made by hand from the makers' public pages, which it names. Prices are list prices
//! of the maker's own service in US dollars; other providers of the same model have their own.

mod entry;
mod list;
mod lookup;
mod money;
mod names;
mod prices;
#[cfg(feature = "http")]
mod refresh;
mod snapshot;

pub use entry::{Fact, Modality, ModelFacts, Source};
pub use list::{ListError, ListedModel, MAX_LISTED_MODELS, ModelPage, parse_model_page};
pub use lookup::{Catalogue, Described, Hit, Place};
pub use money::{Money, MoneyError, Price};
pub use prices::{Cost, Prices, Rates, Tier};
#[cfg(feature = "http")]
pub use refresh::{
    LIST_RETRY_MS, LIST_TIMEOUT_MS, LIST_TTL_MS, ListPlace, MAX_LIST_BYTES, MAX_LIST_PAGES, ModelList, Refreshed,
    cached_list, refresh_list,
};
pub use snapshot::SnapshotError;
