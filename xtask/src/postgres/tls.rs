//! Certificates of the throw-away server, made when it is made, and valid for two days.
//!
//! `openssl` makes them: Debian's PostgreSQL depends on it (`postgresql-common`, `ssl-cert`), so that it is there wherever
//! the server is. The settings are our own, so that those of the system change nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::user::User;
use crate::shell;

/// Where the certificates are, below the directory of the cluster.
const DIRECTORY: &str = "tls";
/// How long they are valid.
const VALID_DAYS: &str = "2";
/// The name that the server's certificate holds. It does not hold the address, so that a test may meet a wrong name.
pub(super) const HOST: &str = "localhost";

/// Everything that `openssl` is to know.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = ${ENV::CN}
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost
";

/// Where the certificates of the cluster in this directory are: `ca.pem` is the authority of `server.pem`, and
/// `other-ca.pem` another one, which signed nothing.
pub(super) fn directory(cluster: &Path) -> PathBuf {
    cluster.join(DIRECTORY)
}

/// What the server's settings say of them.
pub(super) fn settings(cluster: &Path) -> String {
    let tls = directory(cluster);
    format!("ssl = on\nssl_cert_file = '{0}/server.pem'\nssl_key_file = '{0}/server.key'\n", tls.display())
}

/// Makes all of them.
///
/// # Errors
/// There is no `openssl`, or it fails.
pub(super) fn make(cluster: &Path, user: Option<&User>) -> Result<()> {
    let tls = directory(cluster);
    std::fs::create_dir(&tls).with_context(|| format!("cannot make {}", tls.display()))?;
    std::fs::write(tls.join("openssl.cnf"), CONFIG).with_context(|| format!("cannot write into {}", tls.display()))?;
    if let Some(user) = user {
        user.own(&tls)?;
    }
    let openssl = |name: &str, words: &[&str]| {
        let mut command = super::command(Path::new("openssl"), user, &tls);
        shell::output(command.env("CN", name).args(words)).map(drop).context(
            "the tests of TLS need the program `openssl`, which Debian's postgresql-common brings along; install it",
        )
    };
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", "openssl.cnf"];
    for (name, key, certificate) in
        [("hermes test authority", "ca.key", "ca.pem"), ("another authority", "other-ca.key", "other-ca.pem")]
    {
        let authority = ["-x509", "-extensions", "authority", "-days", VALID_DAYS, "-keyout", key, "-out", certificate];
        openssl(name, &[&["req"][..], &new_key, &authority].concat())?;
    }
    openssl(HOST, &[&["req", "-new"][..], &new_key, &["-keyout", "server.key", "-out", "server.csr"]].concat())?;
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "1"];
    let into = ["-days", VALID_DAYS, "-extfile", "openssl.cnf", "-extensions", "server", "-out", "server.pem"];
    openssl(HOST, &[&sign[..], &into].concat())
}
