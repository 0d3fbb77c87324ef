//! Names of models: the same model is written in many ways.

/// Words in front of a name that say whose model it is, on Bedrock with a dot behind.
const VENDORS: &[&str] = &[
    "ai21",
    "alibaba",
    "amazon",
    "anthropic",
    "cohere",
    "deepseek",
    "google",
    "meta",
    "minimax",
    "mistral",
    "moonshot",
    "moonshotai",
    "nvidia",
    "openai",
    "qwen",
    "stability",
    "us",
    "eu",
    "apac",
    "jp",
    "au",
    "global",
    "writer",
    "xai",
    "zai",
];

/// One spelling for all: lower case, `-` for `.` and `_` and blanks.
pub(super) fn key(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    lower.chars().map(|c| if matches!(c, '.' | '_' | ' ') { '-' } else { c }).collect()
}

/// What a name may be filed under, the most exact first: as it is, without vendor, without variant, without date.
pub(super) fn candidates(name: &str) -> Vec<String> {
    let lower = name.trim().to_lowercase();
    let mut all = Vec::with_capacity(5);
    add(&mut all, &lower);
    // `models/x`, `vendor/x`, `accounts/fireworks/models/x`, a whole Bedrock ARN.
    let last = lower.rsplit('/').next().unwrap_or(&lower);
    add(&mut all, last);
    let bare = without_vendor(last);
    add(&mut all, bare);
    let plain = without_variant(bare);
    add(&mut all, plain);
    add(&mut all, without_date(plain));
    all
}

fn add(all: &mut Vec<String>, name: &str) {
    let key = key(name);
    if !key.is_empty() && !all.contains(&key) {
        all.push(key);
    }
}

/// `us.anthropic.claude-x` is `claude-x`.
fn without_vendor(name: &str) -> &str {
    let mut rest = name;
    while let Some((front, behind)) = rest.split_once('.') {
        if !VENDORS.contains(&front) || behind.is_empty() {
            break;
        }
        rest = behind;
    }
    rest
}

/// Without what stands behind `:` (`:free`, `:thinking`, `-v1:0`, Ollama's tag) or `@` (a version of Vertex).
fn without_variant(name: &str) -> &str {
    let plain = name.split([':', '@']).next().unwrap_or(name);
    let version = plain.rsplit_once("-v").filter(|(_, number)| {
        name.contains(':') && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    version.map_or(plain, |(front, _)| front)
}

/// Without `-20251101`, `-2025-11-01` or `-latest` at its end.
fn without_date(name: &str) -> &str {
    if let Some(front) = name.strip_suffix("-latest") {
        return front;
    }
    let is_date = |digits: &str| digits.len() == 8 && (digits.starts_with("20") && number(digits));
    if let Some((front, end)) = name.rsplit_once('-')
        && is_date(end)
    {
        return front;
    }
    let parts: Vec<&str> = name.rsplitn(4, '-').collect();
    if let [day, month, year, front] = parts.as_slice()
        && (day.len(), month.len(), year.len()) == (2, 2, 4)
        && year.starts_with("20")
        && [day, month, year].into_iter().all(|part| number(part))
    {
        return front;
    }
    name
}

fn number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_leads_to_the_maker_s_name() {
        for (name, want) in [
            ("claude-opus-4-5", "claude-opus-4-5"),
            ("claude-opus-4-5-20251101", "claude-opus-4-5"),
            ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
            ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
            ("global.anthropic.claude-opus-4-6-v1", "claude-opus-4-6-v1"),
            ("claude-opus-4-5@20251101", "claude-opus-4-5"),
            ("openai/gpt-4o:extended", "gpt-4o"),
            ("gpt-4o-2024-08-06", "gpt-4o"),
            ("models/gemini-2.5-pro", "gemini-2-5-pro"),
            ("deepseek/deepseek-v4-pro:free", "deepseek-v4-pro"),
            ("accounts/fireworks/models/glm-5", "glm-5"),
            ("  MiniMax-M2.7 ", "minimax-m2-7"),
            ("mistral-large-latest", "mistral-large"),
            ("z-ai/glm-4.6", "glm-4-6"),
        ] {
            assert_eq!(candidates(name).last().map(String::as_str), Some(want), "{name}");
        }
    }

    #[test]
    fn the_exact_name_comes_first() {
        let found = candidates("openai/gpt-4o-2024-05-13");
        assert_eq!(found, ["openai/gpt-4o-2024-05-13", "gpt-4o-2024-05-13", "gpt-4o"]);
    }

    #[test]
    fn numbers_that_are_no_dates_stay() {
        for name in
            ["kimi-k2-0905", "glm-4-32b-0414", "mistral-small-2506", "llama-3-1-8b", "model-12345678", "x-19991231"]
        {
            assert_eq!(candidates(name), [name], "{name}");
        }
        assert_eq!(candidates(""), [] as [&str; 0]);
        assert_eq!(candidates("gpt-3.5"), ["gpt-3-5"], "what stands before a dot is no vendor");
    }
}
