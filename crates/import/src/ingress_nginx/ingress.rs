//! An Ingress: its annotations, hosts, paths and backends.

use tollgate_yaml::{Entries, Node, Span};

use crate::{
    Finding, Verdict,
    manifest::{self, Resource, field, items, namespace_of, scalar},
};

/// The prefix of the controller's annotations.
pub(super) const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// The annotation that names the class, of old.
const CLASS: &str = "kubernetes.io/ingress.class";

/// An annotation, or an entry of a ConfigMap.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Without the prefix, if it has the controller's.
    pub(super) name: String,
    /// A number or a word without quotes, as Helm values have them, as it is written.
    pub(super) value: String,
    pub(super) span: Span,
}

/// An Ingress.
#[derive(Debug)]
pub(super) struct Ingress<'r> {
    pub(super) resource: &'r Resource,
    /// Those with the controller's prefix.
    pub(super) own: Vec<Entry>,
    pub(super) others: Vec<Entry>,
}

/// A path of a rule, or what the others get.
#[derive(Debug)]
pub(super) struct Path<'r> {
    /// Empty: all hosts that no other rule names.
    pub(super) host: String,
    pub(super) path: String,
    pub(super) path_type: String,
    pub(super) backend: Option<&'r Node>,
    pub(super) span: Span,
}

/// Texts and numbers below a node, by their names.
pub(super) fn entries(resource: &Resource, path: &[&str]) -> Vec<Entry> {
    let Some(node) = resource.at(path) else { return Vec::new() };
    let read: Entries<Node> =
        resource.document.decode_node(node, &[], &mut Vec::new()).unwrap_or_default();
    let entry = |(key, node): &(tollgate_yaml::Spanned<String>, Node)| Entry {
        name: key.value.clone(),
        value: scalar(&resource.document, node).unwrap_or_default().to_owned(),
        span: key.span,
    };
    read.iter().map(entry).collect()
}

impl<'r> Ingress<'r> {
    pub(super) fn new(resource: &'r Resource) -> Self {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for entry in entries(resource, &["metadata", "annotations"]) {
            match entry.name.strip_prefix(PREFIX) {
                Some(name) => own.push(Entry { name: name.to_owned(), ..entry }),
                None => others.push(entry),
            }
        }
        Ingress { resource, own, others }
    }

    /// Namespace and name.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.namespace(), self.resource.name)
    }

    pub(super) fn namespace(&self) -> &str {
        namespace_of(&self.resource.namespace)
    }

    /// The annotation of this name, unless its value is empty, which stands for none.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.own.iter().find(|entry| entry.name == name && !entry.value.is_empty())
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.get(name).map(|entry| entry.value.as_str())
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.value(name) == Some("true")
    }

    pub(super) fn place(&self, span: Span) -> String {
        self.resource.place(span)
    }

    /// A row for an annotation.
    pub(super) fn row(&self, entry: &Entry, verdict: Verdict, here: impl Into<String>) -> Finding {
        let there = format!("{}: {}: {}", self.id(), entry.name, entry.value);
        Finding { verdict, ..Finding::same(self.place(entry.span), there, here) }
    }

    pub(super) fn class(&self) -> Option<&str> {
        let written = self.resource.at(&["spec", "ingressClassName"]).and_then(manifest::text);
        let annotated = || self.others.iter().find(|entry| entry.name == CLASS);
        written.or_else(|| annotated().map(|entry| entry.value.as_str()))
    }

    /// When it was made; empty if the file does not say it.
    pub(super) fn created(&self) -> &str {
        let created = self.resource.at(&["metadata", "creationTimestamp"]);
        created.and_then(manifest::text).unwrap_or_default()
    }

    /// The paths of its rules, as they stand; those of all other requests last.
    pub(super) fn paths(&self) -> Vec<Path<'r>> {
        let resource = self.resource;
        let mut paths = Vec::new();
        let rules = items(resource.at(&["spec", "rules"]));
        for rule in rules {
            let text = |name| field(rule, name).and_then(manifest::text).unwrap_or_default();
            let host = text("host").to_ascii_lowercase();
            for node in items(field(rule, "http").and_then(|http| field(http, "paths"))) {
                let text = |name| field(node, name).and_then(manifest::text).unwrap_or_default();
                let path = text("path");
                paths.push(Path {
                    host: host.clone(),
                    path: if path.is_empty() { "/" } else { path }.to_owned(),
                    path_type: text("pathType").to_owned(),
                    backend: field(node, "backend"),
                    span: node.span,
                });
            }
        }
        paths.extend(self.aliases(&paths));
        self.add_default(&mut paths);
        paths
    }

    /// The paths again for each other name of a host.
    fn aliases(&self, paths: &[Path<'r>]) -> Vec<Path<'r>> {
        let aliases = self.value("server-alias").unwrap_or_default().split(',').map(str::trim);
        let of = |alias: &str| -> Vec<Path<'r>> {
            let first = paths.first().map(|path| path.host.clone());
            let paths = paths.iter().filter(|path| Some(&path.host) == first.as_ref());
            let other = |own: &Path<'r>| Path {
                host: alias.to_ascii_lowercase(),
                path: own.path.clone(),
                path_type: own.path_type.clone(),
                ..*own
            };
            paths.map(other).collect()
        };
        aliases.filter(|own| !own.is_empty() && !own.starts_with('~')).flat_map(of).collect()
    }

    fn add_default(&self, paths: &mut Vec<Path<'r>>) {
        let default = ["defaultBackend", "backend"];
        let default = default.iter().find_map(|name| self.resource.at(&["spec", name]));
        let Some(backend) = default else { return };
        let mut hosts: Vec<String> = paths.iter().map(|path| path.host.clone()).collect();
        hosts.dedup();
        if hosts.is_empty() {
            hosts.push(String::new());
        }
        for host in hosts {
            if !paths.iter().any(|path| path.host == host && path.path == "/") {
                let (path, path_type) = ("/".to_owned(), "Prefix".to_owned());
                let backend = Some(backend);
                paths.push(Path { host, path, path_type, backend, span: self.resource.node.span });
            }
        }
    }
}
