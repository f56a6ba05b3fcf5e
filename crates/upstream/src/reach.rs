//! Whether the servers of an upstream can be reached, for those who ask before requests depend on
//! it.

use std::{io, net::SocketAddr};

use futures_util::future::join_all;
use thiserror::Error;
use tollgate_policy::{Server, Upstream};

use super::{
    Group, Member, UpstreamError,
    dial::Dialer,
    health::{Probe, ProbeError},
    resolve::{ask_system, look_up},
};

/// Why a server cannot be reached.
#[derive(Debug, Error)]
pub enum Unreached {
    /// Its name could not be looked up.
    #[error("its addresses are not known: {0}")]
    Name(io::Error),
    /// An address takes no connection, or none that is trusted.
    #[error("{address}: {error}")]
    Connection {
        /// The address.
        address: SocketAddr,
        /// What happened there.
        error: UpstreamError,
    },
    /// An address fails the policy's health check.
    #[error("{address} fails the health check: {error}")]
    HealthCheck {
        /// The address.
        address: SocketAddr,
        /// What happened there.
        error: ProbeError,
    },
}

/// Connects once to each address of a server, and lets it pass the policy's health check if there
/// is one. Returns the addresses.
///
/// # Errors
/// [`Unreached`]: the first address that fails.
pub async fn reach(upstream: &Upstream, server: &Server) -> Result<Vec<SocketAddr>, Unreached> {
    let addresses =
        look_up(ask_system, &server.host, server.port).await.map_err(Unreached::Name)?;
    let group = Group::labelled(&upstream.name, upstream);
    let members = addresses.iter().map(|address| Member::new(*address, server, &group));
    let tried = join_all(members.map(async |member| attempt(upstream, &member).await)).await;
    tried.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(addresses)
}

async fn attempt(upstream: &Upstream, member: &Member) -> Result<(), Unreached> {
    let address = member.address;
    match Probe::of(upstream) {
        Some(probe) => {
            probe.run(member).await.map_err(|error| Unreached::HealthCheck { address, error })
        }
        None => {
            let dialing = Dialer::new(upstream);
            let dialed = dialing.dial(member, upstream.protocol, upstream).await;
            dialed.map(drop).map_err(|error| Unreached::Connection { address, error })
        }
    }
}
