//! Which providers there are, asked of the real program.

use hermes_tests::home::Home;
use hermes_tests::server::ModelServer;
use serde_json::Value;

fn write(home: &Home, file: &str, text: &str) {
    let folder = home.path().join("model-providers");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(file), text).unwrap();
}

fn value<'a>(provider: &'a Value, name: &str) -> (&'a str, &'a str) {
    let all = provider["values"].as_array().unwrap();
    let found = all.iter().find(|value| value["name"] == name).unwrap();
    (found["value"].as_str().unwrap(), found["source"].as_str().unwrap())
}

#[tokio::test]
async fn b38_the_list_tells_the_source_of_each_value() {
    let home = Home::empty().unwrap();
    let mine = "id = 'deepseek'\nname = 'Mine'\napi_mode = 'chat_completions'\nbase_url = 'http://127.0.0.1:9/v1'\n\
                env_keys = ['MINE_API_KEY']\nkey = 'required'\ndefault_model = 'm'\n";
    write(&home, "mine.toml", mine);
    std::fs::write(home.path().join(".env"), "MINE_API_KEY=sk-9f8a7b6c5d4e\n").unwrap();
    let run = home.run(&["providers", "show", "DeepSeek", "--json"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stdout.contains("sk-9f8a"), "no key is shown");
    let found: Value = serde_json::from_str(&run.stdout).unwrap();
    let provider = &found["providers"][0];
    assert!(provider["source"].as_str().unwrap().ends_with("model-providers/mine.toml"), "{provider}");
    assert_eq!(provider["hides_bundled"], true);
    assert_eq!(value(provider, "key"), ("set", "MINE_API_KEY (.env)"));
    assert_eq!(value(provider, "address").0, "http://127.0.0.1:9/v1");
    let run = home.run(&["providers", "list"]).await.unwrap();
    assert!(run.stdout.contains("mine.toml, instead of the bundled one"), "{run:?}");
    assert!(run.stdout.contains("openrouter"), "{run:?}");
    let run = home.run(&["providers", "show", "openai"]).await.unwrap();
    assert!(run.stdout.contains("responses  (the host api.openai.com, whatever the profile says)"), "{run:?}");
    let run = home.run(&["providers", "show", "nobody"]).await.unwrap();
    assert!(run.code == Some(2) && run.stderr.contains("HM0207"), "{run:?}");
}

#[tokio::test]
async fn a_bad_file_is_told_with_its_line_and_stops_nobody() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    write(&home, "bad.toml", "id = 'bad'\nbase_ulr = 'https://x.example/v1'\n");
    let run = home.run(&["providers", "check"]).await.unwrap();
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("HM2040") && run.stdout.contains("bad.toml:2: "), "{run:?}");
    let run = home.run(&["-z", "hi", "--provider", "bad"]).await.unwrap();
    assert!(run.code == Some(2) && run.stderr.contains("bad.toml:2: "), "{run:?}");
    let run = home.run(&["-z", "hi"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    std::fs::remove_file(home.path().join("model-providers/bad.toml")).unwrap();
    let run = home.run(&["providers", "check"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[tokio::test]
async fn a_provider_of_the_user_answers() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::empty().unwrap();
    let url = server.base_url();
    let mine = format!(
        "id = 'mine'\naliases = ['our-server']\nname = 'Mine'\napi_mode = 'chat_completions'\nbase_url = '{}'\n\
         key = 'optional'\ndefault_model = 'm'\n",
        url.trim_end_matches('/')
    );
    write(&home, "mine.toml", &mine);
    let run = home.run(&["-z", "hi", "--provider", "our-server"]).await.unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stdout.trim().is_empty(), "{run:?}");
}
