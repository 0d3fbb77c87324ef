//! Which wire a host speaks, whatever its profile says.
//!
//! A profile says how its maker is spoken to, and most makers speak one wire. Some hosts are better spoken to over another
//! one than an address that only looks like theirs: a server that speaks OpenAI's older wire is no OpenAI.

use crate::profile::{ApiMode, Profile};

/// Hosts that speak the Responses wire; so do their regional names (`eu.api.openai.com`).
const RESPONSES_HOSTS: [&str; 2] = ["api.openai.com", "api.router.com"];
/// Hosts that speak Anthropic's messages.
const MESSAGES_HOSTS: [&str; 1] = ["api.anthropic.com"];
/// Hosts that speak Anthropic's messages below a path.
const MESSAGES_PATHS: [(&str, &str); 1] = [("api.kimi.com", "/coding")];
/// The end of a path at which many makers offer Anthropic's messages.
const MESSAGES_END: &str = "/anthropic";
/// The first label and the end of the hosts that speak Bedrock's Converse: `bedrock-runtime.REGION.amazonaws.com`.
const CONVERSE_HOST: (&str, &str) = ("bedrock-runtime", ".amazonaws.com");
/// Hosts that speak chat completions and nothing else.
const CHAT_HOSTS: [&str; 1] = ["api.actual.inc"];

impl Profile {
    /// The wire for a model behind this host and path: what the host is known for, else what the profile says.
    #[must_use]
    pub fn mode_at(&self, host: &str, path: &str, model: &str) -> ApiMode {
        let host = host.to_ascii_lowercase();
        let path = path.trim_end_matches('/');
        let is_one_of = |known: &[&str]| known.contains(&host.as_str());
        let is_region_of = |known: &str| host.strip_suffix(known).is_some_and(|rest| rest.ends_with('.'));
        let speaks_responses = is_one_of(&RESPONSES_HOSTS) || RESPONSES_HOSTS.iter().any(|known| is_region_of(known));
        if speaks_responses && !self.quirks.responses.is_chat_model(model) {
            return ApiMode::Responses;
        }
        let is_below = |(known, start): &(&str, &str)| host == *known && path.starts_with(start);
        if is_one_of(&MESSAGES_HOSTS) || path.ends_with(MESSAGES_END) || MESSAGES_PATHS.iter().any(is_below) {
            return ApiMode::AnthropicMessages;
        }
        let (first, end) = CONVERSE_HOST;
        if host.ends_with(end) && host.split('.').next() == Some(first) {
            return ApiMode::BedrockConverse;
        }
        if is_one_of(&CHAT_HOSTS) { ApiMode::ChatCompletions } else { self.api_mode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profiles;

    #[test]
    fn a_host_decides_which_wire_is_spoken() {
        let all = Profiles::bundled().unwrap();
        let check = |profile: &str, host: &str, path: &str, model: &str, mode: ApiMode| {
            let found = all.get(profile).unwrap().mode_at(host, path, model);
            assert_eq!(found, mode, "{profile} {host}{path} {model}");
        };
        use ApiMode::{AnthropicMessages, BedrockConverse, ChatCompletions, Responses};
        check("openai", "api.openai.com", "/v1", "gpt-5-mini", Responses);
        check("openai", "EU.api.openai.com", "/v1", "gpt-4.1", Responses);
        check("openai", "api.openai.com", "/v1", "gpt-4o-search-preview", ChatCompletions);
        // A server that is compatible with the older wire need not know the newer one.
        check("openai", "proxy.example", "/v1", "gpt-5-mini", ChatCompletions);
        check("openai", "notapi.openai.com.example", "/v1", "gpt-5-mini", ChatCompletions);
        check("openai", "xapi.openai.com", "/v1", "gpt-5-mini", ChatCompletions);
        check("custom", "api.openai.com", "/v1", "gpt-5-mini", Responses);
        check("custom", "127.0.0.1", "/v1", "m", ChatCompletions);
        check("custom", "api.example", "/anthropic/", "m", AnthropicMessages);
        check("custom", "api.kimi.com", "/coding/v1", "m", AnthropicMessages);
        check("custom", "api.kimi.com", "/v1", "m", ChatCompletions);
        check("custom", "bedrock-runtime.eu-west-1.amazonaws.com", "", "m", BedrockConverse);
        check("anthropic", "proxy.example", "", "m", AnthropicMessages);
        check("anthropic", "api.actual.inc", "/v1", "m", ChatCompletions);
    }

    #[test]
    fn a_wire_is_found_by_its_name_and_by_its_old_one() {
        for mode in ApiMode::ALL {
            assert_eq!(ApiMode::named(mode.as_str()), Some(*mode));
        }
        assert_eq!(ApiMode::named("codex_responses"), Some(ApiMode::Responses));
        assert_eq!(ApiMode::named("smoke_signals"), None);
    }
}
