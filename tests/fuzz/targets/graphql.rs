//! Any text of a GraphQL document: it costs the same in a body, in a URL and in a batch, whatever
//! refuses it does so for both measures, and by another parser it costs the same with its fragments
//! written out.

#![no_main]

use async_graphql_parser::{
    parse_query,
    types::{ExecutableDocument, Field, OperationDefinition, Selection, SelectionSet},
};
use async_graphql_value::{ConstValue, Value};
use libfuzzer_sys::fuzz_target;
use tollgate_graphql::{Measure, Refusal, RequestCost, body_cost, document_cost, query_cost};

/// The most selections that are written out.
const MAX_STEPS: u32 = 20_000;

fuzz_target!(|input: &[u8]| {
    let _ = body_cost(Measure::Points, "", input);
    let Ok(text) = str::from_utf8(input) else { return };
    let _ = query_cost(Measure::Points, text);
    if text.is_empty() {
        return;
    }
    let nodes = document_cost(Measure::Nodes, "", input);
    let points = document_cost(Measure::Points, "", input);
    assert_eq!(nodes.clone().err(), points.clone().err());

    let request = serde_json::json!({ "query": text });
    assert_eq!(body_cost(Measure::Nodes, "", request.to_string().as_bytes()), nodes);
    let query: String = input.iter().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(query_cost(Measure::Nodes, &format!("query={query}")), nodes);
    let batch = serde_json::json!([request, request]).to_string();
    match (&nodes, body_cost(Measure::Nodes, "", batch.as_bytes())) {
        (Ok(one), Ok(both)) => {
            let units = one.units.saturating_mul(2);
            assert_eq!(both, RequestCost { units, ..*one });
        }
        (Ok(_), Err(Refusal::InBatch { why, .. })) => assert_eq!(*why, Refusal::TooManyTokens),
        (Ok(_), Err(refusal)) => panic!("{refusal}"),
        (Err(_), both) => assert!(both.is_err()),
    }

    let (Ok(nodes), Ok(points)) = (nodes, points) else { return };
    let Ok(document) = parse_query(text) else { return };
    for (measure, cost) in [(Measure::Nodes, nodes), (Measure::Points, points)] {
        if let Some(expected) = WrittenOut::cost(measure, &document) {
            assert_eq!(u128::from(cost.units), expected, "{measure:?}: {text}");
        }
    }
});

/// Counts by writing out all fragments.
struct WrittenOut<'d> {
    measure: Measure,
    document: &'d ExecutableDocument,
    operation: &'d OperationDefinition,
    steps: u32,
}

impl WrittenOut<'_> {
    /// None: it would take too long, or the cost is too high to compare.
    fn cost(measure: Measure, document: &ExecutableDocument) -> Option<u128> {
        let (_, operation) = document.operations.iter().next()?;
        let operation = &operation.node;
        let mut count = WrittenOut { measure, document, operation, steps: 0 };
        let sum = count.set(&operation.selection_set.node, 1)?;
        let units = match measure {
            Measure::Points => (sum + 50) / 100,
            Measure::Nodes => sum,
        };
        Some(units.max(1))
    }

    fn set(&mut self, set: &SelectionSet, product: u128) -> Option<u128> {
        let mut sum: u128 = 0;
        for selection in &set.items {
            self.steps += 1;
            if self.steps > MAX_STEPS || product > u128::from(u32::MAX) {
                return None;
            }
            let selection = &selection.node;
            if self.is_skipped(selection) {
                continue;
            }
            sum += match selection {
                Selection::Field(field) => self.field(&field.node, product)?,
                Selection::InlineFragment(inline) => {
                    self.set(&inline.node.selection_set.node, product)?
                }
                Selection::FragmentSpread(spread) => {
                    let document = self.document;
                    let fragment = &document.fragments[&spread.node.fragment_name.node];
                    self.set(&fragment.node.selection_set.node, product)?
                }
            };
        }
        Some(sum)
    }

    fn field(&mut self, field: &Field, product: u128) -> Option<u128> {
        let set = &field.selection_set.node;
        let first = self.size(field.get_argument("first").map(|value| &value.node));
        let size = first.max(self.size(field.get_argument("last").map(|value| &value.node)));
        let Some(size) = size else { return self.set(set, product) };
        let inside = self.set(set, product * size)?;
        Some(match self.measure {
            Measure::Points => product + inside,
            Measure::Nodes => product * size + inside,
        })
    }

    fn size(&self, argument: Option<&Value>) -> Option<u128> {
        match self.value(argument?)? {
            ConstValue::Number(number) => number.as_u64().map(u128::from),
            _ => None,
        }
    }

    fn is_skipped(&self, selection: &Selection) -> bool {
        selection.directives().iter().any(|directive| {
            let skips = match directive.node.name.node.as_str() {
                "skip" => true,
                "include" => false,
                _ => return false,
            };
            let condition = directive.node.get_argument("if");
            let condition = condition.and_then(|value| self.value(&value.node));
            condition == Some(ConstValue::Boolean(skips))
        })
    }

    /// The value of an argument; none of the variables is given.
    fn value(&self, value: &Value) -> Option<ConstValue> {
        let default = |name| {
            let mut all = self.operation.variable_definitions.iter();
            let definition = all.find(|definition| definition.node.name.node == name)?;
            definition.node.default_value.as_ref().map(|default| default.node.clone())
        };
        match value {
            Value::Variable(name) => default(name.clone()),
            other => other.clone().into_const(),
        }
    }
}
