//! `rate-limiting` and `rate-limiting-advanced` as limits.
//!
//! There a counter belongs to what the plugin is for and to its key, whatever route is asked. So a
//! limit here is one plugin, or several of one place for several tiers; where another plugin is in
//! force for a tier, its rate is `unlimited`.

mod measure;

use std::{collections::BTreeSet, time::Duration};

use self::measure::Measure;
pub(super) use self::measure::{KINDS, Key};
use super::{
    auth::Auth,
    file::{Asked, File, Plugin},
    tiers::Tiers,
};
use crate::{flow::Flow, names::Names, report::Report};

/// The limits that a route may charge.
const MAX_LIMITS: usize = 8;

/// All limits, and what they say of answers.
#[derive(Default)]
pub(super) struct Limits {
    all: Vec<(Place, Charged, Flow)>,
    names: Names,
    /// Whether limit headers are sent, by plugins.
    pub(super) has_headers: Option<bool>,
    pub(super) statuses: Vec<u64>,
    pub(super) jitter: u64,
}

/// What counters belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    kind: String,
    service: Option<usize>,
    route: Option<usize>,
    is_personal: bool,
    key: Key,
    /// Who requests without credentials are, if they are others on other routes.
    nobody: Option<usize>,
    is_sliding: bool,
    is_calendar: bool,
}

/// A limit of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) name: String,
    pub(super) key: Key,
    pub(super) is_sliding: bool,
    /// The rates of those who have no tier of their own; empty: unlimited.
    pub(super) rates: Vec<(u64, Duration)>,
}

/// Measures by tier. None: no plugin of the place is in force for it.
struct Class {
    place: Place,
    measures: Vec<Option<Measure>>,
    /// Positions of plugins.
    plugins: BTreeSet<usize>,
}

impl Limits {
    /// The limits of a route. The error says why it must be closed.
    pub(super) fn charge<'d>(
        &mut self,
        (file, asked, auth): (&File<'d>, Asked<'_, 'd>, &Auth),
        tiers: &Tiers,
        report: &mut Report,
    ) -> Result<Vec<Charged>, String> {
        let mut charged = Vec::new();
        for kind in KINDS {
            let classes = self.classes(kind, (file, asked, auth), tiers, report)?;
            for class in classes {
                charged.extend(self.take(&class, file, tiers, report));
            }
        }
        match charged.len() > MAX_LIMITS {
            true => Err(format!("a route has at most {MAX_LIMITS} limits")),
            false => Ok(charged),
        }
    }

    fn classes<'d>(
        &mut self,
        kind: &str,
        (file, asked, auth): (&File<'d>, Asked<'_, 'd>, &Auth),
        tiers: &Tiers,
        report: &mut Report,
    ) -> Result<Vec<Class>, String> {
        let mut classes: Vec<Class> = Vec::new();
        let is_on = |own: &Plugin<'d>| own.kind == kind && own.scope.is_on(asked);
        if !file.plugins.iter().any(is_on) {
            return Ok(classes);
        }
        for (at, consumer) in tiers.consumers(auth).enumerate() {
            let consumer = consumer.and_then(|at| file.consumer(at));
            let Some((number, plugin)) = file.effective(kind, Asked { consumer, ..asked }) else {
                continue;
            };
            let measure = Measure::of(plugin, file, report)?;
            self.note(plugin, &measure, file, report);
            let key = measure.key.on(auth, asked.service.is_some());
            let is_for_service = key == Key::All && plugin.scope.service.is_none();
            let place = Place {
                kind: kind.to_owned(),
                service: if is_for_service { asked.service } else { plugin.scope.service },
                route: plugin.scope.route,
                is_personal: plugin.is_personal(),
                key,
                nobody: tiers.changing(at, auth).filter(|_| plugin.is_personal()),
                is_sliding: measure.is_sliding,
                is_calendar: false,
            };
            let known = classes.iter().position(|own| own.place == place);
            let known = known.unwrap_or_else(|| {
                let measures = vec![None; tiers.len()];
                classes.push(Class { place, measures, plugins: BTreeSet::new() });
                classes.len() - 1
            });
            let Some(class) = classes.get_mut(known) else { continue };
            if let Some(own) = class.measures.get_mut(at) {
                *own = Some(measure);
            }
            class.plugins.insert(number);
        }
        if !auth.is_some() {
            // Nobody is known here; elsewhere others may charge the same limit.
            classes.retain(|class| class.measures.first().is_some_and(Option::is_some));
            for class in classes.iter_mut().filter(|class| class.place.route.is_some()) {
                let standard = class.measures.first().cloned().flatten();
                class.measures.fill(standard);
            }
        }
        Ok(classes)
    }

