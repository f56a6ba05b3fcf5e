//! The callers of `tollgate demo --traffic`: a dozen of three tiers, at about 25 requests a second
//! in all. They are clients like others, over real connections, and end with the process.

use std::{io, net::SocketAddr, time::Duration};

use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which a caller's pace goes up and down.
const WAVE_SECONDS: f64 = 90.0;

/// A caller.
pub(super) struct Client {
    pub(super) credential: Credential,
    /// Requests a second, on average.
    pub(super) pace: f64,
    /// Asked for in turn.
    pub(super) paths: &'static [&'static str],
}

/// What a caller is known by.
pub(super) enum Credential {
    Token(String),
    /// The client's address, as a proxy in front would tell it.
    Address(&'static str),
}

/// Starts all of them on a thread of their own.
pub(super) fn start(proxy: SocketAddr, clients: Vec<Client>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("traffic".into()).spawn(move || {
        runtime.block_on(async {
            let start = Instant::now();
            let asking = clients.into_iter().enumerate();
            let asking = asking.map(|(number, client)| client.keep_asking(proxy, number, start));
            futures_util::future::join_all(asking).await;
        });
    })?;
    Ok(())
}

impl Client {
    async fn keep_asking(self, proxy: SocketAddr, number: usize, start: Instant) {
        for path in self.paths.iter().cycle() {
            // Callers are at different places of their waves.
            let phase = start.elapsed().as_secs_f64() / WAVE_SECONDS + number as f64 / 5.0;
            let pace = self.pace * (1.0 + 0.5 * (phase * std::f64::consts::TAU).sin());
            sleep(Duration::from_secs_f64(1.0 / pace)).await;
            if let Err(error) = self.ask(proxy, path).await {
                tracing::debug!(%error, "a request of the demo failed");
            }
        }
    }

    /// One request over a connection of its own, and its whole response.
    async fn ask(&self, proxy: SocketAddr, path: &str) -> anyhow::Result<()> {
        let mut request = Request::get(path).header(header::HOST, proxy.to_string());
        request = match &self.credential {
            Credential::Token(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"))?;
                request.header(header::AUTHORIZATION, value)
            }
            Credential::Address(address) => request.header("x-forwarded-for", *address),
        };
        let request = request.body(Empty::<Bytes>::new())?;
        timeout(TIMEOUT, async {
            let stream = TcpStream::connect(proxy).await?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let asking = async move {
                let response = sender.send_request(request).await?;
                response.into_body().collect().await?;
                anyhow::Ok(())
            };
            // The connection ends when there is nobody left to send.
            let (asked, connection) = tokio::join!(asking, connection);
            connection?;
            asked
        })
        .await?
    }
}
