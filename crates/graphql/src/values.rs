//! The values of arguments: sizes of connections, and conditions of directives.

use std::collections::BTreeMap;

use apollo_parser::cst::{Argument, Arguments, CstNode, Directives, Value, VariableDefinition};

use crate::{
    document::{Document, Operation},
    json::Json,
    refusal::{Refusal, Unfitness},
};

/// The variables of a request.
pub(crate) struct Variables<'d> {
    document: &'d Document<'d>,
    given: &'d BTreeMap<String, Json>,
    /// Those that the operation defines, with their defaults.
    defined: BTreeMap<String, Option<Value>>,
}

/// What an argument is for the executor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Resolved {
    /// It is not given, or `null`.
    Missing,
    Bool(bool),
    Size(u32),
    /// It is no size, and no condition.
    Unfit(Unfitness),
}

impl<'d> Variables<'d> {
    pub(crate) fn new(
        document: &'d Document<'d>,
        operation: &Operation,
        given: &'d BTreeMap<String, Json>,
    ) -> Result<Variables<'d>, Refusal> {
        let mut variables = Variables { document, given, defined: BTreeMap::new() };
        let definitions = operation.definition.variable_definitions();
        for definition in definitions.iter().flat_map(|all| all.variable_definitions()) {
            variables.define(&definition)?;
        }
        Ok(variables)
    }

    /// How many nodes a field asks for; none: it is no connection. Of two numbers, the larger
    /// one, as a server may take either.
    pub(crate) fn size(&self, arguments: Option<&Arguments>) -> Result<Option<u32>, Refusal> {
        let first = self.size_of(arguments, "first")?;
        Ok(first.max(self.size_of(arguments, "last")?))
    }

    /// Whether `@skip` or `@include` says that a selection is not executed.
    pub(crate) fn is_skipped(&self, directives: Option<Directives>) -> Result<bool, Refusal> {
        let (mut has_skip, mut has_include, mut is_skipped) = (false, false, false);
        for directive in directives.iter().flat_map(|all| all.directives()) {
            let node = directive.syntax();
            let name = self.document.name(directive.name(), node)?;
            let (is_repeated, skips) = match name.as_str() {
                "skip" => (std::mem::replace(&mut has_skip, true), true),
                "include" => (std::mem::replace(&mut has_include, true), false),
                _ => continue,
            };
            if is_repeated {
                let what = "a directive";
                return Err(Refusal::Repeated { what, place: self.document.place(node) });
            }
            let condition = self.argument(directive.arguments().as_ref(), "if")?;
            let condition = condition.map(|argument| self.resolve(&argument)).transpose()?;
            is_skipped |= condition == Some(Resolved::Bool(skips));
        }
        Ok(is_skipped)
    }

    fn define(&mut self, definition: &VariableDefinition) -> Result<(), Refusal> {
        let node = definition.syntax();
        let name = definition.variable().and_then(|variable| variable.name());
        let name = self.document.name(name, node)?;
        let default = match definition.default_value() {
            Some(default) => Some(self.document.required(default.value(), node)?),
            None => None,
        };
        match self.defined.insert(name, default) {
            None => Ok(()),
            Some(_) => {
                let place = self.document.place(node);
                Err(Refusal::Repeated { what: "a variable", place })
            }
        }
    }

    fn size_of(
        &self,
        arguments: Option<&Arguments>,
        name: &'static str,
    ) -> Result<Option<u32>, Refusal> {
        let Some(argument) = self.argument(arguments, name)? else { return Ok(None) };
        let why = match self.resolve(&argument)? {
            Resolved::Missing => return Ok(None),
            Resolved::Size(size) => return Ok(Some(size)),
            Resolved::Bool(_) => Unfitness::NotWhole,
            Resolved::Unfit(why) => why,
        };
        Err(Refusal::Size { argument: name, why, place: self.document.place(argument.syntax()) })
    }

    /// The argument of this name.
    fn argument(
        &self,
        arguments: Option<&Arguments>,
        name: &str,
    ) -> Result<Option<Argument>, Refusal> {
        let mut found = None;
        for argument in arguments.iter().flat_map(|all| all.arguments()) {
            let node = argument.syntax();
            // The parser takes a name without a value.
            self.document.required(argument.value(), node)?;
            if self.document.name(argument.name(), node)? != name {
                continue;
            }
            if found.is_some() {
                let place = self.document.place(node);
                return Err(Refusal::Repeated { what: "an argument", place });
            }
            found = Some(argument);
        }
        Ok(found)
    }

    fn resolve(&self, argument: &Argument) -> Result<Resolved, Refusal> {
        let node = argument.syntax();
        let value = self.document.required(argument.value(), node)?;
        let Value::Variable(variable) = value else { return Ok(resolve_literal(&value)) };
        let name = self.document.name(variable.name(), node)?;
        let place = || self.document.place(variable.syntax());
        let default = self.defined.get(&name).ok_or_else(|| Refusal::UnknownVariable(place()))?;
        Ok(match (self.given.get(&name), default) {
            // For servers from before the edition of 2018, `null` is not given.
            (Some(Json::Null), Some(default)) => match resolve_literal(default) {
                Resolved::Size(size) => Resolved::Size(size),
                _ => Resolved::Missing,
            },
            (Some(given), _) => resolve_json(given),
            (None, Some(default)) => resolve_literal(default),
            (None, None) => Resolved::Missing,
        })
    }
}

fn resolve_literal(value: &Value) -> Resolved {
    match value {
        Value::IntValue(int) => {
            let token = int.int_token();
            let digits = token.as_ref().map(|token| token.text()).unwrap_or_default();
            match digits.parse::<i128>() {
                Ok(number) => size(number),
                Err(_) if digits.starts_with('-') => Resolved::Unfit(Unfitness::Negative),
                Err(_) => Resolved::Unfit(Unfitness::TooLarge),
            }
        }
        Value::BooleanValue(value) => Resolved::Bool(value.true_token().is_some()),
        Value::NullValue(_) => Resolved::Missing,
        Value::Variable(_)
        | Value::StringValue(_)
        | Value::FloatValue(_)
        | Value::EnumValue(_)
        | Value::ListValue(_)
        | Value::ObjectValue(_) => Resolved::Unfit(Unfitness::NotWhole),
    }
}

fn resolve_json(value: &Json) -> Resolved {
    match value {
        Json::Null => Resolved::Missing,
        Json::Bool(value) => Resolved::Bool(*value),
        // `10.0` is 10 for servers that read numbers as JavaScript does.
        Json::Number(number) if number.fract() == 0.0 => size(*number as i128),
        Json::Number(_) | Json::Text(_) | Json::List(_) | Json::Object(_) => {
            Resolved::Unfit(Unfitness::NotWhole)
        }
    }
}

fn size(number: i128) -> Resolved {
    match (u32::try_from(number), i32::try_from(number)) {
        (Ok(size), Ok(_)) => Resolved::Size(size),
        _ if number < 0 => Resolved::Unfit(Unfitness::Negative),
        _ => Resolved::Unfit(Unfitness::TooLarge),
    }
}
