//! Finds the route of a request among many.
//!
//! A route takes the paths that its pattern matches, and those that the servers behind it may take
//! for one of these ([`PathReading`]). The first route that takes a path wins, except that a later
//! one which spells out what the first one reads otherwise goes before it: `/health.json` does not
//! fall to `/health` where it has a route of its own. Of a path that asks a script for something,
//! the route that spells out most of it wins.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use http::Method;

use super::{Matcher, Request, RequestPath, RoutePart, segments};
use crate::{MatrixParams, Networks, PathReading};

/// Finds the route that a request takes.
#[derive(Debug, Default)]
pub struct Router {
    matchers: Vec<Matcher>,
    index: Index,
    /// All ways in which routes read paths, beside literally.
    readings: Vec<PathReading>,
    /// Those routes, by a first segment in lower case.
    readers: Index,
}

/// Routes by the first segment of their paths.
#[derive(Debug, Default)]
struct Index {
    /// For each first segment that some route spells out: the routes that can match a path that
    /// starts so, in order.
    by_first_segment: HashMap<Box<str>, Vec<usize>>,
    /// Routes whose first segment may be anything, in order.
    others: Vec<usize>,
}

impl Router {
    /// A router over `matchers`, whose order decides.
    pub fn new(matchers: Vec<Matcher>) -> Self {
        let all = matchers.iter().map(|matcher| matcher.path.first_literal().map(Cow::Borrowed));
        let index = Index::new(all.enumerate());
        let reads = |matcher: &&Matcher| !matcher.reading.is_literal();
        let mut readings = Vec::new();
        for matcher in matchers.iter().filter(reads) {
            if !readings.contains(&matcher.reading) {
                readings.push(matcher.reading);
            }
        }
        let readers = matchers.iter().enumerate().filter(|(_, matcher)| reads(matcher));
        let readers =
            Index::new(readers.map(|(at, matcher)| {
                (at, matcher.path.first_literal().map(PathReading::any_case))
            }));
        Router { index, readings, readers, matchers }
    }

    /// What the routes match, in their order.
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// For each route, in their order, what of it a request does not match; nothing: it takes the
    /// request, or would if it came first.
    pub fn differences(&self, request: Request<'_>) -> impl Iterator<Item = Vec<RoutePart>> {
        let taken = self.route(request);
        self.matchers.iter().enumerate().map(move |(at, matcher)| {
            let parts = [RoutePart::Host, RoutePart::Path, RoutePart::Method, RoutePart::Address];
            let differs = |part: &RoutePart| !matcher.matches_in(*part, request);
            let found: Vec<RoutePart> = parts.into_iter().filter(differs).collect();
            match taken {
                // It may read the path otherwise.
                Some(taken) if taken == at => Vec::new(),
                // Or there is one that is closer.
                Some(taken) if at < taken && found.is_empty() => vec![RoutePart::Path],
                _ => found,
            }
        })
    }

    /// Position of the route that a request takes.
    pub fn route(&self, request: Request<'_>) -> Option<usize> {
        let literal = self.literal(request);
        let readers = self.readings.iter();
        readers.filter_map(|reading| self.reader(*reading, literal, request)).min().or(literal)
    }

    /// The first route that matches the path as its servers surely read it.
    fn literal(&self, request: Request<'_>) -> Option<usize> {
        let mut readings =
            self.readings.iter().filter(|own| own.matrix_params != MatrixParams::Keep);
        if !request.path.has_parameters() || readings.clone().next().is_none() {
            let path = request.path.plain();
            return self.index.find(path, |at| self.is_at(at, |own| own.matches(path, request)));
        }
        let first_of = |reading: &PathReading| {
            let path = request.path.as_read_by(reading);
            let is_read_so = |own: &Matcher| own.reading.matrix_params == reading.matrix_params;
            self.index.find(&path, |at| {
                self.is_at(at, |own| is_read_so(own) && own.matches(&path, request))
            })
        };
        let others = first_of(&PathReading::default());
        readings.by_ref().filter_map(first_of).chain(others).min()
    }

    /// Pairs of routes of which the later one goes before the earlier one, though the servers of
    /// that one may take its paths for theirs: positions, earlier first.
    pub(crate) fn preceded(&self) -> Vec<(usize, usize)> {
        let by_path_alone = |own: &Matcher| Matcher {
            hosts: Vec::new(),
            methods: Vec::new(),
            from: Networks::default(),
            ..own.clone()
        };
        let paths = Router::new(self.matchers.iter().map(by_path_alone).collect());
        let mut pairs = Vec::new();
        for (earlier, own) in self.matchers.iter().enumerate() {
            if own.reading.is_literal() {
                continue;
            }
            for (later, other) in self.matchers.iter().enumerate().skip(earlier + 1) {
                let goes_before = |path: String| {
                    let path = RequestPath::new(&path, &path);
                    own.path.takes(path, own.reading) && paths.route_of_path(path) == Some(later)
                };
                let may_meet = own.methods.is_empty()
                    || other.methods.is_empty()
                    || own.methods.iter().any(|method| other.methods.contains(method));
                if may_meet && other.path.samples_beside(&own.path).any(goes_before) {
                    pairs.push((earlier, later));
                }
            }
        }
        pairs
    }

