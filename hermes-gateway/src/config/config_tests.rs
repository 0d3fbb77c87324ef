//! Tests of [`super::Config`].

use secrecy::ExposeSecret;

use super::*;

fn config(text: &str) -> Config {
    Config::parse(Path::new("config.yaml"), text).unwrap()
}

fn error(text: &str) -> String {
    Config::parse(Path::new("config.yaml"), text).unwrap_err().to_string()
}

#[test]
fn a_missing_and_an_empty_file_give_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().into() };
    for text in [None, Some(""), Some("# nothing yet\n"), Some("agent:\nmodel: ''\n")] {
        if let Some(text) = text {
            std::fs::write(scope.config_yaml(), text).unwrap();
        }
        let config = Config::load(&scope).unwrap();
        assert_eq!(config.toolsets, ["hermes-cli"]);
        assert_eq!(config.agent.max_turns, None);
        assert_eq!(config.agent.api_max_retries, 3);
        assert_eq!(config.approvals.mode, ApprovalsMode::Smart);
        assert_eq!(config.approvals.timeout, Duration::from_secs(300));
        assert_eq!(config.terminal.timeout, Duration::from_secs(180));
        assert_eq!(config.tool_output_max_bytes, 50_000);
        assert_eq!(config.context_file_read_timeout, Duration::from_secs(5));
        assert_eq!(config.synchronous, Synchronous::Full);
        assert!(config.model.default.is_none());
    }
}

#[test]
fn model_may_be_a_name_or_a_mapping() {
    assert_eq!(config("model: gpt-5\n").model.default.as_deref(), Some("gpt-5"));
    assert_eq!(config("model: {model: older}\n").model.default.as_deref(), Some("older"));
    assert_eq!(config("model: {provider: auto}\n").model.provider, None);
    let model = config(
        "model: {provider: custom, base_url: http://127.0.0.1:8/v1/, default: fake-model, api_key: k, context_length: 32_000}\n",
    )
    .model;
    assert_eq!(model.provider.as_deref(), Some("custom"));
    assert_eq!(model.base_url.as_deref(), Some("http://127.0.0.1:8/v1"));
    assert_eq!(model.api_key.unwrap().expose_secret(), "k");
    assert_eq!(model.context_length, Some(32_000));
}

/// As the Python program writes it, with settings of every section that this program reads and of some that it does not.
const PYTHON_HOME: &str = "\
# My settings
_config_version: 50
model:
  default: anthropic/claude-sonnet-4
  provider: openrouter
  base_url: https://openrouter.ai/api/v1
  openai_runtime: auto
providers: {}
fallback_providers: []
toolsets:
- hermes-cli
database: {journal_mode: wal, wal_autocheckpoint: null, journal_size_limit: null}
agent:
  max_turns: null
  budget_warning_ratio: null
  run_budget_seconds: null
  gateway_timeout: 1800
  agent_cache: {max_size: 128, memory_high_mb: auto}
  api_max_retries: 3
  tool_use_enforcement: auto
  reasoning_effort: ''
  disabled_toolsets: []
  environment_hint: 'here: so'
terminal:
  backend: local
  cwd: .
  timeout: 180
  env_passthrough: []
  docker_image: nikolaik/python-nodejs:python3.11-nodejs20
compression: {enabled: true, threshold: 0.5}
context_file_max_chars: null
context_file_read_timeout: 5.0
file_read_max_chars: 100000
tool_output: {max_bytes: 50000, max_lines: 2000}
approvals:
  mode: smart
  timeout: 300
  cron_mode: deny
  single_query_mode: deny
  unattended_mode: deny
  deny: []
command_allowlist:
- recursive delete
quick_commands: {}
mcp_servers:
  files: {command: npx, args: [-y, server], env: {TOKEN: abc}}
";

