//! What is in the files: services, routes, plugins and consumers, nested or flat, with places.
//!
//! - `members`: who is in which group of consumers.
//! - `plugins`: which of several plugins of one kind is in force.
//! - `rest`: what nobody uses, and values that a program fills in.

mod members;
mod plugins;
mod rest;

use std::collections::BTreeSet;

pub(super) use self::plugins::{Asked, Plugin, Scope};
use super::tell_of_rest;
use crate::{report::Report, section::Section};

/// All files together. Entities refer to each other by their positions here.
#[derive(Default)]
pub(super) struct File<'d> {
    pub(super) services: Vec<Entity<'d>>,
    pub(super) routes: Vec<Route<'d>>,
    pub(super) upstreams: Vec<Entity<'d>>,
    /// Servers, with the positions of their upstreams.
    pub(super) targets: Vec<(usize, Section<'d>)>,
    pub(super) consumers: Vec<Consumer<'d>>,
    pub(super) groups: Vec<Entity<'d>>,
    pub(super) plugins: Vec<Plugin<'d>>,
}

/// Something with names: those by which others refer to it.
pub(super) struct Entity<'d> {
    pub(super) name: String,
    names: Vec<String>,
    pub(super) section: Section<'d>,
}

/// A route of the configuration.
pub(super) struct Route<'d> {
    pub(super) own: Entity<'d>,
    pub(super) service: Option<usize>,
    /// The service that it names is not in the files.
    pub(super) is_lost: bool,
    /// Its file is of a version before 3, in which regular expressions have no mark.
    pub(super) is_old: bool,
}

/// Someone who asks, with credentials that are never shown.
pub(super) struct Consumer<'d> {
    pub(super) own: Entity<'d>,
    pub(super) keys: Vec<Section<'d>>,
    pub(super) tokens: Vec<Section<'d>>,
    pub(super) acls: Vec<String>,
    /// Positions of consumer groups.
    pub(super) groups: Vec<usize>,
}

/// Top-level fields that are read, or say nothing of requests.
const KNOWN: &str = "_format_version _transform _info _workspace _konnect \
    _plugin_configs services routes upstreams targets consumers consumer_groups \
    consumer_group_consumers consumer_group_plugins plugins filter_chains keyauth_credentials \
    jwt_secrets acls";

/// What others refer to an entity by.
const REFERENCES: [&str; 3] = ["name", "username", "id"];

impl<'d> Entity<'d> {
    fn of(section: Section<'d>, kind: &str, number: usize) -> Self {
        let text = |field: &&str| section.text(field).filter(|text| !text.is_empty());
        let names: Vec<String> = REFERENCES.iter().filter_map(text).collect();
        // Nothing refers to a `custom_id`: it may be the username of someone else.
        let name = text(&"name").or(text(&"username")).or(text(&"custom_id")).or(text(&"id"));
        let name = name.unwrap_or_else(|| format!("{kind}-{}", number + 1));
        Entity { name, names, section }
    }

    fn is(&self, reference: &str) -> bool {
        self.names.iter().any(|name| name == reference)
    }
}

