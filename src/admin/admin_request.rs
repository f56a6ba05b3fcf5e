//! A request to the admin listener that has passed the checks.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tollgate_settings::Permission;

/// A request that may be answered.
pub(super) struct AdminRequest {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// The client's address.
    pub(super) peer: IpAddr,
    /// What the token that was sent was needed for. None: none was needed.
    pub(super) token: Option<Permission>,
    pub(super) body: Bytes,
    /// Whether the client may also read. Endpoints that need no token do not know it.
    pub(super) may_read: bool,
}
