//! The operations and fragments of a document.

use std::collections::{BTreeMap, BTreeSet};

use apollo_parser::{
    Parser, SyntaxNode, SyntaxTree,
    cst::{CstNode, Definition, FragmentDefinition, Name, OperationDefinition, SelectionSet},
};

use crate::{
    bounds::{MAX_BYTES, MAX_DEPTH},
    refusal::{Place, Refusal},
};

/// A document without errors of syntax.
pub(crate) struct Document<'t> {
    text: &'t str,
    operations: Vec<Operation>,
    operation_names: BTreeSet<Option<String>>,
    fragments: BTreeMap<String, SelectionSet>,
    /// How many tokens it has.
    pub(crate) tokens: usize,
}

/// An operation of a document.
pub(crate) struct Operation {
    name: Option<String>,
    pub(crate) definition: OperationDefinition,
    pub(crate) selections: SelectionSet,
}

impl<'t> Document<'t> {
    /// Reads a text that has no more than so many tokens.
    pub(crate) fn parse(text: &'t str, max_tokens: usize) -> Result<Document<'t>, Refusal> {
        if text.len() > MAX_BYTES {
            return Err(Refusal::TooLong);
        }
        let tree = Parser::new(text).recursion_limit(MAX_DEPTH).token_limit(max_tokens).parse();
        check(&tree, text)?;
        let tokens = tree.token_limit().high;
        let mut document = Document {
            text,
            operations: Vec::new(),
            operation_names: BTreeSet::new(),
            fragments: BTreeMap::new(),
            tokens,
        };
        for definition in tree.document().definitions() {
            match definition {
                Definition::OperationDefinition(operation) => document.add_operation(operation)?,
                Definition::FragmentDefinition(fragment) => document.add_fragment(&fragment)?,
                other => return Err(Refusal::NotExecutable(document.place(other.syntax()))),
            }
        }
        Ok(document)
    }

    /// The operation that a server executes.
    pub(crate) fn operation(&self, name: Option<&str>) -> Result<&Operation, Refusal> {
        match (name, self.operations.as_slice()) {
            (_, []) => Err(Refusal::NoOperation),
            (None, [operation]) => Ok(operation),
            (None, _) => Err(Refusal::UnnamedOperation),
            (Some(name), all) => {
                let mut all = all.iter();
                let found = all.find(|operation| operation.name.as_deref() == Some(name));
                found.ok_or(Refusal::UnknownOperation)
            }
        }
    }

    /// The selections of the fragment of this name.
    pub(crate) fn fragment(&self, name: &str) -> Option<&SelectionSet> {
        self.fragments.get(name)
    }

    pub(crate) fn place(&self, node: &SyntaxNode) -> Place {
        Place::at(self.text, node.text_range().start().into())
    }

    /// What must be there for this to be GraphQL.
    pub(crate) fn required<T>(&self, part: Option<T>, of: &SyntaxNode) -> Result<T, Refusal> {
        part.ok_or_else(|| Refusal::Syntax(self.place(of)))
    }

    pub(crate) fn name(&self, name: Option<Name>, of: &SyntaxNode) -> Result<String, Refusal> {
        let token = name.and_then(|name| name.ident_token());
        Ok(self.required(token, of)?.text().to_owned())
    }

    fn add_operation(&mut self, definition: OperationDefinition) -> Result<(), Refusal> {
        let node = definition.syntax();
        let name = match definition.name() {
            Some(name) => Some(self.name(Some(name), node)?),
            None => None,
        };
        // A second one without a name is none that a request can ask for.
        if !self.operation_names.insert(name.clone()) {
            let what = if name.is_some() {
                "an operation of this name"
            } else {
                "an operation without a name"
            };
            return Err(Refusal::Repeated { what, place: self.place(node) });
        }
        let selections = self.required(definition.selection_set(), node)?;
        self.operations.push(Operation { name, definition, selections });
        Ok(())
    }

    fn add_fragment(&mut self, definition: &FragmentDefinition) -> Result<(), Refusal> {
        let node = definition.syntax();
        // The parser takes a description in place of the keyword.
        let keyword = definition.fragment_token().filter(|token| token.text() == "fragment");
        self.required(keyword, node)?;
        let name = definition.fragment_name().and_then(|name| name.name());
        let name = self.name(name, node)?;
        let selections = self.required(definition.selection_set(), node)?;
        match self.fragments.insert(name, selections) {
            None => Ok(()),
            Some(_) => {
                let what = "a fragment of this name";
                Err(Refusal::Repeated { what, place: self.place(node) })
            }
        }
    }
}

/// The parser goes on after errors; servers do not.
fn check(tree: &SyntaxTree, text: &str) -> Result<(), Refusal> {
    let tokens = tree.token_limit();
    if tokens.high > tokens.limit {
        return Err(Refusal::TooManyTokens);
    }
    let mut errors = tree.errors();
    match errors.clone().find(|error| error.is_limit()).or_else(|| errors.next()) {
        None => Ok(()),
        Some(error) if error.is_limit() => Err(Refusal::TooDeep(Place::at(text, error.index()))),
        Some(error) => Err(Refusal::Syntax(Place::at(text, error.index()))),
    }
}
