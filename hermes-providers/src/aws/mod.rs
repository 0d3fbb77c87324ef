//! What AWS wants of a request: a signature, and credentials that are found where AWS's own tools find them.
//!
//! `sign.rs` is Signature Version 4, pure, checked against the test vectors that AWS publishes. [`AwsCredentials`] is the
//! chain: a bearer key, keys in variables, a web identity, the files that `aws configure` writes. No environment is read
//! here; the caller says where things are ([`AwsSources`]). Temporary keys are renewed before they end, by one request for
//! all who wait.

mod chain;
mod ini;
mod sign;
mod sources;
mod sts;
mod time;

pub use chain::AwsCredentials;
pub(crate) use sign::{Keys, Request, sign};
pub use sources::{AwsEnvKeys, AwsSources, WebIdentity};
pub(crate) use time::clock_error_ms;

/// The name that requests to models are signed for.
pub(crate) const SERVICE: &str = "bedrock";
/// Where requests go when nobody names a region, as the maker's page about the runtime's addresses lists it first.
pub const DEFAULT_REGION: &str = "us-east-1";

/// The end of addresses in this region's part of AWS.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// The address of the models' runtime in a region.
#[must_use]
pub fn runtime_url(region: &str) -> String {
    format!("https://bedrock-runtime.{region}.{}", domain(region))
}

/// The region that a host of AWS stands in: `bedrock-runtime.eu-west-1.amazonaws.com`, also of a private endpoint.
pub(crate) fn region_of(host: &str) -> Option<&str> {
    let name = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let name = name.strip_suffix(".vpce").unwrap_or(name);
    let region = name.rsplit('.').next()?;
    let looks = region.contains('-') && region.ends_with(|c: char| c.is_ascii_digit());
    looks.then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_read_from_an_address_and_written_into_one() {
        for (host, region) in [
            ("bedrock-runtime.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("vpce-1-a.bedrock-runtime.us-east-1.vpce.amazonaws.com", Some("us-east-1")),
            ("sts.amazonaws.com", None),
            ("localhost", None),
            ("eu-west-1.example.com", None),
        ] {
            assert_eq!(region_of(host), region, "{host}");
        }
        assert_eq!(runtime_url("eu-west-1"), "https://bedrock-runtime.eu-west-1.amazonaws.com");
        assert_eq!(runtime_url("cn-north-1"), "https://bedrock-runtime.cn-north-1.amazonaws.com.cn");
    }
}
