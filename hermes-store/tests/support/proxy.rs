//! The network between a process and the server, as a proxy that can be cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
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
    /// The next COMMIT arrives; its answer and all that follows on that connection are swallowed, and nobody is told.
    SwallowAtCommit = 3,
}

/// A proxy on a port of its own, which the system chose.
pub(crate) struct Proxy {
    port: u16,
    wire: Wire,
    /// Ended with the proxy.
    _tasks: JoinSet<()>,
}

#[derive(Clone, Default)]
struct Wire {
    state: Arc<AtomicU8>,
    changed: Arc<tokio::sync::Notify>,
    /// Connections that were made, and the number of the first that is not swallowed.
    made: Arc<AtomicUsize>,
    swallowed_below: Arc<AtomicUsize>,
    /// How often somebody began to listen for notifications.
    listens: Arc<AtomicUsize>,
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
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Wire::default();
        let of_proxy = wire.clone();
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
        Self { port, wire: of_proxy, _tasks: tasks }
    }

    /// How sqlx reaches the server through the proxy.
    pub(crate) fn url(&self) -> String {
        format!("postgres://hermes@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    pub(crate) fn set(&self, network: Network) {
        self.wire.state.store(network as u8, Ordering::SeqCst);
        self.wire.changed.notify_waiters();
    }

    /// From now on every byte of the connections that there are is swallowed, in both directions, for ever. New ones
    /// work.
    pub(crate) fn swallow_connections(&self) {
        self.wire.swallowed_below.store(self.wire.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// How often somebody began to listen for notifications.
    pub(crate) fn listens(&self) -> usize {
        self.wire.listens.load(Ordering::SeqCst)
    }
}

/// Carries bytes both ways until one side ends, or the wire is cut.
async fn carry<S: AsyncRead + AsyncWrite>(client: TcpStream, server: S, wire: Wire) {
    let number = wire.made.fetch_add(1, Ordering::SeqCst);
    let is_swallowed = || number < wire.swallowed_below.load(Ordering::SeqCst);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let cut = tokio::sync::Notify::new();
    let up = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count) = from_client.read(&mut bytes).await
            && count > 0
        {
            wire.pass().await;
            if is_swallowed() {
                continue;
            }
            if bytes[..count].windows(8).any(|window| window == b"LISTEN \"") {
                wire.listens.fetch_add(1, Ordering::SeqCst);
            }
            let is_commit = bytes[..count].windows(7).any(|window| window == b"COMMIT\0");
            if is_commit && (wire.is(Network::CutAtCommit) || wire.is(Network::SwallowAtCommit)) {
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
            if is_swallowed() {
                continue;
            }
            // The server has answered, so it has committed.
            let is_cut = wire.is(Network::CutAtCommit);
            if (is_cut || wire.is(Network::SwallowAtCommit))
                && tokio::time::timeout(std::time::Duration::ZERO, cut.notified()).await.is_ok()
            {
                wire.state.store(Network::Whole as u8, Ordering::SeqCst);
                if is_cut {
                    return;
                }
                // The client speaks to nobody.
                std::future::pending::<()>().await;
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
