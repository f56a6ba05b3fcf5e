//! Callers by certificate, where no listener asks clients for one.

use tollgate_identity::CallerKey;
use tollgate_yaml::{
    Check,
    warning::{Condition, OnSettings, Rule},
};

use crate::{Policy, compile::Compiler, file::RawPolicy};

impl Compiler<'_> {
    /// Each is at its own place: of a policy without mistakes, callers are as they are written.
    pub(super) fn warn_of_unasked_certificates(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (raw, caller) in raw.identity.callers.iter().zip(&policy.identity.callers) {
            if !matches!(caller.key, CallerKey::Certificate(_)) {
                continue;
            }
            let message = format!(
                "no request has a caller `{}`: no listener of the settings asks clients for a \
                 certificate",
                raw.value.name.value
            );
            let help = "add `client_ca_file` to the `tls` of the listener that these clients use";
            self.warn(Rule::UnaskedCertificate, raw.value.key.span, message, help);
            self.only(Condition::With(OnSettings::NoClientCertificates));
        }
    }
}
