//! What identity rules and connections were made from, as a digest: those that come to the same
//! have the same one, and what was found out under them outlives a reload.

use aws_lc_rs::digest::{Context, SHA256};
use tollgate_identity::RulesId;
use tollgate_yaml::{Node, Value};

use super::Compiler;

/// Everything that went into it so far.
pub(super) struct Fingerprint(Context);

impl Fingerprint {
    pub(super) fn new() -> Self {
        Fingerprint(Context::new(&SHA256))
    }

    /// Adds one part. Its length comes first, so that parts cannot run into each other.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        digest
    }

    fn add_node(&mut self, node: &Node) {
        match &node.value {
            Value::Sequence(nodes) => {
                self.add(format!("list of {}", nodes.len()).as_bytes());
                nodes.iter().for_each(|node| self.add_node(node));
            }
            Value::Mapping(entries) => {
                self.add(format!("mapping of {}", entries.len()).as_bytes());
                for (name, node) in entries {
                    self.add(name.value.as_bytes());
                    self.add_node(node);
                }
            }
            // With its kind: `1` and `"1"` differ.
            scalar => self.add(format!("{scalar:?}").as_bytes()),
        }
    }
}

impl Compiler<'_> {
    /// The id of the identity rules, once all files that they name were read.
    pub(super) fn rules_id(&mut self) -> RulesId {
        let mut fingerprint = std::mem::replace(&mut self.fingerprint, Fingerprint::new());
        fingerprint.add(self.name.as_bytes());
        if let Value::Mapping(sections) = &self.inspection.document.root().value {
            for (name, section) in sections {
                if matches!(name.value.as_str(), "identity" | "tiers") {
                    fingerprint.add(name.value.as_bytes());
                    fingerprint.add_node(section);
                }
            }
        }
        RulesId::of(&fingerprint.finish())
    }
}
