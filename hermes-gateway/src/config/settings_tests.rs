//! Tests of what is shown, and of the one list of settings.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::{check, values};
use super::*;

/// Every setting with a value that is not its default, and how that value is shown.
const EACH: &str = "
model:
  provider: custom
  default: m
  base_url: http://127.0.0.1:9/v1
  api_key: sk-one
  api_mode: chat_completions
  context_length: 4096
  max_tokens: 77
providers:
  a.b:
    api_key: sk-two
    base_url: http://127.0.0.1:8
    key_env: MY_KEY
    request_timeout_seconds: 90
    stale_timeout_seconds: 1.5
fallback_providers:
  - {provider: groq, model: small}
platform_toolsets:
  cli: [file]
toolsets: [file]
agent:
  max_turns: 7
  api_max_retries: 0
  disabled_toolsets: [web]
  run_budget_seconds: 60
  turn_liveness:
    timeout_s: 90
  reasoning_effort: high
auxiliary:
  title_generation:
    enabled: false
    provider: groq
    model: small
    base_url: http://127.0.0.1:7/v1
    api_key: sk-three
    timeout: 11
  compression:
    provider: openai
    model: large
    base_url: http://127.0.0.1:6/v1
    api_key: sk-four
    timeout: 12
  approval:
    provider: custom
    model: judge
    base_url: http://127.0.0.1:5/v1
    api_key: sk-five
    timeout: 13
compression:
  enabled: false
  threshold: 0.8
  threshold_tokens: 90000
  protect_first_n: 1
  protect_last_n: 5
  max_attempts: 2
  in_place: true
  idle_compact_after_seconds: 90
delegation:
  max_concurrent_children: 3
  max_spawn_depth: 2
  max_iterations: 50
  max_summary_chars: 900
terminal:
  cwd: /srv
  timeout: 20
  env_passthrough: [A]
approvals:
  mode: off
  timeout: 9
  deny: ['rm *']
  smart_policy: Never touch /srv.
  denial_breaker_threshold: 5
  single_query_mode: approve
  unattended_mode: approve
command_allowlist: [git log]
tool_output:
  max_bytes: 10
context_file_max_chars: 99
context_file_read_timeout: 0.5
database:
  url: postgres://me@localhost/hermes
  synchronous: normal
credential_pool_strategies:
  groq: random
network:
  proxy: http://127.0.0.1:5
  no_proxy: [x.example]
  ca_file: own.pem
llama_server:
  program: /opt/llama-server
  model_file: m.gguf
  context_length: 8192
  max_context_length: 9000
  args: [-ngl, '9']
  port: 8090
  idle_stop_seconds: 60
  start_timeout_seconds: 30
";

fn config(text: &str) -> Config {
    Config::parse(Path::new("config.yaml"), text).unwrap()
}

fn shown(text: &str, key: &str) -> (Value, Option<usize>) {
    let shown = config(text).get(key).unwrap_or_else(|| panic!("{key} is nowhere"));
    let line = match shown.source {
        Source::Default => None,
        Source::File { line } => Some(line),
    };
    (shown.value, line)
}

#[test]
fn the_list_holds_exactly_what_is_read() {
    values::READ.take();
    config(EACH);
    // The other spellings of the model's name.
    config("model: {model: m}");
    config("model: m");
    // What is inside an item of a list or of a mapping of one's own is no setting of its own.
    let read = values::READ.take().into_iter().filter(|name| !name.contains('['));
    let read: BTreeSet<String> = read.map(|name| name.replace(".a.b.", ".*.").replace(".groq", "")).collect();
    let listed: BTreeSet<String> = names().filter(|name| *name != QUIET).map(str::to_owned).collect();
    assert_eq!(read, listed);
}

#[test]
fn every_setting_of_the_file_is_shown_from_the_file() {
    let (set, unset) = (config(EACH), config("providers: {a.b: {}}"));
    let defaults = unset.show();
    assert_eq!(defaults.len(), SETTINGS.len());
    for (shown, default) in set.show().into_iter().zip(defaults) {
        assert_eq!(shown.key, default.key);
        assert_ne!(shown.value, default.value, "{} is not read, or set to its default here", shown.key);
        assert_eq!(default.source, Source::Default, "{}", default.key);
        let Source::File { line } = shown.source else { panic!("{} is in the file", shown.key) };
        let name = shown.key.rsplit('.').next().unwrap();
        assert!(EACH.lines().nth(line - 1).unwrap().trim().starts_with(&format!("{name}:")), "{}: {line}", shown.key);
    }
    assert!(check::check(&set).is_empty(), "{:?}", check::check(&set));
}

