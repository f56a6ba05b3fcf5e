//! Who is in which group of consumers: said by the consumer, by the group, or by itself.

use super::{File, find, lost, named, reference};
use crate::{report::Report, section::Section};

impl<'d> File<'d> {
    /// Notes the groups of consumers, each once, wherever they are said.
    pub(super) fn join_groups(&mut self, roots: &[Section<'d>], report: &mut Report) {
        for (consumer, group, place) in self.memberships(roots) {
            match (self.consumers.get_mut(consumer.unwrap_or(usize::MAX)), group) {
                (Some(consumer), Some(group)) if !consumer.groups.contains(&group) => {
                    consumer.groups.push(group);
                }
                (Some(_), Some(_)) => {}
                (None, _) => lost(place, "consumer in a group", report),
                (_, None) => lost(place, "consumer_group of a consumer", report),
            }
        }
    }

    /// Consumers with groups, by position, and where it is said. None: they are not in the files.
    fn memberships(
        &self,
        roots: &[Section<'d>],
    ) -> Vec<(Option<usize>, Option<usize>, Section<'d>)> {
        let mut found = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            for (name, place) in members(group.section, "consumers") {
                found.push((self.consumer_named(&name), Some(at), place));
            }
        }
        for (at, consumer) in self.consumers.iter().enumerate() {
            for (name, place) in members(consumer.own.section, "groups") {
                found.push((Some(at), find(&self.groups, Some(&name)), place));
            }
        }
        for own in roots.iter().flat_map(|root| root.items("consumer_group_consumers")) {
            let consumer = reference(own, "consumer").unwrap_or_default();
            let group = reference(own, "consumer_group").unwrap_or_default();
            found.push((self.consumer_named(&consumer), find(&self.groups, Some(&group)), own));
        }
        found
    }
}

/// What a list names, by texts or by mappings, and where. Nothing has an empty name.
fn members<'d>(section: Section<'d>, field: &str) -> Vec<(String, Section<'d>)> {
    let texts = section.texts(field).into_iter().map(|name| (name, section));
    let all = section.items(field).filter(|own| !own.entries().is_empty());
    texts.chain(all.map(|own| (named(own).unwrap_or_default(), own))).collect()
}