#[test]
fn i27_a_home_of_the_python_program_works_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().into() };
    std::fs::write(scope.config_yaml(), PYTHON_HOME).unwrap();
    let config = Config::load(&scope).unwrap();
    assert_eq!(config.model.default.as_deref(), Some("anthropic/claude-sonnet-4"));
    assert_eq!(config.model.provider.as_deref(), Some("openrouter"));
    assert_eq!((config.agent.max_turns, config.agent.run_budget, &config.agent.reasoning_effort), (None, None, &None));
    assert_eq!(config.agent.liveness, Some(Duration::from_secs(600)));
    assert_eq!(config.command_allowlist, ["recursive delete"]);
    assert_eq!(std::fs::read_to_string(scope.config_yaml()).unwrap(), PYTHON_HOME, "reading changes nothing");
    // Its own settings are no mistakes.
    let unknown: Vec<String> = crate::config::check::check(&config)
        .into_iter()
        .filter(|finding| finding.kind != crate::config::check::FindingKind::NotSupportedYet)
        .map(|finding| finding.to_string())
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn approvals_are_off_with_and_without_quotes() {
    for text in ["off", "\"off\"", "'off'", "Off", "OFF", "false", "no"] {
        assert_eq!(config(&format!("approvals: {{mode: {text}}}")).approvals.mode, ApprovalsMode::Off, "{text}");
        assert_eq!(config(&format!("approvals:\n  mode: {text} # yes\n")).approvals.mode, ApprovalsMode::Off, "{text}");
    }
    // What is not clearly off asks, or is an error.
    for text in ["", "~", "''", "smart"] {
        assert_eq!(config(&format!("approvals: {{mode: {text}}}")).approvals.mode, ApprovalsMode::Smart, "{text}");
    }
    assert!(error("approvals: {mode: true}").contains("HM0106"));
}

#[test]
fn a_limit_of_none_is_no_limit() {
    for text in ["none", "None", "unlimited", "0", "-1", "null", "~", "", "'none'", "\"0\""] {
        assert_eq!(config(&format!("agent: {{max_turns: {text}}}")).agent.max_turns, None, "{text:?}");
    }
    assert_eq!(config("agent: {max_turns: '90'}").agent.max_turns, Some(90));
}

#[test]
fn a_section_that_is_empty_has_its_defaults() {
    for section in ["model", "providers", "agent", "terminal", "approvals", "tool_output", "database"] {
        for empty in ["", " null", " ~", " {}"] {
            assert_eq!(
                format!("{:?}", config(&format!("{section}:{empty}\n"))),
                format!("{:?}", config("")),
                "{section}"
            );
        }
    }
    assert!(config("providers: {groq: ~}").providers["groq"].key_env.is_none());
}

#[test]
fn of_two_equal_keys_the_last_counts() {
    let twice = config("agent: {max_turns: 1, api_max_retries: 9}\nagent:\n  max_turns: 2\n  max_turns: 3\n");
    assert_eq!((twice.agent.max_turns, twice.agent.api_max_retries), (Some(3), 3));
}

#[test]
fn i27_broken_yaml_gives_file_line_column_and_what_to_do() {
    for (text, place, advice) in [
        ("a: 1\nagent:\n\tmax_turns: 1\n", "/h/config.yaml:3:", "use spaces"),
        ("a: 1\nb: [1, 2\nc: 3\n", "/h/config.yaml:3:", "missing quote or bracket"),
        ("title: a: b\n", "/h/config.yaml:1:", "in quotes"),
    ] {
        let error = Config::parse(Path::new("/h/config.yaml"), text).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, ConfigError::BrokenYaml { column: 1.., .. }), "{message}");
        assert!(message.contains(place) && message.contains(advice), "{message}");
    }
}

#[test]
fn i27_a_file_that_is_no_file_or_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().into() };
    std::fs::create_dir(scope.config_yaml()).unwrap();
    assert_eq!(Config::load(&scope).unwrap_err().code(), "HM0104");
    std::fs::remove_dir(scope.config_yaml()).unwrap();
    std::fs::write(scope.config_yaml(), vec![b'#'; raw::CONFIG_MAX_BYTES + 1]).unwrap();
    assert_eq!(Config::load(&scope).unwrap_err().code(), "HM0104");
}

