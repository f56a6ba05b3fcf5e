//! The signals that a running proxy acts on.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::reload::ReloadHandle;

/// How often signals have asked the process to end, from the moment that this is made.
#[derive(Clone)]
pub(super) struct Signals(watch::Receiver<u8>);

/// Those that are caught.
struct Caught {
    terminate: Signal,
    interrupt: Signal,
    /// With what it asks for. A configuration that came from no files is not read anew, and then the
    /// signal does what it always does.
    hangup: Option<(Signal, ReloadHandle)>,
}

impl Signals {
    /// To be called inside of a runtime. Each SIGHUP has the configuration read anew.
    pub(super) fn catch(reload: Option<ReloadHandle>) -> io::Result<Signals> {
        let hangup =
            reload.map(|reload| Ok::<_, io::Error>((signal(SignalKind::hangup())?, reload)));
        let mut caught = Caught {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: hangup.transpose()?,
        };
        let (times, watch) = watch::channel(0_u8);
        tokio::spawn(async move {
            loop {
                caught.wait_for_the_end().await;
                times.send_modify(|times| *times = times.saturating_add(1));
            }
        });
        Ok(Signals(watch))
    }

    /// Waits until the process is told to end.
    pub(super) async fn end(&mut self) {
        self.told(1).await;
    }

    /// Waits until it is told so twice: whoever does that does not want to wait.
    pub(super) async fn hurry(&mut self) {
        self.told(2).await;
    }

    async fn told(&mut self, times: u8) {
        if self.0.wait_for(|told| *told >= times).await.is_err() {
            // Nobody is left who could tell.
            std::future::pending().await
        }
    }
}

impl Caught {
    async fn wait_for_the_end(&mut self) {
        let Caught { terminate, interrupt, hangup } = self;
        loop {
            let hung_up = async {
                match hangup {
                    Some((signal, reload)) => {
                        signal.recv().await;
                        reload.order();
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                () = hung_up => {}
            }
        }
    }
}