#[test]
fn get_gives_the_value_that_holds_and_who_says_so() {
    assert_eq!(shown("", "agent.max_turns"), (Value::Null, None));
    assert_eq!(shown("agent: {max_turns: none}", "agent.max_turns"), (json!("none"), Some(1)));
    assert_eq!(shown("agent: {max_turns: 0}", "agent.max_turns"), (json!(0), Some(1)));
    assert_eq!(shown("model: {provider: auto}", "model.provider"), (json!("auto"), Some(1)));
    assert_eq!(shown("agent:\n  max_turns:\n", "agent.max_turns"), (Value::Null, None));
    assert_eq!(shown("agent:\n  max_turns: 1\n  max_turns: 2\n", "agent.max_turns"), (json!(2), Some(3)));
    assert_eq!(shown("", "approvals.mode"), (json!("smart"), None));
    assert_eq!(shown("approvals: {mode: off}", "approvals.mode"), (json!("off"), Some(1)));
    assert_eq!(shown("\nmodel: m", "model.default"), (json!("m"), Some(2)));
    assert_eq!(shown("model:\n  model: m", "model.default"), (json!("m"), Some(2)));
    assert_eq!(shown("model:\n  default: ''\n  model: m", "model.default"), (json!("m"), Some(3)));
    assert_eq!(shown("terminal:\n  timeout: 0", "terminal.timeout"), (json!(180), Some(2)));
    assert_eq!(shown("toolsets: []", "toolsets"), (json!([]), Some(1)));
    assert_eq!(shown("toolsets:\n  - file\n", "toolsets"), (json!(["file"]), Some(1)));
    assert_eq!(shown("a: &x {timeout: 7}\nterminal: *x\n", "terminal.timeout"), (json!(7), Some(1)));
    assert_eq!(shown("providers:\n  a.b:\n    key_env: K", "providers.a.b.key_env"), (json!("K"), Some(3)));
    assert_eq!(shown("providers: {x: {}}", "providers.x.key_env"), (Value::Null, None));
    // What this program does not use is shown as the file says it.
    assert_eq!(shown("zzz: yes\nb.c:\n  d: [1, x]\n", "b.c.d"), (json!([1, "x"]), Some(3)));
    assert_eq!(shown("agent: {max_turns: 7}", "agent").0, json!({"max_turns": 7}));
    for nowhere in ["no.such", "agent", "", ".", "agent.", "providers.x.key_env"] {
        assert_eq!(config("zzz: 1").get(nowhere), None, "{nowhere:?}");
    }
}

#[test]
fn i24_no_secret_is_shown() {
    let text = concat!(
        "model: {api_key: sk-1}\nproviders: {x: {api_key: sk-2}}\nslack: {bot_token: sk-3, password: [sk-4]}\n",
        "mcp_servers: {f: {env: {ANY: sk-5}, headers: {X: [sk-6]}, args: [a]}}\nn: {API_KEY: 123456}\n",
    );
    let config = config(text);
    let mut said = format!("{:?}", config.show());
    let keys = ["model", "model.api_key", "providers", "providers.x", "slack", "slack.bot_token", "slack.password"];
    let deep = ["mcp_servers", "mcp_servers.f.env", "mcp_servers.f.env.ANY", "mcp_servers.f.headers.X", "n.API_KEY"];
    for key in keys.into_iter().chain(deep) {
        let shown = config.get(key).unwrap();
        assert!(shown.value.to_string().contains(MASK), "{key}: {}", shown.value);
        said += &shown.value.to_string();
    }
    assert!(!said.contains("sk-") && !said.contains("123456"), "{said}");
    assert_eq!(config.get("mcp_servers.f.args").unwrap().value, json!(["a"]));
}

#[test]
fn i24_the_password_in_the_url_of_the_store_is_never_shown() {
    for section in ["database", "store"] {
        for url in [
            "postgres://me:s3cret@db.example:5433/hermes?sslmode=verify-full",
            "postgresql://me@db.example:5433/hermes?password=s3cret",
        ] {
            let text = format!("{section}: {{url: \"{url}\"}}");
            let config = config(&text);
            assert_eq!(config.store_url.as_ref().unwrap().shown(), "postgres://me@db.example:5433/hermes");
            let key = format!("{section}.url");
            for told in [
                format!("{config:?}"),
                format!("{:?}", config.show()),
                format!("{:?}", config.get(section)),
                format!("{:?}", config.get(&key)),
            ] {
                assert!(!told.contains("s3cret"), "{told}");
            }
        }
    }
    for wrong in ["postgress://me:s3cret@h/d", "postgres://me:s3cret@h:port/d", "sqlite:", "mysql://me:s3cret@h/d"] {
        let refused = Config::parse(Path::new("config.yaml"), &format!("database: {{url: \"{wrong}\"}}")).unwrap_err();
        let told = refused.to_string();
        assert!(!told.contains("s3cret") && told.contains("sqlite:PATH"), "{told}");
    }
}

#[test]
fn a_store_in_another_file_is_named_by_its_path() {
    for (url, path) in [("sqlite:/srv/h.db", "/srv/h.db"), ("sqlite:///srv/h.db", "/srv/h.db"), ("sqlite:h.db", "h.db")]
    {
        let config = config(&format!("database: {{url: \"{url}\"}}"));
        assert!(
            matches!(&config.store_url, Some(super::super::StoreUrl::Sqlite(found)) if found == Path::new(path)),
            "{url}"
        );
    }
}
