//! Where this process gets its listening sockets from, and where they go.

use std::path::Path;

use anyhow::Context;
use tollgate_settings::{ListenAddress, ListenerSettings, Settings};

use crate::server::{
    Listener,
    handover::{Handover, HandoverError, Inherited, Predecessor, SharedSocket},
};

/// Open sockets, and the processes before and after this one.
pub(super) struct Sockets {
    /// Those that workers serve: of clients first, then of proxies that ask.
    pub(super) listeners: Vec<Listener>,
    pub(super) admin: Option<AdminSockets>,
    /// Where other programs ask in the protocol of Redis, in the order of the settings.
    pub(super) decisions: Vec<Listener>,
    /// Who serves until this process does.
    pub(super) predecessor: Option<Predecessor>,
    pub(super) succession: Option<Succession>,
}

/// Where operators ask.
pub(super) struct AdminSockets {
    pub(super) all: Listener,
    /// For metrics only.
    pub(super) metrics: Option<Listener>,
}

/// Who goes on when this process ends.
pub(super) struct Succession {
    pub(super) handover: Handover,
    pub(super) sockets: Vec<SharedSocket>,
}

impl Sockets {
    /// Opens what the settings name: with what was inherited, what the process that serves hands
    /// over, and else anew.
    pub(super) fn open(settings: &Settings, mut inherited: Inherited) -> anyhow::Result<Sockets> {
        let path = settings.handover.as_deref();
        let predecessor = path.map(|path| ask(path, &mut inherited)).transpose()?.flatten();
        let listeners = settings.all_listeners().map(|listener| {
            let opened = inherited.listener(listener);
            opened.with_context(|| cannot_listen(&listener.address, &inherited))
        });
        let listeners = listeners.collect::<anyhow::Result<Vec<_>>>()?;
        let admin = settings.admin.as_ref().map(|admin| {
            let mut open = |address: &ListenAddress| {
                let plain = ListenerSettings::plain(address.clone());
                let opened = inherited.listener(&ListenerSettings { mode: admin.mode, ..plain });
                opened.with_context(|| cannot_listen(address, &inherited))
            };
            let all = open(&admin.address)?;
            let metrics = admin.metrics.as_ref().map(open).transpose()?;
            Ok::<_, anyhow::Error>(AdminSockets { all, metrics })
        });
        let admin = admin.transpose()?;
        let decisions = settings.decisions.redis.iter().map(|decisions| {
            let opened = inherited.listener(&decisions.listener);
            opened.with_context(|| cannot_listen(&decisions.listener.address, &inherited))
        });
        let decisions = decisions.collect::<anyhow::Result<Vec<_>>>()?;
        let succession = path.map(|path| {
            let handover = Handover::open(path, &mut inherited).with_context(|| at(path))?;
            let of_admin = admin.iter().flat_map(|own| [&own.all].into_iter().chain(&own.metrics));
            let all = listeners.iter().chain(of_admin).chain(&decisions);
            let sockets: Vec<SharedSocket> = all.map(Listener::share).collect::<Result<_, _>>()?;
            Ok::<_, anyhow::Error>(Succession { handover, sockets })
        });
        let succession = succession.transpose()?;
        for address in inherited.addresses() {
            tracing::info!(
                %address,
                "not listened at any more: the settings do not name it; clients wait in vain where a \
                 socket unit still does"
            );
        }
        Ok(Sockets { listeners, admin, decisions, predecessor, succession })
    }
}

fn ask(path: &Path, inherited: &mut Inherited) -> anyhow::Result<Option<Predecessor>> {
    let Some((predecessor, sockets)) = Predecessor::ask(path).with_context(|| at(path))? else {
        return Ok(None);
    };
    inherited.extend(sockets);
    Ok(Some(predecessor))
}

/// What failed, with the sockets that were passed for other addresses: one may have been meant.
fn cannot_listen(address: &ListenAddress, inherited: &Inherited) -> String {
    let passed: Vec<String> = inherited.addresses().map(ListenAddress::to_string).collect();
    match passed.is_empty() {
        true => format!("cannot listen on {address}"),
        false => format!(
            "cannot listen on {address}, while sockets were passed for {}: `ListenStream` of a socket \
             unit and `listeners` name the same addresses",
            passed.join(", ")
        ),
    }
}

fn at(path: &Path) -> String {
    format!("cannot take over at {}", path.display())
}

impl Succession {
    /// Waits until another process serves. `save` is called before it starts, and `resume` if it
    /// does not.
    pub(super) async fn wait(
        self,
        save: impl AsyncFn(),
        resume: impl AsyncFn(),
    ) -> Result<(), HandoverError> {
        let successor = self.handover.wait(self.sockets, save, resume).await?;
        tracing::info!(pid = successor.pid, "another process has taken over");
        Ok(())
    }
}
