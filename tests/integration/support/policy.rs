//! Policies in front of a fake upstream. Each section has a default, so that a test writes only
//! what it is about.

use std::fmt;

use tollgate_limit::AlgorithmKind;

use super::{ISSUER, Upstream};

/// The environment variable that proxies of tests find the secret in.
pub(super) const SECRET_VARIABLE: &str = "TEST_SECRET";

/// The name of each algorithm of a limit with a rate.
pub(crate) fn algorithms() -> impl Iterator<Item = &'static str> {
    let with_a_rate = |kind: &AlgorithmKind| *kind != AlgorithmKind::Concurrency;
    AlgorithmKind::ALL.into_iter().filter(with_a_rate).map(AlgorithmKind::name)
}

/// What `algorithm` can be in a limit of one rate, with the fields that change how it counts.
pub(crate) fn forms_of_algorithms() -> impl Iterator<Item = &'static str> {
    let aligned = ["fixed_window, align: epoch", "fixed_window, align: calendar"];
    algorithms().chain(aligned)
}

/// A policy file. Entries of sections are lines of YAML.
#[derive(Clone)]
pub(crate) struct Policy {
    hosts: String,
    upstreams: Vec<String>,
    issuers: Vec<String>,
    callers: Vec<String>,
    identity: Vec<String>,
    tiers: String,
    limits: Vec<String>,
    routes: Vec<String>,
    responses: Vec<String>,
    /// Other sections, whole.
    sections: Vec<String>,
}

fn lines(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|entry| (*entry).to_owned()).collect()
}

impl Policy {
    /// Forwards all requests, knows the issuer of [`super::token`], and has no limits.
    pub(crate) fn before(upstream: &Upstream) -> Policy {
        Policy::before_servers(&format!("servers: [\"{}\"]", upstream.url()))
    }

    /// The same for an upstream with these fields.
    pub(crate) fn before_servers(fields: &str) -> Policy {
        Policy {
            hosts: "[]".into(),
            upstreams: vec![format!("api: {{ {fields} }}")],
            issuers: vec![issuer("main", ISSUER)],
            callers: lines(&[
                "{ name: user, key: jwt.sub, tier: jwt.plan }",
                "{ name: anonymous, key: client.ip, tier: anonymous }",
            ]),
            identity: Vec::new(),
            tiers: "[anonymous, free, pro, internal]".into(),
            limits: Vec::new(),
            routes: lines(&["{ match: { path: /** }, limits: [] }"]),
            responses: Vec::new(),
            sections: Vec::new(),
        }
    }

    pub(crate) fn hosts(mut self, hosts: &str) -> Policy {
        self.hosts = hosts.into();
        self
    }

    /// More fields of the one upstream.
    pub(crate) fn upstream(mut self, upstream: &Upstream, fields: &str) -> Policy {
        self.upstreams = vec![format!("api: {{ servers: [\"{}\"], {fields} }}", upstream.url())];
        self
    }

    /// One more upstream, beside `api`.
    pub(crate) fn and_upstream(mut self, name: &str, upstream: &Upstream) -> Policy {
        self.upstreams.push(format!("{name}: {{ servers: [\"{}\"] }}", upstream.url()));
        self
    }

    /// One more issuer with the same secret, beside `main`.
    pub(crate) fn and_issuer(mut self, name: &str, iss: &str) -> Policy {
        self.issuers.push(issuer(name, iss));
        self
    }

    /// These issuers, and no others.
    pub(crate) fn issuers(mut self, issuers: &[&str]) -> Policy {
        self.issuers = lines(issuers);
        self
    }

    pub(crate) fn callers(mut self, callers: &[&str]) -> Policy {
        self.callers = lines(callers);
        self
    }

    /// Other fields of the identity section.
    pub(crate) fn identity(mut self, fields: &[&str]) -> Policy {
        self.identity = lines(fields);
        self
    }

    /// The names of the tiers; `free` is the default.
    pub(crate) fn tiers(mut self, names: &str) -> Policy {
        self.tiers = names.into();
        self
    }

    /// One limit, `core`, per caller, on all routes.
    pub(crate) fn rate(self, rate: &str) -> Policy {
        self.core(&format!("rate: {rate}"))
    }

    /// Like [`Policy::rate`], with these fields of the limit.
    pub(crate) fn core(self, fields: &str) -> Policy {
        self.on_all_routes(&[&format!("core: {{ per: caller, {fields} }}")])
    }

    /// These limits, all of them on all routes.
    pub(crate) fn on_all_routes(self, limits: &[&str]) -> Policy {
        let name = |limit: &&str| limit.split(':').next().unwrap_or_default().to_owned();
        let names: Vec<String> = limits.iter().map(name).collect();
        let route = format!("{{ match: {{ path: /** }}, limits: [{}] }}", names.join(", "));
        self.limits(limits).routes(&[&route])
    }

    pub(crate) fn limits(mut self, limits: &[&str]) -> Policy {
        self.limits = lines(limits);
        self
    }

    pub(crate) fn routes(mut self, routes: &[&str]) -> Policy {
        self.routes = lines(routes);
        self
    }

    pub(crate) fn responses(mut self, fields: &[&str]) -> Policy {
        self.responses = lines(fields);
        self
    }

    /// One more section: `exempt: [127.0.0.1]`.
    pub(crate) fn section(mut self, section: &str) -> Policy {
        self.sections.push(section.to_owned());
        self
    }
}

fn issuer(name: &str, iss: &str) -> String {
    format!(
        "{{ name: {name}, issuer: \"{iss}\", audience: [api], algorithms: [HS256], \
         secret_env: {SECRET_VARIABLE}, leeway: 0s }}"
    )
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version: 1\nhosts: {}", self.hosts)?;
        write_section(f, "upstreams:", "  ", &self.upstreams)?;
        writeln!(f, "identity:")?;
        write_section(f, "  jwt:", "    - ", &self.issuers)?;
        write_section(f, "  callers:", "    - ", &self.callers)?;
        write_section(f, "", "  ", &self.identity)?;
        writeln!(f, "tiers: {{ default: free, names: {} }}", self.tiers)?;
        write_section(f, "limits:", "  ", &self.limits)?;
        write_section(f, "routes:", "  - ", &self.routes)?;
        write_section(f, "responses:", "  ", &self.responses)?;
        write_section(f, "", "", &self.sections)
    }
}

fn write_section(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    indent: &str,
    entries: &[String],
) -> fmt::Result {
    if entries.is_empty() {
        return Ok(());
    }
    if !title.is_empty() {
        writeln!(f, "{title}")?;
    }
    entries.iter().try_for_each(|entry| writeln!(f, "{indent}{entry}"))
}
