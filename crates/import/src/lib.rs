//! Policies made of the configurations of other programs.
//!
//! Files go in ([`Input`]), a policy and a table come out ([`Imported`]): what is the same here,
//! what is nearly the same, with the difference, and what is left out ([`Finding`]). Nothing is
//! dropped without a finding, and nothing that refused there is open here: a route whose guard has
//! no counterpart is closed until its reader has written one.
//!
//! - `draft`: the policy to be, and its text; `flow`: its values as YAML.
//! - `finding`: a row of the table; `report`: all rows, and what is left to do.
//! - `names`: names of limits and upstreams that no other has; `upstreams`: upstreams by them.
//! - `network`: networks of addresses; `paths`: patterns of paths; `words`: lists of names.
//! - `section`: a mapping of a file.
//! - `manifest`: the objects of Kubernetes in files, and the configurations in ConfigMaps.
//! - `envoy`: the descriptors of envoyproxy/ratelimit.
//! - `ingress_nginx`: Ingresses of Kubernetes with the annotations of ingress-nginx.
//! - `traefik`: Traefik's files and objects.
//! - `kong`: Kong's declarative configuration.
//! - `gateway`: routes of the Gateway API of Kubernetes, with limits; `envoy_gateway`,
//!   `kuadrant`: the policies for them.
//! - `nginx`: servers and locations of nginx.

mod draft;
mod envoy;
mod envoy_gateway;
mod finding;
mod flow;
mod gateway;
mod ingress_nginx;
#[cfg(test)]
mod inspection;
mod kong;
mod kuadrant;
mod manifest;
mod names;
mod network;
mod nginx;
mod paths;
mod report;
mod section;
mod traefik;
mod upstreams;
mod words;

use tollgate_yaml::Problem;

pub use self::envoy::envoy;
pub use self::envoy_gateway::envoy_gateway;
pub use self::finding::{Finding, Verdict};
pub use self::ingress_nginx::ingress_nginx;
pub use self::kong::kong;
pub use self::kuadrant::kuadrant;
pub use self::nginx::nginx;
pub use self::traefik::traefik;

/// A file that is given.
#[derive(Clone, Debug)]
pub struct Input {
    /// What it is called in findings and problems.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What the files do not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where requests go, such as `http://127.0.0.1:3000`, if the files do not say it in a way that
    /// can be used here.
    pub upstream: Option<String>,
    /// Whose Ingresses, Gateways or routers these are, if the files have those of several.
    pub class: Option<String>,
}

/// A policy, and what became of the configuration.
#[derive(Debug)]
pub struct Imported {
    /// The text of the policy, with its tests. What is left out is at its top, as comments.
    pub policy: String,
    /// What is left out first.
    pub findings: Vec<Finding>,
}

/// What is wrong with the files: all that was found.
pub type Problems = Vec<Problem>;

/// A problem of all files together; its place is the first one.
fn problem_of_all(
    inputs: &[Input],
    message: impl Into<String>,
    help: impl Into<String>,
) -> Problem {
    Problem::whole_file(inputs.first().map_or("", |input| &input.name), message, help)
}
