//! What limits would have done to requests of the past: each is judged by the code that judges real
//! requests, by the time of the log.
//!
//! [`Simulation::run`] reads a history, judges each request (`past_judge`) and counts what became
//! of it: for each limit (`limits`), caller (`callers`) and moment (`timeline`). How many another
//! limit would deny (`curve`) comes from what each caller has used in each window. [`report`]
//! shows the answers, and [`suggest()`] makes a policy of them.
//!
//! This crate knows no format of logs: [`tollgate_history`] reads them.
//!
//! The types to know first:
//!
//! - [`Simulation`]: what is to be simulated.
//! - [`PolicySet`]: policies to judge by.
//! - [`Report`]: all answers of a simulation.
//! - [`Curve`]: how many callers and requests another limit would deny.
//! - [`CallerField`]: where a log has the names of callers.

mod answers;
mod caller_id;
mod callers;
mod costs;
mod curve;
mod describe;
mod error;
mod left_out;
mod limit_count;
mod limits;
mod not_judged;
mod notes;
mod order;
mod past_judge;
mod paths;
mod read;
/// How answers are shown.
pub mod report;
mod run;
mod suggest;
#[cfg(test)]
mod tests;
mod timeline;
mod translate;

pub use self::{
    answers::{
        Against, BadLine, CallerChange, Curve, CurvePoint, Doubt, FileRead, LimitAnswer, Moment,
        Need, Outcome, Read, Report, Timeline, WorstCaller,
    },
    error::SimulationError,
    run::{PolicySet, Progress, Simulation},
    suggest::suggest,
    translate::CallerField,
};