    /// The route of a path, for routes that take any host, method and address.
    fn route_of_path(&self, path: RequestPath<'_>) -> Option<usize> {
        let address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.route(Request { host: None, path, method: &Method::GET, address })
    }

    /// The route that takes the path for another one, which it may stand for to servers that read
    /// it so: the first before `literal`, which matches the path as it is. None if that one spells
    /// out what the first reads otherwise.
    fn reader(
        &self,
        reading: PathReading,
        literal: Option<usize>,
        request: Request<'_>,
    ) -> Option<usize> {
        let path = &*request.path.as_read_by(&reading);
        if reading.asks_script(path) {
            let closest = self.closest(reading, path, request);
            return closest.filter(|at| literal.is_none_or(|literal| *at < literal));
        }
        if let Some(parameter) = self.with_empty_segment(reading, path, literal, request) {
            return Some(parameter);
        }
        let forms = reading.forms(path);
        let first_of = |form: &Cow<'_, str>| {
            self.readers.find(&PathReading::any_case(form), |at| {
                literal.is_none_or(|literal| at < literal)
                    && self.is_at(at, |own| own.reading == reading && own.takes_form(form, request))
            })
        };
        let firsts: Vec<Option<usize>> = forms.iter().map(first_of).collect();
        let first = firsts.iter().flatten().min().copied()?;
        let own = &self.matchers.get(first)?.path;
        let is_closer = |at: usize, form: &str, reading: &PathReading| {
            self.is_at(at, |other| other.path.spells_out_what(own, form, reading))
        };
        if literal.is_some_and(|literal| is_closer(literal, path, &PathReading::default())) {
            return None;
        }
        // So does a route that takes a form for which less is left out.
        let mut candidates = forms.iter().zip(firsts);
        candidates
            .find_map(|(form, at)| at.filter(|at| *at == first || is_closer(*at, form, &reading)))
    }

    /// The route that takes a path which asks a script for something: one that spells out the
    /// script; or else the one that spells out most segments, or parts of them, first of what
    /// follows `index.php`, then of what is before.
    fn closest(&self, reading: PathReading, path: &str, request: Request<'_>) -> Option<usize> {
        let forms = reading.forms(path);
        let all = forms.iter().enumerate().flat_map(|(left_out, form)| {
            let rank = move |at: &usize| {
                let own = self.matchers.get(*at).filter(|own| own.reading == reading)?;
                let spelled = own.takes_form(form, request).then(|| own.path.spelled(form))?;
                let is_itself = left_out == 0;
                let is_script = is_itself && own.path.spells_script(path, &reading);
                // Such as `/*.php/**`, that goes before `/*.php`.
                let is_for_scripts = is_itself && own.path.is_for_script(path, &reading);
                Some((!is_script, Reverse(spelled), !is_for_scripts, is_itself, left_out, *at))
            };
            self.readers.candidates(&PathReading::any_case(form)).iter().filter_map(rank)
        });
        all.min().map(|(.., at)| at)
    }

    /// The route that has `{name}` or `*` where the path has a slash at its end, if no earlier one
    /// takes all that is below.
    fn with_empty_segment(
        &self,
        reading: PathReading,
        path: &str,
        literal: Option<usize>,
        request: Request<'_>,
    ) -> Option<usize> {
        let form = reading.with_empty_segment(path)?;
        let depth = segments(&form).count();
        let first = self.readers.find(&PathReading::any_case(&form), |at| {
            self.is_at(at, |own| {
                own.reading == reading
                    && own.path.depth() == depth
                    && own.takes_form(&form, request)
            })
        })?;
        let literal = literal.and_then(|at| Some((at, self.matchers.get(at)?)));
        let is_earlier = |(at, own): (usize, &Matcher)| at < first && own.path.is_open_ended();
        (!literal.is_some_and(is_earlier)).then_some(first)
    }

    fn is_at(&self, at: usize, is_it: impl Fn(&Matcher) -> bool) -> bool {
        self.matchers.get(at).is_some_and(is_it)
    }
}

impl Index {
    fn new<'m>(firsts: impl Iterator<Item = (usize, Option<Cow<'m, str>>)>) -> Index {
        let firsts: Vec<(usize, Option<Cow<'m, str>>)> = firsts.collect();
        let by_first_segment = firsts
            .iter()
            .filter_map(|(_, first)| first.as_deref())
            .map(|first| {
                let can_match = |(at, own): &(usize, Option<Cow<'m, str>>)| {
                    own.as_deref().is_none_or(|own| own == first).then_some(*at)
                };
                (Box::from(first), firsts.iter().filter_map(can_match).collect())
            })
            .collect();
        let others =
            firsts.iter().filter(|(_, first)| first.is_none()).map(|(at, _)| *at).collect();
        Index { by_first_segment, others }
    }

    /// The first route that can match a path and does.
    fn find(&self, path: &str, matches: impl Fn(usize) -> bool) -> Option<usize> {
        self.candidates(path).iter().copied().find(|at| matches(*at))
    }

    /// The routes that can match a path.
    fn candidates(&self, path: &str) -> &[usize] {
        let first = segments(path).next().unwrap_or_default();
        self.by_first_segment.get(first).unwrap_or(&self.others)
    }
}