#[test]
fn every_setting_is_read() {
    let config = config(
        "
providers:
  groq: {api_key: abc, key_env: MY_GROQ, request_timeout_seconds: 90, stale_timeout_seconds: 1.5}
toolsets: [file, terminal]
agent: {max_turns: 7, api_max_retries: 0, disabled_toolsets: [web], run_budget_seconds: 60, turn_liveness: {timeout_s: 90}, reasoning_effort: High}
terminal: {cwd: /srv, timeout: 20, env_passthrough: [A]}
approvals: {mode: off, timeout: 9, deny: ['rm *'], single_query_mode: approve}
command_allowlist: ['git log, all']
tool_output: {max_bytes: 10}
context_file_max_chars: 99
context_file_read_timeout: 0.5
database: {synchronous: NORMAL}
",
    );
    let groq = &config.providers["groq"];
    assert_eq!(groq.key_env.as_deref(), Some("MY_GROQ"));
    assert_eq!(groq.request_timeout, Some(Duration::from_secs(90)));
    assert_eq!(groq.stale_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(config.toolsets, ["file", "terminal"]);
    assert_eq!((config.agent.max_turns, config.agent.api_max_retries), (Some(7), 0));
    assert_eq!(config.agent.disabled_toolsets, ["web"]);
    assert_eq!(config.agent.run_budget, Some(Duration::from_secs(60)));
    assert_eq!(config.agent.liveness, Some(Duration::from_secs(90)));
    assert_eq!(config.agent.reasoning_effort.as_deref(), Some("high"));
    assert_eq!(config.terminal.cwd, Path::new("/srv"));
    assert_eq!(config.approvals.mode, ApprovalsMode::Off);
    assert_eq!(config.approvals.single_query_mode, NobodyThere::Approve);
    assert_eq!(config.approvals.unattended_mode, NobodyThere::Deny);
    assert_eq!(config.command_allowlist, ["git log, all"]);
    assert_eq!(config.context_file_max_chars, Some(99));
    assert_eq!(config.synchronous, Synchronous::Normal);
}

#[test]
fn i27_a_wrong_value_gives_file_line_name_and_what_to_write() {
    for (text, parts) in [
        ("agent:\n  max_turns: many\n", ["config.yaml:2", "`agent.max_turns`", "`many`", "for example 90"]),
        ("agent: 3\n", ["config.yaml:1", "`agent`", "`3`", "a mapping"]),
        ("\napprovals:\n  mode: sometimes\n", ["config.yaml:3", "`approvals.mode`", "`sometimes`", "`manual`"]),
        ("toolsets: {a: b}\n", ["config.yaml:1", "`toolsets`", "a mapping", "[hermes-cli]"]),
        ("providers:\n  groq: sk\n", ["config.yaml:2", "`providers.groq`", "a text", "indented"]),
        ("tool_output: {max_bytes: 0}\n", ["config.yaml:1", "max_bytes", "`0`", "50000"]),
    ] {
        let error = error(text);
        for part in parts {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}

#[test]
fn i27_unknown_settings_are_no_error() {
    let config = config("hooks: {a: [1, {b: c}]}\nmcp_servers: [x]\nagent: {future: [1]}\n\"a.b\": 1\n1: 2\ntrue: 3\n");
    assert_eq!(config.agent.api_max_retries, 3);
}

#[test]
fn i27_text_that_is_not_utf8_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope { profile: "default".into(), home: dir.path().into() };
    std::fs::write(scope.config_yaml(), b"a: 1\nb: \xff\n").unwrap();
    assert!(Config::load(&scope).unwrap_err().to_string().contains("line 2"));
}

#[test]
fn i24_debug_never_shows_a_secret() {
    let config = config("model: {api_key: sk-one}\nproviders: {x: {api_key: sk-two}}\nother: {token: sk-three}\n");
    let text = format!("{config:?}{:#?}", config.model);
    assert!(!text.contains("sk-"), "{text}");
    for text in ["providers: {groq: sk-1}", "providers: {groq: {api_key: [sk-1]}}", "model: {api_key: {a: sk-1}}"] {
        let error = error(text);
        assert!(!error.contains("sk-"), "{error}");
    }
}
