//! As much of an HTTP/1.1 server as tests need on the loopback: the cassette and the fake server are made of it.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Largest body of a request.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Largest head of a request.
const MAX_HEAD_BYTES: u64 = 64 * 1024;
/// Longest line that gives the size of a chunk.
const MAX_SIZE_LINE_BYTES: u64 = 256;

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// One connection.
pub(crate) struct Connection {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: BufReader::new(reader), writer }
    }

    /// The next request; `None` when the client is gone.
    async fn read(&mut self) -> io::Result<Option<Arrived>> {
        let mut head = (&mut self.reader).take(MAX_HEAD_BYTES);
        let mut first = String::new();
        if head.read_line(&mut first).await? == 0 {
            return Ok(None);
        }
        let mut parts = first.split_whitespace();
        let (Some(method), Some(target)) = (parts.next(), parts.next()) else { return Err(bad("no request")) };
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if head.read_line(&mut line).await? == 0 {
                return Err(bad("the head is cut or too large"));
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a name"))?;
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let of = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let body = if of("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            self.chunked().await?
        } else {
            let length = of("content-length").map_or(Ok(0), str::parse).map_err(|_| bad("no length"))?;
            self.exactly(length).await?
        };
        Ok(Some(Arrived { method, target, headers, body }))
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > MAX_BODY_BYTES {
            return Err(bad("the body is too large"));
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).await?;
        Ok(body)
    }

    async fn chunked(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.line().await?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("no size of a chunk"))?;
            if size > MAX_BODY_BYTES.saturating_sub(body.len()) {
                return Err(bad("the body is too large"));
            }
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size).await?);
            self.line().await?;
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.reader).take(MAX_SIZE_LINE_BYTES).read_line(&mut line).await?;
        if !line.ends_with('\n') {
            return Err(bad("a line is cut or too long"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Begins an answer whose length nobody knows yet.
    pub(crate) async fn begin<'a>(
        &mut self,
        status: u16,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {status} -\r\ntransfer-encoding: chunked\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.writer.write_all(head.as_bytes()).await
    }

    /// One piece of the answer, at once.
    pub(crate) async fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.writer.write_all(&chunk).await?;
        self.writer.flush().await
    }

    /// The end of the answer.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        self.writer.write_all(b"0\r\n\r\n").await?;
        self.writer.flush().await
    }
}

/// What answers requests.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request. An error ends the connection, as the client sees it with a real server.
    fn serve(&self, connection: &mut Connection, arrived: Arrived) -> impl Future<Output = io::Result<()>> + Send;
}

/// Takes connections until it is dropped, which ends them too.
pub(crate) async fn accept<S: Serve>(listener: TcpListener, server: Arc<S>) {
    // Connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, Arc::clone(&server)));
                }
                Err(error) => {
                    tracing::warn!("the server on the loopback takes no more connections: {error}");
                    break;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    while connections.join_next().await.is_some() {}
}

async fn converse<S: Serve>(stream: TcpStream, server: Arc<S>) {
    // Pieces must arrive as they were sent.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(stream);
    loop {
        let served = match connection.read().await {
            Ok(None) => break,
            Ok(Some(arrived)) => server.serve(&mut connection, arrived).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::debug!("a connection to the loopback ended: {error}");
            break;
        }
    }
}
