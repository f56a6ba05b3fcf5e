//! The work beside the traffic: following the files, and the admin listener.

use std::{io, sync::Arc};

use tollgate_gate::Shared;
use tollgate_observe::access_log::AccessLog;
use tollgate_settings::{AdminSettings, ListenAddress};

use super::sockets::AdminSockets;
use crate::{
    admin::{Admin, Context, Describer, Phase, PhaseCell},
    reload::{Origin, Reload, ReloadHandle, ReloadState},
    server::Listener,
};

/// Where operators ask.
struct AdminAddresses {
    all: ListenAddress,
    /// For metrics only.
    metrics: Option<ListenAddress>,
}

/// Both, until this is dropped.
pub(super) struct Upkeep {
    pub(super) phase: Arc<PhaseCell>,
    /// Describes the proxy to others.
    pub(super) describer: Arc<Describer>,
    // Before the reload, which it asks.
    admin: Option<(AdminAddresses, Admin)>,
    /// Whether clients of the admin listener need no token.
    is_open: bool,
    reload: Option<Reload>,
}

impl Upkeep {
    /// Follows the files of `origin`, if there are any, and answers at the admin listener, if there
    /// is one.
    pub(super) fn start(
        shared: &Arc<Shared>,
        origin: Option<Origin>,
        admin: Option<(AdminSockets, AdminSettings)>,
        access_log: Option<AccessLog>,
    ) -> io::Result<Upkeep> {
        let started = shared.clock.now();
        let listeners =
            origin.as_ref().map(|origin| origin.settings.encrypted_listeners().cloned().collect());
        let digest = origin.as_ref().map(|origin| origin.inputs.policies_digest());
        let state = Arc::new(ReloadState::new(started, digest.unwrap_or_default()));
        let reload = origin
            .map(|origin| Reload::start(origin, Arc::clone(shared), Arc::clone(&state)))
            .transpose()?;
        let phase = Arc::<PhaseCell>::default();
        let describer =
            Describer::new(Arc::clone(shared), Arc::clone(&state), Arc::clone(&phase), started);
        let describer = Arc::new(describer);
        let is_open = admin.as_ref().is_some_and(|(_, settings)| settings.tokens.is_none());
        let start = |(sockets, settings): (AdminSockets, AdminSettings)| {
            let AdminSockets { all, metrics } = sockets;
            let context = Context {
                shared: Arc::clone(shared),
                listeners: listeners.unwrap_or_default(),
                state,
                access_log,
                reload: reload.as_ref().map(Reload::handle),
                phase: Arc::clone(&phase),
                started,
                describer: Arc::clone(&describer),
                ready: settings.ready,
            };
            let addresses = AdminAddresses {
                all: all.address()?,
                metrics: metrics.as_ref().map(Listener::address).transpose()?,
            };
            Ok::<_, io::Error>((addresses, Admin::start(all, metrics, &settings, context)?))
        };
        let admin = admin.map(start).transpose()?;
        Ok(Upkeep { phase, describer, admin, is_open, reload })
    }

    /// Asks for reloads, if there is anything to read.
    pub(super) fn reload(&self) -> Option<ReloadHandle> {
        self.reload.as_ref().map(Reload::handle)
    }

    /// Where the admin listener is, if there is one.
    pub(super) fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin.as_ref().map(|(addresses, _)| &addresses.all)
    }

    /// Closes the admin listener: another process answers at its address now, and queries about
    /// readiness are meant for that process.
    pub(super) fn hand_over(&mut self) {
        self.admin = None;
    }

    /// Logs that the proxy is ready, and the address of the admin listener.
    pub(super) fn announce(&self) {
        self.phase.set(Phase::Serving);
        let Some((AdminAddresses { all: address, metrics }, _)) = &self.admin else { return };
        tracing::info!(%address, "admin listener is open");
        if let Some(address) = metrics {
            tracing::info!(%address, "metrics are served");
        }
        if self.is_open && !address.is_local() {
            tracing::warn!(
                %address,
                "the admin listener needs no token: restrict network access to it"
            );
        }
    }
}
