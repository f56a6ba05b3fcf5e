//! The signals that a running proxy acts on.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::reload::ReloadHandle;

/// Signals, caught from the moment that this is made.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// With what it asks for. A configuration that came from no files is not read anew, and then the
    /// signal does what it always does.
    hangup: Option<(Signal, ReloadHandle)>,
}

impl Signals {
    /// To be called inside of a runtime.
    pub(super) fn catch(reload: Option<ReloadHandle>) -> io::Result<Signals> {
        let hangup =
            reload.map(|reload| Ok::<_, io::Error>((signal(SignalKind::hangup())?, reload)));
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: hangup.transpose()?,
        })
    }

    /// Waits until the process is told to end. Until then each SIGHUP has the configuration read
    /// anew.
    pub(super) async fn wait_for_the_end(self) {
        let Signals { mut terminate, mut interrupt, mut hangup } = self;
        loop {
            let hung_up = async {
                match &mut hangup {
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
