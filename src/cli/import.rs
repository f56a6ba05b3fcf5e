//! `tollgate import`: a policy from another program's configuration.

use std::{
    io::{self, Read, Write, stdin},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use tollgate_import::{
    Finding, Imported, Input, Options, Verdict, envoy, envoy_gateway, ingress_nginx, kong,
    kuadrant, nginx, traefik,
};
use tollgate_yaml::Sources;

use super::{Exit, Failure, table};

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Make a policy of another program's configuration
///
/// Writes the policy to standard output. To standard error goes a table of what is the same, what
/// is nearly the same, and what is left out; if anything is left out, the exit code is 3.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// What the configuration is of
    #[arg(value_enum)]
    format: Format,
    /// The files with the configuration, which may be manifests of Kubernetes; `-` for standard
    /// input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where requests go, if the files do not say it in a way that can be used here
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Take only what is of this class, if the files have those of several
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Succeed though something is left out
    #[arg(long)]
    allow_partial: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// The descriptors of envoyproxy/ratelimit, the reference of Envoy's rate limit service
    Envoy,
    /// Ingresses with the annotations of ingress-nginx, the ConfigMap of its controller, and
    /// Services: what `kubectl get ingress -A -o yaml` prints
    IngressNginx,
    /// Traefik's dynamic configuration, or its objects of Kubernetes; better with the static one
    Traefik,
    /// BackendTrafficPolicies of Envoy Gateway, with their routes, Gateways and SecurityPolicies
    EnvoyGateway,
    /// RateLimitPolicies of Kuadrant, with their routes, Gateways and AuthPolicies
    Kuadrant,
    /// The files of nginx, or the output of `nginx -T`
    Nginx,
    /// Kong's declarative configuration: what DB-less nodes read, or what decK writes
    Kong,
}

pub(super) fn run(
    arguments: &Arguments,
    output: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), Failure> {
    let inputs =
        arguments.files.iter().map(|file| read(file)).collect::<Result<Vec<Input>, _>>()?;
    let options = Options { upstream: arguments.upstream.clone(), class: arguments.class.clone() };
    let Imported { policy, findings } = match arguments.format {
        Format::Envoy => envoy(&inputs),
        Format::IngressNginx => ingress_nginx(&inputs, &options),
        Format::Traefik => traefik(&inputs, &options),
        Format::EnvoyGateway => envoy_gateway(&inputs, &options),
        Format::Kuadrant => kuadrant(&inputs, &options),
        Format::Nginx => nginx(&inputs, &options),
        Format::Kong => kong(&inputs, &options),
    }?;
    write_table(notes, &findings)?;
    output.write_all(policy.as_bytes())?;
    let is_partial = findings.iter().any(|finding| finding.verdict == Verdict::LeftOut);
    match is_partial && !arguments.allow_partial {
        false => Ok(()),
        true => Err(Failure::Reported(Exit::Partial)),
    }
}

fn write_table(notes: &mut dyn Write, findings: &[Finding]) -> io::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let head = ["", "place", "there", "here"].map(str::to_owned);
    let row = |finding: &Finding| {
        let Finding { verdict, place, there, here } = finding;
        [verdict.to_string(), place.clone(), there.clone(), here.clone()]
    };
    table::write(notes, &head, findings.iter().map(row))
}

fn read(file: &Path) -> Result<Input, anyhow::Error> {
    let name = file.display().to_string();
    let text = match name.as_str() {
        "-" => read_all(&mut stdin()),
        _ => Sources::system().read(file, MAX_FILE_BYTES),
    };
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let text = String::from_utf8(text).map_err(|_| anyhow!("{name} is not UTF-8"))?;
    Ok(Input { name, text })
}

/// Reads what comes through a pipe.
fn read_all(input: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes"))),
        false => Ok(text),
    }
}
