//! The thread that exports spans, and the queue to it.
//!
//! Requests only ever put spans into the queue, and drop them if it is full. The thread takes them
//! out in batches. While the endpoint is slow or away, it tries one batch again and again, and the
//! queue becomes full: so memory is bounded by the queue and that batch.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver as EndReceiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{
        Notify,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Instant, sleep, sleep_until},
};

use super::{
    TraceCounts, TraceSettings,
    counts::DropReason,
    delivery::{Delivery, DeliveryError, Receipt},
    encode::encode,
    span::Span,
};

/// Records traces and exports them, until it is dropped.
pub struct Tracer {
    pub(super) settings: Arc<TraceSettings>,
    pub(super) sink: SpanSink,
    /// Notified when the thread is to end.
    ending: Arc<Notify>,
    /// Whether the thread has ended.
    ended: Mutex<EndReceiver<()>>,
}

/// Where spans go that have ended.
#[derive(Clone)]
pub(super) struct SpanSink {
    queue: Sender<Span>,
    counts: Arc<TraceCounts>,
}

/// The thread's own.
struct Exporter {
    queue: Receiver<Span>,
    delivery: Delivery,
    settings: Arc<TraceSettings>,
    counts: Arc<TraceCounts>,
    ending: Arc<Notify>,
    /// Whether the process ends: then nothing is waited for but the endpoint's response.
    is_ending: bool,
    /// Whether the latest batch was not delivered.
    is_failing: bool,
}

impl Tracer {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread, or no TLS.
    pub fn start(settings: TraceSettings) -> io::Result<Tracer> {
        let settings = Arc::new(settings);
        let counts = Arc::<TraceCounts>::default();
        let ending = Arc::<Notify>::default();
        let (sender, queue) = channel(settings.queue);
        let (is_over, ended) = sync_channel(1);
        let exporter = Exporter {
            queue,
            delivery: Delivery::new(Arc::clone(&settings)).map_err(io::Error::other)?,
            settings: Arc::clone(&settings),
            counts: Arc::clone(&counts),
            ending: Arc::clone(&ending),
            is_ending: false,
            is_failing: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("traces".into()).spawn(move || {
            let _is_over: SyncSender<()> = is_over;
            runtime.block_on(exporter.run());
            runtime.shutdown_background();
        })?;
        let sink = SpanSink { queue: sender, counts };
        Ok(Tracer { settings, sink, ending, ended: Mutex::new(ended) })
    }

    /// What became of spans.
    pub fn counts(&self) -> &TraceCounts {
        &self.sink.counts
    }

    /// Exports what waits, and waits for that, but no longer than `limit`. Spans that end later are
    /// dropped.
    pub fn finish(&self, limit: Duration) {
        self.ending.notify_one();
        let ended = self.ended.lock();
        // The thread sends nothing: its end of the channel goes when it ends.
        if ended.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the last spans were not delivered: the endpoint is too slow");
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.ending.notify_one();
    }
}

impl SpanSink {
    /// Hands a span over, or drops it.
    pub(super) fn send(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.count_dropped(DropReason::QueueFull, 1);
        }
    }
}

impl Exporter {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.gather(&mut batch).await {
            self.export(std::mem::take(&mut batch)).await;
        }
    }

    /// Waits for a batch: a full one, or what has come within the usual time after its first span.
    /// Returns whether there is one: at the end there is none.
    async fn gather(&mut self, batch: &mut Vec<Span>) -> bool {
        let most = self.settings.batch;
        let mut due = None;
        while batch.len() < most {
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.ending.notified(), if !self.is_ending => {
                    self.is_ending = true;
                    // What is in it is still there to be taken.
                    self.queue.close();
                }
                taken = self.queue.recv_many(batch, most - batch.len()) => {
                    if taken == 0 {
                        break;
                    }
                    due.get_or_insert_with(|| Instant::now() + self.settings.every);
                }
                () = wait => break,
            }
        }
        !batch.is_empty()
    }

    /// Delivers a batch, or gives it up.
    async fn export(&mut self, batch: Vec<Span>) {
        let spans = batch.len();
        let body = Bytes::from(encode(batch, &self.settings.resource));
        let mut times = 0;
        let error = loop {
            times += 1;
            let error = match self.delivery.post(body.clone()).await {
                Ok(receipt) => return self.note_receipt(spans, &receipt),
                Err(error) => error,
            };
            let Some(pause) = error.pause(times).filter(|_| !self.is_ending) else { break error };
            self.note_failure(&error);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.ending.notified() => {
                    self.is_ending = true;
                    self.queue.close();
                }
            }
        };
        self.note_failure(&error);
        let reason = match error {
            DeliveryError::Refused(_) => DropReason::Refused,
            _ => DropReason::Undelivered,
        };
        self.counts.count_dropped(reason, spans);
    }

    fn note_receipt(&mut self, spans: usize, receipt: &Receipt) {
        let refused = receipt.refused.min(spans);
        self.counts.count_exported(spans - refused);
        if refused > 0 || !receipt.message.is_empty() {
            self.counts.count_dropped(DropReason::Refused, refused);
            let message = &receipt.message;
            tracing::warn!(refused, message, "the endpoint has not taken all spans");
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("spans are delivered again");
        }
    }

    /// Logged once until spans are delivered again.
    fn note_failure(&mut self, error: &DeliveryError) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let endpoint = &self.settings.endpoint;
            tracing::warn!(%endpoint, %error, "spans cannot be delivered");
        }
    }
}
