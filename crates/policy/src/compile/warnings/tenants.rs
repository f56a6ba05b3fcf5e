//! Claims in braces in an `issuer` that no token of a well-known provider has, and braces that
//! stand for nothing.

use tollgate_identity::{IssuerClaim, TenantIssuer};
use tollgate_yaml::{Check, warning::Rule};

use crate::{Policy, compile::Compiler, file::RawPolicy};

/// Where Microsoft issues tokens, in each of its clouds.
const ENTRA_HOSTS: &[&str] = &[
    "login.microsoftonline.com",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "sts.windows.net",
    "sts.chinacloudapi.cn",
];
/// The claim with the tenant in tokens of Microsoft.
const ENTRA_TENANT: &str = "tid";

impl Compiler<'_> {
    /// Braces in the issuer where the policy says nothing of tenants: no token has them in `iss`.
    pub(super) fn warn_of_idle_braces(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (issuer, raw) in policy.identity.issuers.iter().zip(&raw.identity.jwt) {
            let place = &raw.value.issuer;
            if issuer.claim != IssuerClaim::Exact || !place.value.contains(['{', '}']) {
                continue;
            }
            let help = match TenantIssuer::parse(&place.value, Vec::new()) {
                Some(tenants) => help_for(tenants.claim()),
                None => "write the `iss` of its tokens, or one claim in braces and `tenants: any`"
                    .to_owned(),
            };
            self.warn(Rule::IdleBrace, place.span, "a brace that is taken as it is written", help);
        }
    }

    /// Microsoft's metadata have `{tenantid}` in the issuer, and its tokens have the tenant as
    /// `tid`.
    ///
    /// It is not taken for `{tid}`: braces stand for the claim of that name with every provider. An
    /// exception for some hosts would be wrong without a word for the same tokens behind another
    /// host.
    pub(super) fn warn_of_absent_tenant_claims(&mut self, raw: &RawPolicy, policy: &Policy) {
        for (issuer, raw) in policy.identity.issuers.iter().zip(&raw.identity.jwt) {
            let place = &raw.value.issuer;
            let Some(claim) = issuer.tenants().map(|tenants| tenants.claim()) else { continue };
            let host = place.value.split("://").nth(1).and_then(|rest| rest.split('/').next());
            let Some(host) = host.filter(|host| ENTRA_HOSTS.contains(host)) else { continue };
            if claim == ENTRA_TENANT {
                continue;
            }
            let message =
                format!("every token is refused: those of {host} have no claim `{claim}`");
            let right =
                place.value.replace(&format!("{{{claim}}}"), &format!("{{{ENTRA_TENANT}}}"));
            let help = format!("write \"{right}\": they have the tenant as `{ENTRA_TENANT}`");
            self.warn(Rule::TenantClaim, place.span, message, help);
        }
    }
}

/// What to write so that the braces around a claim stand for the tenant.
fn help_for(claim: &str) -> String {
    let of_entra = match claim {
        "tenantid" => ", which Entra's tokens call `tid`",
        _ => "",
    };
    format!(
        "with `tenants: any`, or a list of them, `{{{claim}}}` stands for the claim \
         `{claim}`{of_entra}"
    )
}
