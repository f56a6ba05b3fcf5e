//! Plugins, and which of several of one kind is in force: the most specific one.

use super::{
    super::{others, tell_of_rest},
    Consumer, File,
};
use crate::{report::Report, section::Section, words};

/// Whether a text is true or false.
pub(super) fn is_bool(text: &str) -> bool {
    text == "true" || text == "false"
}

/// A plugin and what it is for: all that is said must hold.
pub(in super::super) struct Plugin<'d> {
    pub(in super::super) kind: String,
    pub(in super::super) section: Section<'d>,
    pub(in super::super) config: Config<'d>,
    pub(in super::super) scope: Scope,
    pub(in super::super) is_enabled: bool,
}

/// What a plugin is for, by positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Scope {
    pub(in super::super) service: Option<usize>,
    pub(in super::super) route: Option<usize>,
    pub(in super::super) consumer: Option<usize>,
    pub(in super::super) group: Option<usize>,
}

/// The configuration of a plugin: its own fields, then those of the one that it names.
pub(in super::super) struct Config<'d>(pub(in super::super) Vec<Section<'d>>);

/// Who asks, and for what.
#[derive(Clone, Copy)]
pub(in super::super) struct Asked<'f, 'd> {
    pub(in super::super) route: usize,
    pub(in super::super) service: Option<usize>,
    /// None: nobody is known.
    pub(in super::super) consumer: Option<(usize, &'f Consumer<'d>)>,
}

