//! What a model at AWS needs: where its credentials may be, and where it is.

use hermes_providers::aws::{AwsSources, runtime_url};

use crate::config::Keys;
use crate::model::Choice;

/// Where the chain looks, and the address when the region tells it. `usual` is the profile's own address: the region
/// counts only where nobody named another one.
pub(crate) fn sources(choice: &Choice, usual: &str, keys: &Keys) -> (AwsSources, Option<String>) {
    let variable = |name: &str| keys.value(name).map(|(value, _)| value.to_owned());
    let mut sources = AwsSources::from_variables(&variable, keys.env().user_home.as_deref());
    // A key of the configuration wins over the variable's, and a placeholder is none.
    sources.bearer.clone_from(&choice.key);
    let is_named = choice.base_url != usual;
    sources.runtime_url = is_named.then(|| choice.base_url.clone());
    let address = sources.region.as_deref().filter(|_| !is_named).map(runtime_url);
    (sources, address)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::config::{DotEnv, Env};

    const USUAL: &str = "https://bedrock-runtime.us-east-1.amazonaws.com";

    fn run(base_url: &str, dotenv: &str, vars: &[(&str, &str)]) -> (AwsSources, Option<String>) {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let env = Env { vars, user_home: Some("/somebody".into()), cwd: "/".into() };
        let keys = Keys::of(DotEnv::parse(dotenv), env, "/h/.env".into());
        let choice = Choice { base_url: base_url.to_owned(), ..Choice::practice() };
        sources(&choice, USUAL, &keys)
    }

    #[test]
    fn the_region_of_env_file_or_environment_gives_the_address() {
        let (found, address) =
            run(USUAL, "AWS_ACCESS_KEY_ID=AK\nAWS_SECRET_ACCESS_KEY=s", &[("AWS_REGION", "eu-west-1")]);
        assert_eq!(address.as_deref(), Some("https://bedrock-runtime.eu-west-1.amazonaws.com"));
        let keys = found.keys.unwrap();
        assert_eq!((keys.access_key_id.as_str(), keys.secret_access_key.expose_secret()), ("AK", "s"));
        assert_eq!((found.runtime_url, found.region.as_deref()), (None, Some("eu-west-1")));
        assert_eq!(found.config_file.as_deref(), Some("/somebody/.aws/config".as_ref()));
        assert_eq!(run(USUAL, "", &[]).1, None);
    }

    #[test]
    fn a_named_address_is_kept_whatever_the_region() {
        let (found, address) = run("https://proxy.example/aws", "", &[("AWS_REGION", "eu-west-1")]);
        assert_eq!((found.runtime_url.as_deref(), address), (Some("https://proxy.example/aws"), None));
    }

    #[test]
    fn a_bearer_key_is_the_choices_and_no_other() {
        // The choice refuses placeholders; so must the chain.
        assert!(run(USUAL, "AWS_BEARER_TOKEN_BEDROCK=changeme", &[]).0.bearer.is_none());
    }
}
