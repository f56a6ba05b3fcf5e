//! How connections to servers are opened: over the network, or as the owner of the store says. A
//! simulation gives its own streams here, so that all that is above them is as in production.

use std::{fmt, io, pin::Pin, sync::Arc};

use redis::{AsyncConnectionConfig, RedisError, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};
use tollgate_settings::{CurrentAccess, RedisAddress};

/// How connections to Redis are opened.
#[derive(Clone, Default)]
pub enum Transport {
    /// Over the network, as the settings say.
    #[default]
    Network,
    /// Each on a stream from here. What the settings say of TLS is left to it.
    Streams(Arc<dyn Fn(&RedisAddress) -> OpeningStream + Send + Sync>),
}

/// A stream to a server, as soon as it is open.
pub type OpeningStream = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// What a connection needs of a stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Network => "Network",
            Transport::Streams(_) => "Streams",
        })
    }
}

/// An open connection, and the task that reads and writes on its stream; the library has that of a
/// network connection itself.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: JoinSet<()>,
}

impl Transport {
    /// Opens a connection to a server and logs in.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn open(
        &self,
        address: &RedisAddress,
        access: &CurrentAccess,
        config: AsyncConnectionConfig,
    ) -> Result<Opened, RedisError> {
        let client = access.client(address)?;
        let mut driver = JoinSet::new();
        let connection = match self {
            Transport::Network => {
                client.get_multiplexed_async_connection_with_config(&config).await?
            }
            Transport::Streams(open) => {
                let stream = open(address).await?;
                let session = client.get_connection_info().redis_settings();
                let (connection, drive) =
                    MultiplexedConnection::new_with_config(session, stream, config).await?;
                driver.spawn_local(drive);
                connection
            }
        };
        Ok(Opened { connection, driver })
    }
}
