//! Which tokens a route takes.

use tollgate_identity::{AcceptedIssuers, AcceptedTokens, Auth};
use tollgate_keyword::Keyword;
use tollgate_yaml::{Check, Entries, Node, Value};

use super::{Compiler, routes::RouteContext};
use crate::file::{AuthMode, LATER, RawAcceptedTokens, RawRoute};

const HELP: &str = "write required, optional, none, or { required: [<issuer>] }";

impl Compiler<'_> {
    pub(super) fn auth(&mut self, route: &RawRoute, context: &RouteContext<'_>) -> Option<Auth> {
        let Some(node) = &route.auth else { return Some(Auth::Optional(AcceptedTokens::ALL)) };
        let (mode, accepted) = match &node.value {
            Value::Mapping(_) => self.accepted_tokens(node, context)?,
            _ => (AuthMode::from_keyword(self.text(node)?), AcceptedTokens::ALL),
        };
        match mode {
            Some(AuthMode::Required | AuthMode::Optional)
                if accepted.issuers == AcceptedIssuers::Only(Vec::new()) =>
            {
                self.refuse(node.span, "a list of no issuers", HELP);
                None
            }
            Some(AuthMode::Required) => {
                // A certificate has no scopes, and no claims.
                let may_have_none = context.has_certificates()
                    && route.scopes.is_empty()
                    && accepted == AcceptedTokens::ALL;
                if context.names.issuers.are_none() && !may_have_none {
                    self.refuse(
                        node.span,
                        "no token can be good: the policy knows no issuer",
                        "add one under `identity: jwt`, or write `auth: none`",
                    );
                }
                Some(Auth::Required(accepted))
            }
            Some(AuthMode::Optional) => Some(Auth::Optional(accepted)),
            Some(AuthMode::None) if accepted == AcceptedTokens::ALL => Some(Auth::None),
            Some(AuthMode::None) | None => {
                self.note(node.span, "not a valid `auth`", HELP);
                None
            }
        }
    }

    /// Which tokens a route takes: `{ required: [main], audience: [api] }`. Without a list of
    /// issuers a token of any is required.
    fn accepted_tokens(
        &mut self,
        node: &Node,
        context: &RouteContext<'_>,
    ) -> Option<(Option<AuthMode>, AcceptedTokens)> {
        let raw: RawAcceptedTokens = self.decode(node, LATER)?;
        let (mode, issuers) = match (&raw.required, &raw.optional) {
            (Some(_), Some(optional)) => {
                let message = "a token is either required or optional";
                self.refuse(optional.span, message, "keep one of the lists");
                return None;
            }
            (Some(list), None) => (AuthMode::Required, Some(list)),
            (None, Some(list)) => (AuthMode::Optional, Some(list)),
            (None, None) if raw.audience.is_empty() && raw.required_claims.is_empty() => {
                self.refuse(node.span, "not a valid `auth`", HELP);
                return None;
            }
            (None, None) => (AuthMode::Required, None),
        };
        let issuers = match issuers {
            None => AcceptedIssuers::All,
            Some(list) => {
                let names = list.value.iter();
                let positions = names.map(|name| self.resolve(name, &context.names.issuers));
                AcceptedIssuers::Only(positions.collect::<Option<_>>()?)
            }
        };
        let names = Entries::default();
        let claims = self.claim_rules(&raw.audience, &raw.required_claims, &names)?;
        Some((Some(mode), AcceptedTokens { issuers, claims }))
    }
}
