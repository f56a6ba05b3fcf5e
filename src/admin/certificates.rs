//! How long the certificates of listeners are valid, for `GET /metrics`.

use std::collections::HashSet;

use tollgate_settings::ListenerSettings;

use super::exposition::{Exposition, MetricKind};

/// A series a listener and file. Two certificates from one file would be one series twice: only
/// the first is written.
pub(super) fn write_metrics(text: &mut Exposition, listeners: &[ListenerSettings]) {
    let help = "When the certificates of listeners end, as clients are shown them now.";
    text.family("tollgate_tls_certificate_not_after_timestamp_seconds", MetricKind::Gauge, help);
    for listener in listeners {
        let Some(tls) = &listener.tls else { continue };
        let address = listener.address.to_string();
        let mut written = HashSet::new();
        for certificate in tls.validity().iter() {
            if written.insert(&certificate.file) {
                let labels = [("listener", &*address), ("certificate", &*certificate.file)];
                // Prometheus' times are after 1970.
                text.sample(&labels, u64::try_from(certificate.not_after).unwrap_or_default());
            }
        }
    }
}
