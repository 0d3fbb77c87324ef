//! The files that `aws configure` writes: sections with members.
//!
//! Checked against `sdkref/latest/guide/file-format` on docs.aws.amazon.com.

use std::collections::BTreeMap;

/// The members of one section.
pub(super) type Section = BTreeMap<String, String>;

/// What kind of file it is: in the configuration, all profiles but `default` are called `profile NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Credentials,
    Config,
}

/// The section of one profile; `None` when the file has none. Of sections of one name the later members win. Lines that
/// are neither section nor member, and members of members (indented lines), are passed over.
pub(super) fn profile(text: &str, kind: Kind, name: &str) -> Option<Section> {
    let mut found: Option<Section> = None;
    let mut is_ours = false;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(title) = trimmed.strip_prefix('[') {
            let title = title.split(']').next().unwrap_or_default().trim();
            let named = title.strip_prefix("profile").filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim);
            is_ours = match (kind, named) {
                (Kind::Credentials, _) => title == name,
                (Kind::Config, Some(named)) => named.trim_matches('"') == name,
                (Kind::Config, None) => title == name && name == "default",
            };
            if is_ours {
                found.get_or_insert_default();
            }
            continue;
        }
        let is_nested = line.starts_with([' ', '\t']);
        if let (Some(section), Some((key, value))) =
            (found.as_mut().filter(|_| is_ours && !is_nested), trimmed.split_once('='))
        {
            // A comment may follow a value behind a blank.
            let value = [" #", " ;", "\t#", "\t;"]
                .into_iter()
                .fold(value, |value, mark| value.split_once(mark).map_or(value, |(value, _)| value));
            section.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_in_both_kinds_of_file() {
        let credentials = "# mine\n[default]\naws_access_key_id = A\r\naws_secret_access_key=S+/=\n\n[work]\nx=1\n[default]\nx = 2 # why\n";
        let section = profile(credentials, Kind::Credentials, "default").unwrap();
        let member = |key: &str| section.get(key).map(String::as_str);
        assert_eq!((member("aws_access_key_id"), member("aws_secret_access_key")), (Some("A"), Some("S+/=")));
        assert_eq!(member("x"), Some("2"));
        assert_eq!(profile(credentials, Kind::Credentials, "play"), None);
        let config = "[default]\nregion = a\ns3 =\n  region = no\n[profile work]\nREGION = b\n[sso-session work]\nregion = c\n[work]\nregion=d\n";
        let region = |name: &str| profile(config, Kind::Config, name).map(|section| section["region"].clone());
        assert_eq!((region("default").as_deref(), region("work").as_deref()), (Some("a"), Some("b")));
        assert_eq!(region("session work"), None);
    }
}
