//! What tests are made of. Handles stop what they stand for when they are dropped, and pass on the
//! panics of their threads.

mod authority;
mod client;
mod doors;
pub(crate) mod frames;
mod otlp;
mod policy;
mod ports;
mod proxy;
mod redis;
mod send_signal;
mod signal;
mod tls;
mod token;
mod upstream;
mod wire;

use std::time::Duration;

pub(crate) use self::{
    authority::{Answer, Authority, INTROSPECTION, IssuerKey, JWKS, METADATA},
    client::{Client, Request, Response, delete, get, http2, http2_given_up, options, post},
    doors::Door,
    otlp::{ExportedSpan, OtlpReceiver},
    policy::{Policy, algorithms, forms_of_algorithms},
    ports::{ClosedPort, free_address, free_port},
    proxy::{Proxy, START, compile, seconds},
    redis::{Certificates, Cluster, Gremlin, Redis, Sentinels, Shards, eventually},
    send_signal::send_signal,
    signal::Signal,
    tls::{ClientIdentity, Signer, TlsStream, dial, last_request, shake_hands},
    token::{ISSUER, SECRET, token, token_signed_by, token_with, unsigned_token},
    upstream::{Exchange, Upstream},
    wire::Fields,
};

/// How long anything may take that is bound to happen. Only a failing test waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
