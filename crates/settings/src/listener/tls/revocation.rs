//! Which certificates of clients their authorities have revoked (CRLs, RFC 5280 section 5).
//!
//! A client whose state is not known is refused, unless the settings accept it: an authority that
//! publishes no list, or one that is out of date. Every certificate up to the authority is looked
//! for, not the client's alone.

use std::cmp::Reverse;

use aws_lc_rs::digest;
use rustls::{
    pki_types::{CertificateDer, CertificateRevocationListDer, pem::PemObject},
    server::ClientCertVerifierBuilder,
};
use tollgate_clock::Timestamp;
use tollgate_yaml::{
    Check, Choice, Spanned,
    warning::{Condition, Rule, Warning},
};
use x509_parser::{
    certificate::X509Certificate, prelude::FromDer, revocation_list::CertificateRevocationList,
    x509::X509Name,
};

use super::{RawTls, WithoutCrl};
use crate::Checker;

/// Largest file with CRLs that is read: several hundred thousand certificates.
const MAX_CRL_BYTES: u64 = 32 << 20;

/// The revoked certificates, and the decision where the state is not known.
pub(super) struct Revocation {
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of them is out of date; none: that makes no difference.
    pub(super) until: Option<Timestamp>,
    accepts_expired: bool,
    accepts_missing: bool,
}

impl Revocation {
    /// Has a verifier go by it.
    pub(super) fn apply(self, builder: ClientCertVerifierBuilder) -> ClientCertVerifierBuilder {
        let Revocation { lists, until: _, accepts_expired, accepts_missing } = self;
        let mut builder = builder.with_crls(lists);
        if !accepts_expired {
            builder = builder.enforce_revocation_expiration();
        }
        if accepts_missing {
            builder = builder.allow_unknown_revocation_status();
        }
        builder
    }

    /// Adds all that it consists of to a digest.
    pub(super) fn identify(&self, all: &mut digest::Context) {
        all.update(&[u8::from(self.accepts_expired), u8::from(self.accepts_missing)]);
        for list in &self.lists {
            all.update(digest::digest(&digest::SHA256, list).as_ref());
        }
    }
}

impl Checker<'_> {
    /// The revocation rules of `raw`, if it has any. `Err` if they are wrong, after the problem was
    /// reported. `authorities` are those that sign clients' certificates.
    pub(super) fn revocation(
        &mut self,
        raw: &RawTls,
        authorities: &[CertificateDer<'_>],
    ) -> Result<Option<Revocation>, ()> {
        let mut accepts = |raw: &Option<Spanned<Choice<WithoutCrl>>>| {
            let decision = match raw {
                None => WithoutCrl::default(),
                Some(raw) => self.keyword(raw).ok_or(())?,
            };
            Ok::<bool, ()>(matches!(decision, WithoutCrl::Accept))
        };
        let accepts_expired = accepts(&raw.crl_expired)?;
        let accepts_missing = accepts(&raw.crl_missing)?;
        let Some(file) = &raw.crl_file else {
            for (name, field) in
                [("crl_expired", &raw.crl_expired), ("crl_missing", &raw.crl_missing)]
            {
                if let Some(place) = field {
                    let message = format!("`{name}` needs `crl_file`");
                    self.refuse(place, message, "add `crl_file`, or remove this");
                }
            }
            return Ok(None);
        };
        let pem = self.file(file, MAX_CRL_BYTES).ok_or(())?;
        let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
        let mut lists = found.unwrap_or_default();
        // Of two lists of one authority, the verifier takes the first.
        lists.sort_by_key(|list| Reverse(List::read(list).map(|list| list.made)));
        let known: Vec<List<'_>> = lists.iter().filter_map(|list| List::read(list)).collect();
        if known.is_empty() || known.len() < lists.len() {
            let message = match lists.is_empty() {
                true => format!("no CRL in `{}`", file.value),
                false => format!("a CRL in `{}` cannot be read", file.value),
            };
            let help = "name a file with CRLs in PEM form; `openssl crl -inform DER -in x.crl` \
                        writes one in that form";
            self.refuse(file, message, help);
            return Err(());
        }
        let until = known.iter().filter_map(|list| list.next).min().filter(|_| !accepts_expired);
        self.warn_of_stale_lists(file, &known);
        if !accepts_missing {
            self.warn_of_missing_lists(file, &known, authorities);
        }
        Ok(Some(Revocation { lists, until, accepts_expired, accepts_missing }))
    }

    /// From its next update on, newer revocations are missing from a list.
    fn warn_of_stale_lists(&mut self, file: &Spanned<String>, known: &[List<'_>]) {
        for List { issuer, next, .. } in known {
            let Some(next) = next else { continue };
            let message = format!("the CRL of `{issuer}` in `{}` is out of date", file.value);
            let help = "fetch the authority's current CRL";
            let problem = self.inspection.document.problem(file.span, message, help);
            let condition = Condition::From(*next);
            self.inspection.warnings.push(Warning { rule: Rule::StaleCrl, problem, condition });
        }
    }

    fn warn_of_missing_lists(
        &mut self,
        file: &Spanned<String>,
        known: &[List<'_>],
        authorities: &[CertificateDer<'_>],
    ) {
        for authority in authorities {
            let Ok((_, certificate)) = X509Certificate::from_der(authority) else { continue };
            let subject = certificate.subject();
            if known.iter().all(|list| list.issuer.as_raw() != subject.as_raw()) {
                let message =
                    format!("no CRL of `{subject}` in `{}`: its clients are refused", file.value);
                let help = "add its CRL, or write `crl_missing: accept`";
                self.warn(Rule::MissingCrl, file, message, help);
            }
        }
    }
}

/// What a CRL says of itself.
struct List<'l> {
    issuer: X509Name<'l>,
    made: i64,
    /// When there is to be another one.
    next: Option<Timestamp>,
}

impl List<'_> {
    fn read(der: &[u8]) -> Option<List<'_>> {
        let (_, list) = CertificateRevocationList::from_der(der).ok()?;
        let next = list.next_update().and_then(|next| u64::try_from(next.timestamp()).ok());
        Some(List {
            made: list.last_update().timestamp(),
            next: next.map(Timestamp::from_secs),
            issuer: list.tbs_cert_list.issuer,
        })
    }
}
