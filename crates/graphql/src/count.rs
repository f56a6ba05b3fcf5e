//! The cost of an operation: what its connections, one inside the other, ask for.
//!
//! The cost of what is inside of a connection grows with its size, and adds up otherwise. So a
//! fragment is counted once, however often it is spread: a document of fragments that spread others
//! twice, which is exponentially long when it is written out, takes the time to read it.

use std::collections::BTreeMap;

use apollo_parser::cst::{CstNode, Field, FragmentSpread, Selection, SelectionSet};

use crate::{
    Measure,
    bounds::MAX_DEPTH,
    document::{Document, Operation},
    json::Json,
    refusal::Refusal,
    values::Variables,
};

/// How many requests of one connection are a point.
const REQUESTS_PER_POINT: u64 = 100;

/// What there is in a set of selections that is executed once.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Requests or nodes.
    units: u64,
    /// Sets within each other, itself included.
    height: usize,
}

/// How far a fragment was counted.
enum Progress {
    Begun,
    Counted(Sum),
}

struct Count<'d> {
    measure: Measure,
    document: &'d Document<'d>,
    variables: Variables<'d>,
    fragments: BTreeMap<String, Progress>,
}

impl Document<'_> {
    /// What an operation costs, with these variables.
    pub(crate) fn cost(
        &self,
        measure: Measure,
        operation: &Operation,
        variables: &BTreeMap<String, Json>,
    ) -> Result<u64, Refusal> {
        let variables = Variables::new(self, operation, variables)?;
        let mut count = Count { measure, document: self, variables, fragments: BTreeMap::new() };
        let units = count.set(&operation.selections, 0)?.units;
        let units = match measure {
            Measure::Points => {
                let halves = units % REQUESTS_PER_POINT >= REQUESTS_PER_POINT / 2;
                units / REQUESTS_PER_POINT + u64::from(halves)
            }
            Measure::Nodes => units,
        };
        Ok(units.max(1))
    }
}

impl Count<'_> {
    /// Counts a set that is inside of so many others, so it calls itself no deeper than that.
    fn set(&mut self, set: &SelectionSet, depth: usize) -> Result<Sum, Refusal> {
        if depth == MAX_DEPTH {
            return Err(Refusal::TooDeep(self.document.place(set.syntax())));
        }
        let depth = depth + 1;
        let mut all = Sum::default();
        for selection in set.selections() {
            let directives = match &selection {
                Selection::Field(field) => field.directives(),
                Selection::FragmentSpread(spread) => spread.directives(),
                Selection::InlineFragment(inline) => inline.directives(),
            };
            if self.variables.is_skipped(directives)? {
                continue;
            }
            let sum = match selection {
                Selection::Field(field) => self.field(&field, depth)?,
                Selection::FragmentSpread(spread) => self.spread(&spread, depth)?,
                Selection::InlineFragment(inline) => {
                    let set = self.document.required(inline.selection_set(), inline.syntax())?;
                    self.set(&set, depth)?
                }
            };
            all.units = all.units.saturating_add(sum.units);
            all.height = all.height.max(sum.height);
        }
        Ok(Sum { height: all.height + 1, ..all })
    }

    fn field(&mut self, field: &Field, depth: usize) -> Result<Sum, Refusal> {
        let size = self.variables.size(field.arguments().as_ref())?;
        let inside = match field.selection_set() {
            Some(set) => self.set(&set, depth)?,
            None => Sum::default(),
        };
        // Servers that take no size from a zero execute it all the same.
        let Some(size) = size.map(|size| u64::from(size.max(1))) else { return Ok(inside) };
        let units = match self.measure {
            Measure::Points => inside.units.saturating_mul(size).saturating_add(1),
            Measure::Nodes => inside.units.saturating_add(1).saturating_mul(size),
        };
        Ok(Sum { units, ..inside })
    }

    fn spread(&mut self, spread: &FragmentSpread, depth: usize) -> Result<Sum, Refusal> {
        let node = spread.syntax();
        let name = spread.fragment_name().and_then(|name| name.name());
        let name = self.document.name(name, node)?;
        let place = || self.document.place(node);
        match self.fragments.get(&name) {
            Some(Progress::Begun) => return Err(Refusal::FragmentCycle(place())),
            Some(Progress::Counted(sum)) if depth + sum.height > MAX_DEPTH => {
                return Err(Refusal::TooDeep(place()));
            }
            Some(Progress::Counted(sum)) => return Ok(*sum),
            None => {}
        }
        let set = self.document.fragment(&name).ok_or_else(|| Refusal::UnknownFragment(place()))?;
        self.fragments.insert(name.clone(), Progress::Begun);
        let sum = self.set(set, depth)?;
        self.fragments.insert(name, Progress::Counted(sum));
        Ok(sum)
    }
}
