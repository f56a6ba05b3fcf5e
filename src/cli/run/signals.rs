//! The signals that a running proxy acts on.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::reload::{Origin, ReloadHandle};

/// How often signals have asked the process to end, from the moment that this is made.
#[derive(Clone)]
pub(super) struct Signals(watch::Receiver<u8>);

/// Those that are caught.
pub(super) struct SignalStreams {
    terminate: Signal,
    interrupt: Signal,
    /// A configuration that came from no files is not read anew, and then the signal does what it
    /// always does.
    hangup: Option<Signal>,
}

impl Signals {
    /// Acts on what was caught, also on what has come since. Each SIGHUP has the configuration read
    /// anew. To be called inside of a runtime.
    pub(super) fn of(mut caught: SignalStreams, reload: Option<ReloadHandle>) -> Signals {
        let (times, watch) = watch::channel(0_u8);
        tokio::spawn(async move {
            loop {
                caught.wait_for_the_end(reload.as_ref()).await;
                times.send_modify(|times| *times = times.saturating_add(1));
            }
        });
        Signals(watch)
    }

    /// Waits for the first signal to end.
    pub(super) async fn end(&mut self) {
        self.signalled(1).await;
    }

    /// Waits for the second signal, which cuts the shutdown short.
    pub(super) async fn hurry(&mut self) {
        self.signalled(2).await;
    }

    async fn signalled(&mut self, times: u8) {
        if self.0.wait_for(|count| *count >= times).await.is_err() {
            // The sender is gone: no signal can arrive.
            std::future::pending().await
        }
    }
}

impl SignalStreams {
    /// Catches signals from here on; SIGHUP if the configuration came from files. To be called
    /// inside of a runtime.
    pub(super) fn catch(origin: Option<&Origin>) -> io::Result<SignalStreams> {
        Ok(SignalStreams {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: origin.map(|_| signal(SignalKind::hangup())).transpose()?,
        })
    }

    async fn wait_for_the_end(&mut self, reload: Option<&ReloadHandle>) {
        let SignalStreams { terminate, interrupt, hangup } = self;
        loop {
            let hung_up = async {
                match hangup {
                    Some(signal) => signal.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hung_up => reload.into_iter().for_each(ReloadHandle::order),
            }
        }
    }
}
