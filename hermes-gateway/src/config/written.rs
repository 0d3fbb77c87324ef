//! What `config.yaml` itself says under a name, for people. Secrets are masked.

use serde_json::Value;

use super::config::Config;

/// What stands in the place of a secret.
const MASK: &str = "********";
/// A name that ends so holds a secret.
const SECRET_ENDS: [&str; 7] =
    ["api_key", "token", "password", "secret", "password_hash", "private_key", "authorization"];

/// The value under a dotted name as it is written, as JSON, and its line, from 1. None when the file does not say it.
#[must_use]
pub fn written(config: &Config, key: &str) -> Option<(Value, usize)> {
    let path: Vec<&str> = key.split('.').collect();
    let node = config.tree.as_ref()?.at(&path)?;
    Some((masked(path.last().copied().unwrap_or_default(), node.to_json()), node.mark.line))
}

fn masked(name: &str, value: Value) -> Value {
    let lower = name.to_lowercase();
    let secret = SECRET_ENDS.iter().any(|end| lower.ends_with(end));
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key.clone(), masked(&key, value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(|item| masked(name, item)).collect()),
        Value::Null => Value::Null,
        _ if secret => Value::from(MASK),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i24_a_written_value_is_shown_with_its_line_and_secrets_are_masked() {
        let text = "agent:\n  max_turns: 9\nmodel:\n  api_key: sk-abcd\nslack: {bot_token: 12345}\n";
        let config = Config::parse(std::path::Path::new("config.yaml"), text).unwrap();
        assert_eq!(written(&config, "agent.max_turns"), Some((Value::from(9), 2)));
        assert_eq!(written(&config, "model.api_key"), Some((Value::from(MASK), 4)));
        let (slack, _) = written(&config, "slack").unwrap();
        assert_eq!(slack["bot_token"], MASK);
        assert_eq!(written(&config, "no.such"), None);
    }
}
