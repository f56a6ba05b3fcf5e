//! A part of a manifest, with its place. What is of the wrong kind is a problem, and absent.

use std::cell::RefCell;

use tollgate_yaml::{Node, Problem, Value};

use crate::{
    Problems,
    manifest::{self, Resource},
};

/// A part of a manifest.
#[derive(Clone, Copy)]
pub(crate) struct Field<'r> {
    resource: &'r Resource,
    node: &'r Node,
    problems: &'r RefCell<Problems>,
}

impl<'r> Field<'r> {
    /// All of an object.
    pub(crate) fn whole(resource: &'r Resource, problems: &'r RefCell<Problems>) -> Self {
        Field { resource, node: &resource.node, problems }
    }

    /// The namespace and name of the object.
    pub(crate) fn name(self) -> (&'r str, &'r str) {
        (&self.resource.namespace, &self.resource.name)
    }

    /// What is at a path of fields, unless it is null.
    pub(crate) fn at(self, path: &[&str]) -> Option<Self> {
        let node = path.iter().try_fold(self.node, |node, name| manifest::field(node, name))?;
        (node.value != Value::Null).then_some(Field { node, ..self })
    }

    /// A scalar as it is written; of a text without its quotes.
    pub(crate) fn text(self) -> Option<&'r str> {
        if matches!(self.node.value, Value::Sequence(_) | Value::Mapping(_)) {
            self.complain("this is no text", "write a text or a number");
        }
        manifest::scalar(&self.resource.document, self.node)
    }

    /// A scalar at a path of fields.
    pub(crate) fn text_at(self, path: &[&str]) -> Option<&'r str> {
        self.at(path)?.text()
    }

    /// A whole number at a path of fields.
    pub(crate) fn number_at(self, path: &[&str]) -> Option<i64> {
        let field = self.at(path)?;
        let number = field.text()?.parse().ok();
        if number.is_none() {
            field.complain("this is no whole number", "write a whole number");
        }
        number
    }

    /// Whether `true` is at a path of fields.
    pub(crate) fn is_true(self, path: &[&str]) -> bool {
        self.at(path).is_some_and(|field| field.node.value == Value::Bool(true))
    }

    /// The items of a list at a path of fields; none if there is no such field.
    pub(crate) fn items(self, path: &[&str]) -> Vec<Self> {
        let Some(field) = self.at(path) else { return Vec::new() };
        if let Value::Sequence(items) = &field.node.value {
            return items.iter().map(|node| Field { node, ..self }).collect();
        }
        field.complain("this is no list", "write a list");
        Vec::new()
    }

    /// The texts of a list at a path of fields.
    pub(crate) fn texts(self, path: &[&str]) -> Vec<&'r str> {
        self.items(path).into_iter().filter_map(Field::text).collect()
    }

    /// The entries of a mapping at a path of fields.
    pub(crate) fn entries(self, path: &[&str]) -> Vec<(&'r str, Self)> {
        let Some(field) = self.at(path) else { return Vec::new() };
        if let Value::Mapping(entries) = &field.node.value {
            let entry = |(name, node)| (name, Field { node, ..self });
            return entries.iter().map(|(name, node)| entry((&*name.value, node))).collect();
        }
        field.complain("this is no mapping", "write names with their values");
        Vec::new()
    }

    /// The names of fields that are written beside those that are known.
    pub(crate) fn others(self, known: &[&str]) -> Vec<&'r str> {
        let names = self.entries(&[]).into_iter().map(|(name, _)| name);
        names.filter(|name| !known.contains(name)).collect()
    }

    pub(crate) fn place(self) -> String {
        self.resource.place(self.node)
    }

    /// Notes a problem here.
    pub(crate) fn complain(self, message: impl Into<String>, help: impl Into<String>) {
        let problem: Problem =
            self.resource.document.problem(self.node.span, message.into(), help.into());
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}
