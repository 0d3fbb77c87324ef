//! Secrets that others keep: external logins and service accounts, as a profile describes them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_providers::credential::external::{ExternalLogin, ExternalSource, TokenPlace};
use hermes_providers::credential::service_account::{ServiceAccount, ServiceAccountPlace, ServiceAccountSource};
use hermes_providers::credential::{Credentials, FetchedCredentials};
use hermes_providers::{Profile, Transport};

use crate::config::{Keys, Scope};

/// Variables that every command gets: where programs and their own files are. Keys of providers are not among them.
const COMMAND_VARIABLES: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// Reads what profiles say of places in one home.
#[derive(Clone, Copy)]
pub(crate) struct Lender<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) scope: &'a Scope,
}

impl Lender<'_> {
    /// The credentials of a profile that others keep; `named` is the models' address when a person named one.
    pub(crate) fn credentials(
        self,
        profile: &Profile,
        named: Option<&str>,
        transport: &Transport,
    ) -> Option<Arc<dyn Credentials>> {
        if let Some(login) = &profile.external_login {
            return Some(Arc::new(FetchedCredentials::new(self.external(login))));
        }
        let account = profile.service_account.as_ref()?;
        let place = self.account_place(account, named);
        let source = ServiceAccountSource::new(account.clone(), place, transport.clone());
        Some(Arc::new(FetchedCredentials::new(source)))
    }

    /// Where a profile's secret is when others keep it, for people: nothing is run or read, but for whether a file is there.
    pub(crate) fn place_of(self, profile: &Profile) -> Option<LentPlace> {
        if let Some(login) = &profile.external_login {
            let kind = match login.place {
                TokenPlace::Command { .. } => "external_command",
                TokenPlace::File(_) => "external_file",
            };
            let there = match &login.place {
                TokenPlace::Command { .. } => true,
                TokenPlace::File(file) => self.path(file).is_file(),
            };
            return Some(LentPlace { kind, source: self.external(login).label(), there });
        }
        let place = self.account_place(profile.service_account.as_ref()?, None);
        let file = place.key_file?;
        Some(LentPlace { kind: "service_account", source: file.display().to_string(), there: file.is_file() })
    }

    fn external(self, login: &ExternalLogin) -> ExternalSource {
        let more = match &login.place {
            TokenPlace::Command { env, .. } => env.as_slice(),
            TokenPlace::File(_) => &[],
        };
        let names = COMMAND_VARIABLES.iter().copied().chain(more.iter().map(String::as_str));
        let env = names.filter_map(|name| Some((name.to_owned(), self.keys.value(name)?.0.to_owned()))).collect();
        ExternalSource::new(login.clone(), |file| self.path(file), env)
    }

    fn account_place(self, account: &ServiceAccount, named: Option<&str>) -> ServiceAccountPlace {
        let first = |names: &[String]| {
            let value = names.iter().find_map(|name| self.keys.value(name));
            value.map(|(value, _)| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let file = first(&account.key_file_env).or_else(|| account.key_file.clone());
        ServiceAccountPlace {
            key_file: file.map(|file| self.path(&file)),
            project: first(&account.project_env),
            location: first(&account.location_env),
            base_url: named.map(str::to_owned),
        }
    }

    /// A path as a person writes it: `~/` is the user's directory, `${NAME}` a variable, and what is not absolute is in
    /// the home.
    fn path(self, written: &str) -> PathBuf {
        self.scope.place(self.keys.env(), Path::new(&self.keys.expand(written)))
    }
}

/// Where somebody else keeps a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LentPlace {
    /// `external_command`, `external_file` or `service_account`.
    pub(crate) kind: &'static str,
    /// The command's or the file's name.
    pub(crate) source: String,
    /// Whether the file is there; a command is taken to be.
    pub(crate) there: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DotEnv, Env};
    use hermes_providers::Profiles;

    #[test]
    fn places_are_read_as_people_write_them_and_commands_get_no_keys() {
        let vars = [("HOME", "/somebody"), ("OPENAI_API_KEY", "marked-1"), ("TOOL_DIR", "/tools"), ("MINE", "x")];
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let env = Env { vars, user_home: Some("/somebody".into()), cwd: "/".into() };
        let keys = Keys::of(DotEnv::parse("GOOGLE_APPLICATION_CREDENTIALS=key.json\n"), env, "/h/.env".into());
        let scope = Scope { profile: "default".to_owned(), home: "/h".into() };
        let lender = Lender { keys: &keys, scope: &scope };
        assert_eq!(lender.path("~/a/b"), Path::new("/somebody/a/b"));
        assert_eq!(lender.path("${TOOL_DIR}/b"), Path::new("/tools/b"));
        assert_eq!(lender.path("b"), Path::new("/h/b"));
        let profiles = Profiles::bundled().unwrap();
        let place = lender.place_of(profiles.get("vertex").unwrap()).unwrap();
        assert_eq!((place.kind, place.source.as_str(), place.there), ("service_account", "/h/key.json", false));
        assert!(lender.place_of(profiles.get("openai").unwrap()).is_none());
    }
}