impl<'d> Plugin<'d> {
    pub(in super::super) fn of(
        section: Section<'d>,
        scope: Scope,
        shared: &[(&str, Section<'d>)],
        report: &mut Report,
    ) -> Self {
        let config = Config::of(section, shared);
        let is_named =
            section.text("_config").is_none_or(|name| shared.iter().any(|own| own.0 == name));
        let kind = section.text("name").filter(|_| is_named);
        let mut kind = kind.unwrap_or_else(|| "a plugin that is not in the files".to_owned());
        let here = "not read: the plugin is in force for all requests that it is for, and at its \
                    usual place among the others";
        let known = "name instance_name config _config enabled protocols service route consumer \
                     consumer_group run_on filters";
        tell_of_rest(section, (&kind, here), known, report);
        let enabled = section.text("enabled");
        let is_enabled = enabled.as_deref() != Some("false");
        if !is_enabled {
            report.same(section.place(), format!("{kind}: enabled: false"), "not in force");
        }
        // It may be that a less specific one is in force: as a kind of its own, that nothing here
        // knows, it replaces none, and closes its routes.
        let is_sure = section.node("enabled").is_none() || enabled.is_some_and(|own| is_bool(&own));
        if !is_sure && others::words(&kind).1 {
            kind = format!("{kind} (its `enabled` is filled in by a program)");
        }
        Plugin { kind, section, config, scope, is_enabled }
    }

    /// Whether it is only for some of those who ask.
    pub(in super::super) fn is_personal(&self) -> bool {
        self.scope.consumer.is_some() || self.scope.group.is_some()
    }

    /// How it is called in rows: its kind and what it is for.
    pub(in super::super) fn words(&self, file: &File<'d>) -> String {
        let Scope { service, route, consumer, group } = self.scope;
        let mut words = self.kind.clone();
        for (kind, name) in [
            ("service", service.and_then(|at| file.services.get(at)).map(|own| &own.name)),
            ("route", route.and_then(|at| file.routes.get(at)).map(|own| &own.own.name)),
            ("consumer", consumer.and_then(|at| file.consumers.get(at)).map(|own| &own.own.name)),
            ("group", group.and_then(|at| file.groups.get(at)).map(|own| &own.name)),
        ] {
            if let Some(name) = name {
                words = format!("{words} of {kind} {name}");
            }
        }
        words
    }
}

impl Scope {
    /// How specific it is: the highest is in force.
    fn rank(self) -> u8 {
        let is = |own: Option<usize>| own.is_some();
        match (is(self.consumer), is(self.group), is(self.route), is(self.service)) {
            (true, _, true, true) => 12,
            (false, true, true, true) => 11,
            (true, _, true, false) => 10,
            (true, _, false, true) => 9,
            (false, true, true, false) => 8,
            (false, true, false, true) => 7,
            (false, false, true, true) => 6,
            (true, _, false, false) => 5,
            (false, true, false, false) => 4,
            (false, false, true, false) => 3,
            (false, false, false, true) => 2,
            (false, false, false, false) => 1,
        }
    }

    fn is_for(self, asked: Asked<'_, '_>) -> bool {
        let is = |own: Option<usize>, asked: Option<usize>| own.is_none() || own == asked;
        let groups = asked.consumer.map(|(_, own)| own.groups.as_slice()).unwrap_or_default();
        is(self.service, asked.service)
            && is(self.route, Some(asked.route))
            && is(self.consumer, asked.consumer.map(|(at, _)| at))
            && self.group.is_none_or(|group| groups.contains(&group))
    }

    /// Whether it is for the route, for whoever asks.
    pub(in super::super) fn is_on(self, asked: Asked<'_, '_>) -> bool {
        Scope { consumer: None, group: None, ..self }.is_for(asked)
    }
}

impl<'d> File<'d> {
    /// The plugin of a kind that is in force, and its position. Of two groups the first by name is.
    pub(in super::super) fn effective(
        &self,
        kind: &str,
        asked: Asked<'_, 'd>,
    ) -> Option<(usize, &Plugin<'d>)> {
        let all = self.plugins.iter().enumerate();
        let own =
            all.filter(|(_, own)| own.is_enabled && own.scope.is_for(asked) && own.kind == kind);
        let group = |own: &Plugin<'d>| own.scope.group.and_then(|at| self.groups.get(at));
        own.min_by_key(|(_, own)| {
            (std::cmp::Reverse(own.scope.rank()), group(own).map(|group| &group.name))
        })
    }

    /// Those who ask, by position.
    pub(in super::super) fn consumer(&self, at: usize) -> Option<(usize, &Consumer<'d>)> {
        self.consumers.get(at).map(|own| (at, own))
    }
}

impl<'d> Config<'d> {
    /// That of a plugin, with the fields of the shared one that it names.
    pub(in super::super) fn of(section: Section<'d>, shared: &[(&str, Section<'d>)]) -> Self {
        let name = section.text("_config");
        let own = shared.iter().find(|(own, _)| name.as_deref() == Some(own));
        Config(section.section("config").into_iter().chain(own.map(|(_, own)| *own)).collect())
    }

    fn at(&self, name: &str) -> Option<Section<'d>> {
        self.0.iter().copied().find(|own| own.node(name).is_some())
    }

    pub(in super::super) fn has(&self, name: &str) -> bool {
        self.at(name).is_some()
    }

    pub(in super::super) fn text(&self, name: &str) -> Option<String> {
        self.at(name)?.text(name)
    }

    pub(in super::super) fn texts(&self, name: &str) -> Vec<String> {
        self.at(name).map(|own| own.texts(name)).unwrap_or_default()
    }

    pub(in super::super) fn section(&self, name: &str) -> Option<Section<'d>> {
        self.at(name)?.section(name)
    }

    pub(in super::super) fn is_true(&self, name: &str) -> bool {
        self.at(name).is_some_and(|own| own.is_true(name))
    }

    pub(in super::super) fn is_false(&self, name: &str) -> bool {
        self.text(name).as_deref() == Some("false")
    }

    /// Its fields that are none of these.
    pub(in super::super) fn unknown(&self, known: &str) -> Vec<&'d str> {
        let names = self.0.iter().flat_map(Section::names);
        names.filter(|name| !words::has(known, name) && !name.starts_with("redis")).collect()
    }
}
