//! A cost by writing out all fragments and walking down. It takes as long as the cost is high.

use std::fmt::Write;

use proptest::{collection::vec, option, prelude::*};
use serde_json::json;

use crate::{Measure, body_cost};

/// A selection of a random document.
#[derive(Clone, Debug)]
enum Random {
    Field {
        size: Size,
        condition: Condition,
        inside: Vec<Random>,
    },
    Inline {
        condition: Condition,
        inside: Vec<Random>,
    },
    /// Of a later fragment, if there is one.
    Spread {
        condition: Condition,
        fragment: prop::sample::Index,
    },
}

/// The arguments of a field, and whether their values are variables.
#[derive(Clone, Debug)]
struct Size {
    first: Option<u8>,
    last: Option<u8>,
    is_variable: bool,
}

/// What a directive says; none: there is none.
type Condition = Option<(bool, bool)>;

fn selection() -> impl Strategy<Value = Random> {
    let condition = || option::weighted(0.2, any::<(bool, bool)>());
    let size = (option::of(0..6_u8), option::of(0..6_u8), any::<bool>())
        .prop_map(|(first, last, is_variable)| Size { first, last, is_variable });
    let leaf = prop_oneof![
        (size.clone(), condition()).prop_map(|(size, condition)| {
            Random::Field { size, condition, inside: Vec::new() }
        }),
        (condition(), any::<prop::sample::Index>())
            .prop_map(|(condition, fragment)| Random::Spread { condition, fragment }),
    ];
    leaf.prop_recursive(4, 12, 3, move |inside| {
        let inside = vec(inside, 1..4);
        prop_oneof![
            (size.clone(), condition(), inside.clone()).prop_map(|(size, condition, inside)| {
                Random::Field { size, condition, inside }
            }),
            (condition(), inside)
                .prop_map(|(condition, inside)| Random::Inline { condition, inside }),
        ]
    })
}

/// The number of the fragment that is spread in this one, or in the operation, which is 0.
fn target(sets: usize, own: usize, fragment: &prop::sample::Index) -> Option<usize> {
    (own + 1 < sets).then(|| own + 1 + fragment.index(sets - own - 1))
}

fn write_set(text: &mut String, sets: &[Vec<Random>], own: usize, set: &[Random]) {
    text.push_str("{ x ");
    for selection in set {
        let condition = match selection {
            Random::Field { size, condition, .. } => {
                text.push_str("alias: field");
                write_size(text, size);
                condition
            }
            Random::Inline { condition, .. } => {
                text.push_str("... on T ");
                condition
            }
            Random::Spread { condition, fragment } => {
                let Some(target) = target(sets.len(), own, fragment) else { continue };
                write!(text, "...F{target} ").unwrap();
                condition
            }
        };
        if let Some((is_skip, value)) = condition {
            let name = if *is_skip { "skip" } else { "include" };
            write!(text, "@{name}(if: {value}) ").unwrap();
        }
        match selection {
            Random::Field { inside, .. } | Random::Inline { inside, .. } if !inside.is_empty() => {
                write_set(text, sets, own, inside);
            }
            _ => {}
        }
    }
    text.push_str("} ");
}

fn write_size(text: &mut String, size: &Size) {
    let dollar = if size.is_variable { "$v" } else { "" };
    let all = [("first", size.first), ("last", size.last)];
    let given: String = all
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {dollar}{} ", (*value)?)))
        .collect();
    if !given.is_empty() {
        write!(text, "({given})").unwrap();
    }
    text.push(' ');
}

/// Adds up what each connection costs that is inside of others with this product of sizes.
fn walk(
    measure: Measure,
    sets: &[Vec<Random>],
    (own, set): (usize, &[Random]),
    product: u128,
) -> u128 {
    let is_skipped =
        |condition: &Condition| condition.is_some_and(|(is_skip, value)| is_skip == value);
    let walk_one = |selection: &Random| match selection {
        Random::Field { condition, .. }
        | Random::Inline { condition, .. }
        | Random::Spread { condition, .. }
            if is_skipped(condition) =>
        {
            0
        }
        Random::Field { size, inside, .. } => {
            let Some(size) = size.first.max(size.last).map(|size| u128::from(size.max(1))) else {
                return walk(measure, sets, (own, inside), product);
            };
            let inside = walk(measure, sets, (own, inside), product * size);
            match measure {
                Measure::Points => product + inside,
                Measure::Nodes => product * size + inside,
            }
        }
        Random::Inline { inside, .. } => walk(measure, sets, (own, inside), product),
        Random::Spread { fragment, .. } => match target(sets.len(), own, fragment) {
            Some(target) => walk(measure, sets, (target, &sets[target]), product),
            None => 0,
        },
    };
    set.iter().map(walk_one).sum()
}

proptest! {
    #[test]
    fn prop_the_cost_is_that_of_the_document_written_out(
        sets in vec(vec(selection(), 0..4), 1..5),
        defaults in any::<bool>(),
    ) {
        let default = |n| if defaults { format!(" = {n}") } else { String::new() };
        let variables: String = (0..6).map(|n| format!("$v{n}: Int{} ", default(n))).collect();
        let mut query = format!("query ({variables}) ");
        write_set(&mut query, &sets, 0, &sets[0]);
        for (number, set) in sets.iter().enumerate().skip(1) {
            write!(query, "fragment F{number} on T ").unwrap();
            write_set(&mut query, &sets, number, set);
        }
        let given = match defaults {
            true => json!({}),
            false => json!({ "v0": 0, "v1": 1, "v2": 2, "v3": 3, "v4": 4, "v5": 5 }),
        };
        let body = json!({ "query": query, "variables": given }).to_string();
        for measure in [Measure::Points, Measure::Nodes] {
            let sum = walk(measure, &sets, (0, &sets[0]), 1);
            let expected = match measure {
                Measure::Points => (sum + 50) / 100,
                Measure::Nodes => sum,
            };
            let cost = body_cost(measure, "", body.as_bytes()).map(|cost| cost.units.into());
            prop_assert_eq!(cost, Ok(expected.max(1)), "{:?}: {}", measure, query);
        }
    }

    #[test]
    fn prop_no_text_leads_to_a_panic(
        tokens in vec(
            "[{}()\\[\\]:$@!=|&,.\"\\\\ \n#a-z\u{e9}\u{1F600}]|[.]{3}|-?[0-9]|\"{3}|query|on |first",
            0..60,
        ),
    ) {
        let text = tokens.concat();
        let _ = crate::document_cost(Measure::Nodes, "", text.as_bytes());
        let _ = crate::query_cost(Measure::Points, &text);
        let _ = body_cost(Measure::Points, &text, text.as_bytes());
        let _ = body_cost(Measure::Points, "", json!({ "query": text }).to_string().as_bytes());
    }
}
