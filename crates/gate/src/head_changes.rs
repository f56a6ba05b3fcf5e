//! What a proxy that forwards a request itself has to change about its head: what this proxy would
//! change, but for the fields that belong to a connection.

use http::{HeaderMap, HeaderName};
use tollgate_upstream::clean_request_of_envoy;

use super::{
    prepare::{
        X_TOLLGATE_CALLER, X_TOLLGATE_SUBJECT, X_TOLLGATE_TIER, name_caller, name_method,
        strip_credentials,
    },
    request_state::RequestState,
};

/// Changes of a request's head. The response to a proxy that asks has it among its extensions.
#[derive(Clone, Debug, Default)]
pub struct HeadChanges {
    /// Fields that replace those of their names.
    pub set: HeaderMap,
    /// Fields that are removed, whether there are any or not.
    pub removed: Vec<HeaderName>,
    /// Names of query parameters that are removed, as they are written.
    pub removed_parameters: Vec<String>,
}

impl HeadChanges {
    /// Those of an admitted request with these fields and this query. The other proxy's peer may be
    /// a trusted one.
    pub(super) fn of(
        before: &HeaderMap,
        query: Option<&str>,
        state: &RequestState<'_>,
        peer_is_trusted: bool,
    ) -> HeadChanges {
        let mut after = before.clone();
        strip_credentials(&mut after, state);
        // All upstreams of a policy have the same.
        let upstream = state.policy.and_then(|policy| policy.upstreams.first());
        let own = upstream.map(|upstream| &upstream.own_headers);
        if let Some(own) = own {
            clean_request_of_envoy(&mut after, own, peer_is_trusted);
        }
        name_caller(&mut after, state);
        if let Some(method) = &state.overriding_method {
            name_method(&mut after, method);
        }
        if let Some(route) = state.route {
            route.request_headers.apply(&mut after);
        }
        let mut set = HeaderMap::new();
        for name in after.keys() {
            let is_same = after.get_all(name).iter().eq(before.get_all(name).iter());
            if !is_same {
                after.get_all(name).iter().for_each(|value| {
                    set.append(name.clone(), value.clone());
                });
            }
        }
        // Also those that the proxy may not have shown.
        let closed = own.into_iter().flat_map(|own| own.closed());
        let own_names = [&X_TOLLGATE_CALLER, &X_TOLLGATE_SUBJECT, &X_TOLLGATE_TIER];
        let always = own_names.into_iter().chain(closed);
        let mut removed: Vec<HeaderName> = Vec::new();
        for name in before.keys().chain(always) {
            if !after.contains_key(name) && !removed.contains(name) {
                removed.push(name.clone());
            }
        }
        let sources = state.policy.map(|policy| &policy.identity.sources);
        let spelled =
            sources.zip(query).into_iter().flat_map(|(own, query)| own.query_names(query));
        let named = sources.and_then(|own| own.query.as_deref());
        let mut removed_parameters: Vec<String> = named.map(str::to_owned).into_iter().collect();
        removed_parameters.extend(spelled.filter(|own| Some(*own) != named).map(str::to_owned));
        HeadChanges { set, removed, removed_parameters }
    }
}