impl<'d> File<'d> {
    /// What is in the roots of files.
    pub(super) fn of(roots: &[Section<'d>], report: &mut Report) -> Self {
        let mut file = File::default();
        let roots: Vec<Section<'d>> = roots.iter().map(|root| root.with_old_words()).collect();
        for root in &roots {
            file.take_nested(*root, report);
        }
        for root in &roots {
            file.take_flat(*root, report);
        }
        file.join_groups(&roots, report);
        let shared = roots.iter().flat_map(|root| root.each("_plugin_configs"));
        let shared: Vec<(&str, Section<'d>)> = shared.collect();
        for (section, scope) in file.plugin_sections(&roots, report) {
            file.plugins.push(Plugin::of(section, scope, &shared, report));
        }
        file.tell_of_doubles(report);
        file.tell_of_rest(report);
        file
    }

    fn take_nested(&mut self, root: Section<'d>, report: &mut Report) {
        let is_old = root.text("_format_version").is_some_and(|text| text.starts_with(['1', '2']));
        for section in root.items("services") {
            let at = self.services.len();
            self.services.push(Entity::of(section, "service", at));
            for section in section.items("routes") {
                let own = Entity::of(section, "route", self.routes.len());
                self.routes.push(Route { own, service: Some(at), is_lost: false, is_old });
            }
        }
        for section in root.items("upstreams") {
            let at = self.upstreams.len();
            self.upstreams.push(Entity::of(section, "upstream", at));
            self.targets.extend(section.items("targets").map(|target| (at, target)));
        }
        for section in root.items("consumer_groups") {
            let own = Entity::of(section, "group", self.groups.len());
            let what = format!("group {}", own.name);
            tell_of_rest(section, (&what, "not read"), "name consumers plugins", report);
            self.groups.push(own);
        }
        for section in root.items("consumers") {
            let own = Entity::of(section, "consumer", self.consumers.len());
            let what = format!("consumer {}", own.name);
            let known = "username custom_id keyauth_credentials jwt_secrets acls groups plugins";
            let here = "not read: other credentials have no counterpart";
            tell_of_rest(section, (&what, here), known, report);
            let acls = section.items("acls").filter_map(|own| own.text("group")).collect();
            self.consumers.push(Consumer {
                own,
                keys: section.items("keyauth_credentials").collect(),
                tokens: section.items("jwt_secrets").collect(),
                acls,
                groups: Vec::new(),
            });
        }
        let here = "not read: listeners, TLS and stores are in the settings, and other \
                    credentials have no counterpart";
        tell_of_rest(root, ("the file", here), KNOWN, report);
    }

    fn take_flat(&mut self, root: Section<'d>, report: &mut Report) {
        let is_old = root.text("_format_version").is_some_and(|text| text.starts_with(['1', '2']));
        for section in root.items("routes") {
            let reference = reference(section, "service");
            let service = find(&self.services, reference.as_deref());
            let own = Entity::of(section, "route", self.routes.len());
            let is_lost = reference.is_some() && service.is_none();
            self.routes.push(Route { own, service, is_lost, is_old });
        }
        for section in root.items("targets") {
            match find(&self.upstreams, reference(section, "upstream").as_deref()) {
                Some(at) => self.targets.push((at, section)),
                None => lost(section, "target", report),
            }
        }
        for kind in ["keyauth_credentials", "jwt_secrets", "acls"] {
            for section in root.items(kind) {
                let name = reference(section, "consumer").unwrap_or_default();
                match (self.consumers.iter_mut().find(|own| own.own.is(&name)), kind) {
                    (Some(own), "keyauth_credentials") => own.keys.push(section),
                    (Some(own), "jwt_secrets") => own.tokens.push(section),
                    (Some(own), _) => own.acls.extend(section.text("group")),
                    (None, _) => lost(section, kind, report),
                }
            }
        }
    }

    /// All plugins, with what they are for.
    fn plugin_sections(
        &self,
        roots: &[Section<'d>],
        report: &mut Report,
    ) -> Vec<(Section<'d>, Scope)> {
        let none = Scope::default();
        let mut found = Vec::new();
        let mut add = |section: Section<'d>, scope: Scope| {
            for name in ["plugins", "filter_chains", "consumer_group_plugins"] {
                found.extend(section.items(name).map(|own| (own, scope)));
            }
        };
        for (at, own) in self.services.iter().enumerate() {
            add(own.section, Scope { service: Some(at), ..none });
        }
        for (at, route) in self.routes.iter().enumerate() {
            add(route.own.section, Scope { route: Some(at), ..none });
        }
        for (at, consumer) in self.consumers.iter().enumerate() {
            add(consumer.own.section, Scope { consumer: Some(at), ..none });
        }
        for (at, group) in self.groups.iter().enumerate() {
            add(group.section, Scope { group: Some(at), ..none });
        }
        for root in roots {
            add(*root, none);
        }
        found
            .into_iter()
            .filter_map(|(own, scope)| Some((own, self.scope(own, scope, report)?)))
            .collect()
    }

    /// The scope of a plugin, with what it names itself.
    fn scope(&self, section: Section<'d>, mut scope: Scope, report: &mut Report) -> Option<Scope> {
        let mut is_found = true;
        let mut name = |field: &str, at: Option<usize>, own: &mut Option<usize>| {
            if reference(section, field).is_some() {
                *own = at;
                is_found &= at.is_some();
            }
        };
        let of = |field: &str| reference(section, field);
        name("service", find(&self.services, of("service").as_deref()), &mut scope.service);
        name(
            "consumer_group",
            find(&self.groups, of("consumer_group").as_deref()),
            &mut scope.group,
        );
        let route =
            of("route").and_then(|name| self.routes.iter().position(|own| own.own.is(&name)));
        name("route", route, &mut scope.route);
        let consumer = of("consumer").and_then(|name| self.consumer_named(&name));
        name("consumer", consumer, &mut scope.consumer);
        if !is_found {
            lost(section, "plugin", report);
        }
        is_found.then_some(scope)
    }

    /// The consumer that a plugin names.
    pub(super) fn consumer_named(&self, name: &str) -> Option<usize> {
        self.consumers.iter().position(|own| own.own.is(name))
    }

    /// Names that two entities of a kind have: others mean the first one.
    fn tell_of_doubles(&self, report: &mut Report) {
        let routes: Vec<&Entity<'d>> = self.routes.iter().map(|own| &own.own).collect();
        let consumers: Vec<&Entity<'d>> = self.consumers.iter().map(|own| &own.own).collect();
        let others = [&self.services, &self.upstreams, &self.groups];
        let others = others.into_iter().map(|own| own.iter().collect());
        for all in others.chain([routes, consumers]) {
            let mut known = BTreeSet::new();
            for own in all {
                if !known.insert(&own.name) {
                    let here = "Kong refuses the file; here others that name it mean the first one";
                    let there = format!("{}: another of this name", own.name);
                    report.left_out(own.section.place(), there, here);
                }
            }
        }
    }
}

/// The entity that a field names: `service: shop`, `service: { name: shop }`. Empty: the field says
/// none that there can be.
fn reference(section: Section<'_>, field: &str) -> Option<String> {
    let node = section.node(field)?;
    Some(section.text(field).or(named(section.of(node))).unwrap_or_default())
}

/// What an entity is referred to by: `{ name: shop }`.
fn named(section: Section<'_>) -> Option<String> {
    REFERENCES.iter().find_map(|name| section.text(name))
}

fn find(entities: &[Entity<'_>], reference: Option<&str>) -> Option<usize> {
    entities.iter().position(|own| reference.is_some_and(|name| own.is(name)))
}

fn lost(section: Section<'_>, what: &str, report: &mut Report) {
    let there = format!("{what} of something that is not in the files");
    let here = "Kong refuses the file: give all files together, or write the right name";
    report.left_out(section.place(), there, here);
}
