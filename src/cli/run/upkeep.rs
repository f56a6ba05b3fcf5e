//! The work beside the traffic: following the files, and the admin listener.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use crate::{
    access_log::AccessLog,
    admin::{Admin, Context, Phase, PhaseCell},
    gate::Shared,
    reload::{Origin, Reload, ReloadHandle, ReloadState},
    settings::ReadyStore,
};

/// Both, until this is dropped.
pub(super) struct Upkeep {
    pub(super) phase: Arc<PhaseCell>,
    // Before the reload, which it asks.
    admin: Option<(SocketAddr, Admin)>,
    reload: Option<Reload>,
}

impl Upkeep {
    /// Follows the files of `origin`, if there are any, and answers at `listener`, if there is one.
    /// `ready_store` says whether the process is ready while the store is away.
    pub(super) fn start(
        shared: &Arc<Shared>,
        origin: Option<Origin>,
        listener: Option<TcpListener>,
        ready_store: ReadyStore,
        access_log: Option<AccessLog>,
    ) -> io::Result<Upkeep> {
        let started = shared.clock.now();
        let digest = origin.as_ref().map(|origin| origin.inputs.policies_digest());
        let state = Arc::new(ReloadState::new(started, digest.unwrap_or_default()));
        let reload = origin
            .map(|origin| Reload::start(origin, Arc::clone(shared), Arc::clone(&state)))
            .transpose()?;
        let phase = Arc::<PhaseCell>::default();
        let context = Context {
            shared: Arc::clone(shared),
            state,
            access_log,
            reload: reload.as_ref().map(Reload::handle),
            phase: Arc::clone(&phase),
            started,
            ready_store,
        };
        let admin = match listener {
            Some(listener) => Some((listener.local_addr()?, Admin::start(listener, context)?)),
            None => None,
        };
        Ok(Upkeep { phase, admin, reload })
    }

    /// Asks for reloads, if there is anything to read.
    pub(super) fn reload(&self) -> Option<ReloadHandle> {
        self.reload.as_ref().map(Reload::handle)
    }

    /// Closes the admin listener: another process answers at its address now, and queries about
    /// readiness are meant for that process.
    pub(super) fn hand_over(&mut self) {
        self.admin = None;
    }

    /// Logs that the proxy is ready, and the address of the admin listener.
    pub(super) fn announce(&self) {
        self.phase.set(Phase::Serving);
        let Some((address, _)) = &self.admin else { return };
        tracing::info!(%address, "admin listener is open");
        if !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "the admin listener has no passwords: restrict network access to it"
            );
        }
    }
}
