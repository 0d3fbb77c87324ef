//! Certificates: what is trusted, what is not, and what a person is told. The authorities live as long as a test.

use std::sync::Arc;

use hermes_providers::{ErrorClass, HttpChatModel, Network, ProviderError, Transport};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::server::{Server, ask, config, good};

/// An authority of its own, which nobody trusts by himself.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A server of this name that speaks these protocols.
    pub(crate) fn acceptor(&self, name: &str, protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(tls))
    }

    /// A network whose file of own authorities holds this one.
    pub(crate) fn trusted(&self) -> Network {
        Network { extra_roots_pem: self.pem.clone().into_bytes(), ..Network::default() }
    }
}

/// A model behind TLS at this name and port.
pub(crate) fn secure_model(name: &str, port: u16, network: Network) -> HttpChatModel {
    let mut config = config(&format!("https://{name}:{port}/v1"));
    config.transport = Some(Transport::new(network));
    HttpChatModel::new(config).unwrap()
}

async fn asked(server: &Server, network: Network) -> Result<String, ProviderError> {
    let (text, end) = ask(&secure_model("127.0.0.1", server.port, network)).await;
    end.map(|_| text)
}

#[tokio::test]
async fn an_own_authority_is_trusted_only_when_its_file_is_given() {
    let own = Authority::new();
    let server = Server::start_secure(own.acceptor("127.0.0.1", &["http/1.1"]), |_| good("hello")).await;
    assert_eq!(asked(&server, own.trusted()).await.unwrap(), "hello");
    assert_eq!(server.seen().len(), 1);
    for network in [Network::default(), Authority::new().trusted()] {
        let error = asked(&server, network).await.unwrap_err();
        assert_eq!((error.class, error.code()), (ErrorClass::Certificate, "HM2017"), "{error}");
        assert!(error.message.contains("cannot be verified") && error.message.contains("ca_file"), "{error}");
    }
    assert_eq!(server.seen().len(), 1, "no request, and so no key, went to a server that nobody vouches for");
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused_although_its_authority_is_trusted() {
    let own = Authority::new();
    let server = Server::start_secure(own.acceptor("other.example.test", &["http/1.1"]), |_| good("hello")).await;
    let error = asked(&server, own.trusted()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Certificate, "{error}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_file_that_holds_no_authority_says_so_before_anything_is_sent() {
    let own = Authority::new();
    let server = Server::start_secure(own.acceptor("127.0.0.1", &["http/1.1"]), |_| good("hello")).await;
    let broken = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    for (pem, said) in [("no certificate at all", "holds no certificate"), (broken, "is not PEM")] {
        let network = Network { extra_roots_pem: pem.as_bytes().to_vec(), ..Network::default() };
        let error = asked(&server, network).await.unwrap_err();
        assert!(error.class == ErrorClass::Certificate && error.message.contains(said), "{error}");
    }
    assert!(server.seen().is_empty());
}
