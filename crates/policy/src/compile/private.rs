//! `private`: what limits count by, and the access log has only as hashes.

use tollgate_identity::IdentityRules;
use tollgate_yaml::{Check, Node};

use super::Compiler;
use crate::{
    KeyPart, Limit,
    facts::{fact_keys, is_fact},
};

const HELP: &str = "list keys of the form jwt.<claim>, header.<name>, cookie.<name>, body.<path>, \
                    mcp.tool";

impl Compiler<'_> {
    /// The keys that are listed. A key that nothing counts by is a mistake: misspelt, it would
    /// leave in the log what its author has meant to keep out.
    pub(super) fn private(
        &mut self,
        raw: &[Node],
        limits: &[Limit],
        identity: &IdentityRules,
    ) -> Vec<KeyPart> {
        let mut private = Vec::new();
        for node in raw {
            let Some(key) = self.key_part(node) else { continue };
            if !is_fact(&key) {
                let message = format!("`{key}` is in a field of each line of the log");
                self.refuse(node.span, message, HELP);
            } else if private.contains(&key) {
                self.refuse(node.span, "listed twice", "remove one");
            } else if !fact_keys(limits, identity).any(|counted| counted == key) {
                let message = format!("no limit counts by `{key}`, and no tier is chosen by it");
                self.refuse(node.span, message, "write a key as a limit has it in `per`");
            }
            private.push(key);
        }
        private
    }
}
