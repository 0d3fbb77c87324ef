//! The network between a process and the server, as a proxy that can be cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Network {
    /// Everything arrives.
    Whole = 0,
    /// Nothing arrives any more, in either direction, and nobody is told.
    Partitioned = 1,
    /// The next COMMIT arrives; its answer does not: the connection ends.
    CutAtCommit = 2,
}

/// A proxy on a socket of its own.
pub(crate) struct Proxy {
    dir: TempDir,
    state: Arc<AtomicU8>,
    changed: Arc<tokio::sync::Notify>,
    /// Ended with the proxy.
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Wire {
    state: Arc<AtomicU8>,
    changed: Arc<tokio::sync::Notify>,
}

impl Wire {
    fn is(&self, network: Network) -> bool {
        self.state.load(Ordering::SeqCst) == network as u8
    }

    /// Waits for the end of a partition.
    async fn pass(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if !self.is(Network::Partitioned) {
                return;
            }
            changed.await;
        }
    }
}

impl Proxy {
    /// A proxy before the server of `url`.
    pub(crate) async fn before(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let wire = Wire { state: Arc::default(), changed: Arc::default() };
        let (state, changed) = (Arc::clone(&wire.state), Arc::clone(&wire.changed));
        let options: PgConnectOptions = url.parse().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (wire, options) = (wire.clone(), options.clone());
                connections.spawn(async move {
                    match options.get_socket() {
                        Some(path) => {
                            let path: PathBuf = path.join(format!(".s.PGSQL.{}", options.get_port()));
                            carry(client, UnixStream::connect(path).await.unwrap(), wire).await;
                        }
                        None => {
                            let server = TcpStream::connect((options.get_host(), options.get_port())).await.unwrap();
                            carry(client, server, wire).await;
                        }
                    }
                });
            }
        });
        Self { dir, state, changed, _tasks: tasks }
    }

    /// How sqlx reaches the server through the proxy.
    pub(crate) fn url(&self) -> String {
        super::cluster::url_of_socket(self.dir.path())
    }

    pub(crate) fn set(&self, network: Network) {
        self.state.store(network as u8, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

/// Carries bytes both ways until one side ends, or the wire is cut.
async fn carry<S>(client: UnixStream, server: S, wire: Wire)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite,
{
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let cut = tokio::sync::Notify::new();
    let up = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count) = from_client.read(&mut bytes).await
            && count > 0
        {
            wire.pass().await;
            let is_commit = bytes[..count].windows(7).any(|window| window == b"COMMIT\0");
            if is_commit && wire.is(Network::CutAtCommit) {
                cut.notify_one();
            }
            if to_server.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut bytes);
            let Ok(count) = read.await else { return };
            if count == 0 {
                return;
            }
            wire.pass().await;
            // The server has answered, so it has committed.
            if wire.is(Network::CutAtCommit)
                && tokio::time::timeout(std::time::Duration::ZERO, cut.notified()).await.is_ok()
            {
                wire.state.store(Network::Whole as u8, Ordering::SeqCst);
                return;
            }
            if to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