    /// What a plugin says of answers.
    fn note<'d>(
        &mut self,
        plugin: &Plugin<'d>,
        measure: &Measure,
        file: &File<'d>,
        report: &mut Report,
    ) {
        let has_headers = !plugin.config.is_true("hide_client_headers");
        self.has_headers = Some(self.has_headers.unwrap_or_default() || has_headers);
        self.jitter = self.jitter.max(measure.jitter.min(60));
        if !self.statuses.contains(&measure.status) {
            self.statuses.push(measure.status);
        }
        if let [first, _, ..] = self.statuses.as_slice()
            && *first != measure.status
        {
            let there = format!("{}: error_code {}", plugin.words(file), measure.status);
            let here = format!("denied_status: {first}: a policy has one for all limits");
            report.nearly(plugin.section.place(), there, here);
        }
    }

    /// The limits of a class: one for windows of a fixed length, one for months and years; for a
    /// header, each with one by address.
    fn take<'d>(
        &mut self,
        class: &Class,
        file: &File<'d>,
        tiers: &Tiers,
        report: &mut Report,
    ) -> Vec<Charged> {
        let mut charged = Vec::new();
        let keys = match &class.place.key {
            Key::Header(_) => vec![class.place.key.clone(), Key::Address],
            key => vec![key.clone()],
        };
        for is_calendar in [false, true] {
            let rates: Vec<Vec<String>> = class
                .measures
                .iter()
                .map(|own| own.as_ref().map(|own| own.rates(is_calendar)).unwrap_or_default())
                .collect();
            if rates.iter().all(Vec::is_empty) {
                continue;
            }
            for key in &keys {
                let mut flow = key.flow(tiers.has_anonymous()).with("rate", tiers.rate(&rates));
                flow = match (class.place.is_sliding, is_calendar) {
                    (true, _) => flow.with("algorithm", "sliding_window"),
                    (_, true) => flow.with("align", "calendar"),
                    (_, false) => flow.with("align", "epoch"),
                };
                flow = flow.with_some("on_store_error", class.on_store_error());
                let standard = class.measures.first().and_then(Option::as_ref);
                let rates = standard.map(|own| own.lengths(is_calendar)).unwrap_or_default();
                let place = Place { key: key.clone(), is_calendar, ..class.place.clone() };
                let suffix = match (key != &class.place.key, is_calendar) {
                    (true, _) => "-address",
                    (_, true) => "-calendar",
                    _ => "",
                };
                charged.push(self.named(place, (flow, rates), (file, suffix), report));
            }
        }
        let names: Vec<&str> = charged.iter().map(|own| own.name.as_str()).collect();
        for plugin in class.plugins.iter().filter_map(|at| file.plugins.get(*at)) {
            measure::tell(plugin, file, (&names.join(", "), &class.place.key), report);
            class.tell_of_store(plugin, file, report);
        }
        charged
    }

    /// The limit with these fields, which is added if it is not there.
    fn named(
        &mut self,
        place: Place,
        (flow, rates): (Flow, Vec<(u64, Duration)>),
        (file, suffix): (&File<'_>, &str),
        report: &mut Report,
    ) -> Charged {
        let known = self.all.iter().find(|(own, _, written)| *own == place && *written == flow);
        if let Some((_, charged, _)) = known {
            return charged.clone();
        }
        let service = place.service.and_then(|at| file.services.get(at)).map(|own| &own.name);
        let route = place.route.and_then(|at| file.routes.get(at)).map(|own| &own.own.name);
        let nobody = place.nobody.and_then(|at| file.consumers.get(at)).map(|own| &own.own.name);
        let name = match (nobody.or(route).or(service), place.is_personal) {
            (Some(name), _) if nobody.is_some() => name.clone(),
            (Some(name), true) => format!("{name}-consumers"),
            (Some(name), false) => name.clone(),
            (None, true) => "consumers".to_owned(),
            (None, false) => "all".to_owned(),
        };
        let name = self.names.take(&format!("{name}{suffix}"));
        if let Some((_, other, _)) = self.all.iter().find(|(own, ..)| *own == place) {
            let there = format!("limit {}: one counter for all its routes", other.name);
            let here = format!(
                "{name} on routes where other consumers have plugins of their own: its counters \
                 are apart, which is looser by what one of them lets through"
            );
            report.left_out("all limits", there, here);
        }
        let (key, is_sliding) = (place.key.clone(), place.is_sliding);
        let charged = Charged { name, key, is_sliding, rates };
        self.all.push((place, charged.clone(), flow));
        charged
    }

    /// The section of the policy.
    pub(super) fn section(self) -> Vec<(String, Flow)> {
        self.all.into_iter().map(|(_, charged, flow)| (charged.name, flow)).collect()
    }
}

impl Class {
    /// What happens without the store: of several plugins, the strictest decides.
    fn on_store_error(&self) -> Option<&'static str> {
        let all = self.measures.iter().flatten().filter_map(|own| own.on_store_error);
        // `closed` is before `open`.
        all.min()
    }

    fn tell_of_store<'d>(&self, plugin: &Plugin<'d>, file: &File<'d>, report: &mut Report) {
        let own = Measure::of(plugin, file, report).ok().and_then(|own| own.on_store_error);
        if own == Some("open") && self.on_store_error() == Some("closed") {
            let there = format!("{}: fault_tolerant", plugin.words(file));
            let here = "on_store_error: closed, as other consumers of this limit have it: stricter";
            report.nearly(plugin.section.place(), there, here);
        }
    }
}
