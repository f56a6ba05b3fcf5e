//! Paths that lie deeper than the patterns of a regular expression.
//!
//! In a pattern `**` stands at the end alone, so an expression for paths in any folder becomes a
//! pattern for each depth, down to some. What lies deeper would take the routes behind it: where
//! one of those is less strict, it is closed.

use std::collections::BTreeSet;

use super::{
    Importer,
    patterns::covers,
    route::{Deep, Route},
};
use crate::Finding;

impl Importer<'_> {
    /// The routes of a server, with closed ones for what lies deeper than others and is less strict
    /// there.
    pub(super) fn with_deep(&mut self, routes: Vec<Route>) -> Vec<Route> {
        let mut all: Vec<Route> = Vec::new();
        let mut closed: Vec<String> = Vec::new();
        for (at, route) in routes.iter().enumerate() {
            let is_open = |path: &String| !closed.iter().any(|wide| covers(wide, path));
            let mut own = route.clone();
            own.patterns.retain(is_open);
            if !own.patterns.is_empty() || route.patterns.is_empty() {
                all.push(own);
            }
            let Some(deep) = &route.deep else { continue };
            let mut behind = routes.iter().skip(at + 1).filter(|other| other.deep.is_none());
            if !behind.any(|other| route.is_stricter_than(other)) {
                continue;
            }
            let paths: Vec<String> =
                deep.paths.iter().filter(|path| is_open(path)).cloned().collect();
            if !paths.is_empty() {
                closed.extend(paths.iter().cloned());
                all.push(Route::closed(route.place.clone(), paths));
            }
            self.row(row(route, deep, &closed));
        }
        all
    }
}

/// `closed`: the patterns of all routes that are closed for this reason.
fn row(route: &Route, deep: &Deep, closed: &[String]) -> Finding {
    let Deep { there, depth, paths } = deep;
    let takes = |path: &String| closed.iter().find(|wide| covers(wide, path));
    let routes: BTreeSet<&str> = paths.iter().filter_map(takes).map(String::as_str).collect();
    let here = format!(
        "deeper than {depth} folders: closed (403), as no pattern of a policy is for all depths. \
         If such paths are in use, take the route {} out: they then take the routes behind it, \
         and this location neither refuses nor limits anything there",
        Vec::from_iter(routes).join(" and ")
    );
    Finding::nearly(route.place.to_string(), there.as_str(), here)
}
