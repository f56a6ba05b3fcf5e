//! `tollgate demo`: a sample API and the proxy in front of it, in one process, needing nothing
//! else.

mod sample_api;
mod traffic;

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::Context;
use serde_json::{Map, Value, json};
use tollgate_clock::Clock;
use tollgate_identity::SigningKey;
use tollgate_observe::{access_log::Format, events::log_to_stderr};
use tollgate_policy::{Policies, load};
use tollgate_settings::{Configuration, ListenAddress, Settings};
use tollgate_yaml::Sources;

use self::{
    sample_api::Behaviour,
    traffic::{Client, Credential},
};
use super::{
    Failure,
    run::{FLUSH_TIMEOUT, serve},
};
use crate::server::handover::Inherited;

/// The shipped example: what the demo enforces is what a newcomer reads.
const POLICY: &str = include_str!("../../config/policies/api.yaml");
const POLICY_FILE: &str = "config/policies/api.yaml";
const KEY_FILE: &str = "config/policies/../keys/public.pem";

/// With short windows, for a dashboard to look at.
const TRAFFIC_POLICY: &str = include_str!("demo/traffic.yaml");

/// The addresses of the servers in both policies.
const UPSTREAM: &str = "127.0.0.1:9000";
const FAILING_UPSTREAM: &str = "127.0.0.1:9001";

/// Connections are few, so that the descriptors of the barest system are enough.
const LIMITS: &str = "limits: { connections: 256, connections_per_address: 256 }";

/// Try it: a sample API and the proxy in front of it, in one process
///
/// Starts a small sample API and the proxy in front of it with the policy in
/// config/policies/api.yaml, and prints the dashboard's address and commands to paste. With
/// --traffic, a dozen callers of three tiers send requests, one of them too many, and a server
/// fails for a while, again and again. Ctrl-C ends it.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Where the proxy listens; another port is taken if this one is in use
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where the dashboard is; another port is taken if this one is in use
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    admin: SocketAddr,
    /// Send requests of a dozen callers too, under a policy with short windows
    #[arg(long)]
    traffic: bool,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let events = log_to_stderr(Format::Text);
    let (key, public_pem) = SigningKey::generate_ed25519().context("cannot make a key")?;
    let sources = Sources::system().with_file(KEY_FILE, public_pem);
    let api = sample_api::start(Behaviour::Good)?;
    let (mut policy, mut more) = (POLICY.replace(UPSTREAM, &api.to_string()), "");
    if arguments.traffic {
        let failing = sample_api::start(Behaviour::FailsForAWhile)?;
        policy = TRAFFIC_POLICY.replace(FAILING_UPSTREAM, &failing.to_string());
        policy = policy.replace(UPSTREAM, &api.to_string());
        more = "trusted_proxies: [127.0.0.1]\naccess_log: { format: \"off\" }\n";
    }
    let policy = load(Path::new(POLICY_FILE), &policy, &sources)?;

    let listen = free_address(arguments.listen);
    let admin = free_address(arguments.admin);
    let settings = format!(
        "version: 1\nlisteners: [{{ address: \"{listen}\" }}]\nadmin: {{ address: \"{admin}\" }}\n\
         {LIMITS}\n{more}"
    );
    let settings = Settings::parse(Path::new("demo"), &settings, &sources)?;
    let configuration = Configuration { settings, policies: Policies::new(vec![policy]) };
    let result = serve(configuration, None, Inherited::default(), &events, |bound| {
        let address = bound.listeners.first().and_then(ListenAddress::tcp).unwrap_or(listen);
        let admin = bound.admin.and_then(ListenAddress::tcp).unwrap_or(admin);
        if arguments.traffic {
            traffic::start(address, clients(&key)?)?;
            return Ok(introduce_traffic(output, address, admin)?);
        }
        let tokens = Tokens { free: mint(&key, "42", "free")?, pro: mint(&key, "7", "pro")? };
        Ok(introduce(output, address, admin, &tokens)?)
    });
    events.finish(FLUSH_TIMEOUT);
    result
}

/// A dozen: pro users, free users of whom one hammers, and addresses.
fn clients(key: &SigningKey) -> Result<Vec<Client>, Failure> {
    const BROWSING: &[&str] =
        &["/user", "/repos/octo/hello", "/search/code", "/user", "/reports/day"];
    const REPORTING: &[&str] = &["/reports/day", "/user"];
    const SEARCHING: &[&str] = &["/search/code", "/search/issues", "/user", "/repos/octo/hello"];
    const HAMMERING: &[&str] = &["/user"];
    let user = |sub: &str, plan: &str, pace: f64, paths| {
        let credential = Credential::Token(mint(key, sub, plan)?);
        Ok::<_, Failure>(Client { credential, pace, paths })
    };
    let address = |address, pace| {
        let credential = Credential::Address(address);
        Client { credential, pace, paths: BROWSING }
    };
    Ok(vec![
        user("7", "pro", 3.0, BROWSING)?,
        user("12", "pro", 2.5, SEARCHING)?,
        user("19", "pro", 1.5, REPORTING)?,
        user("42", "free", 1.7, BROWSING)?,
        user("51", "free", 0.8, SEARCHING)?,
        user("58", "free", 0.6, REPORTING)?,
        user("66", "free", 0.5, BROWSING)?,
        user("73", "free", 0.3, BROWSING)?,
        user("99", "free", 12.0, HAMMERING)?,
        address("192.0.2.10", 0.7),
        address("198.51.100.4", 0.4),
        address("203.0.113.77", 0.3),
    ])
}

/// The address itself, or the same with any port if it cannot be bound.
fn free_address(wanted: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
    }
}

struct Tokens {
    free: String,
    pro: String,
}

fn mint(key: &SigningKey, sub: &str, plan: &str) -> Result<String, Failure> {
    let now = Clock::System.now().as_micros() / 1_000_000;
    let claims = json!({
        "iss": "https://id.example.com/",
        "aud": "api",
        "sub": sub,
        "plan": plan,
        "iat": now,
        "exp": now + 12 * 3600,
    });
    let claims: Map<String, Value> = claims.as_object().cloned().unwrap_or_default();
    Ok(key.sign(None, &claims).context("cannot sign")?)
}

fn introduce_traffic(
    output: &mut dyn Write,
    address: SocketAddr,
    admin: SocketAddr,
) -> io::Result<()> {
    writeln!(
        output,
        "\
Tollgate is running at http://{address} in front of a sample API, and a dozen callers send requests:
about 25 a second, user 99 many more than it may. Of two servers, one fails for 25 seconds every 90.

The dashboard is at http://{admin}/

Ctrl-C ends it.
"
    )?;
    output.flush()
}

fn introduce(
    output: &mut dyn Write,
    address: SocketAddr,
    admin: SocketAddr,
    tokens: &Tokens,
) -> io::Result<()> {
    let Tokens { free, pro } = tokens;
    writeln!(
        output,
        "\
Tollgate is running at http://{address} in front of a sample API, with the policy in
{POLICY_FILE}. Paste these into another terminal; each request is logged below.

The dashboard is at http://{admin}/

# Two callers: user 42 has the free plan, user 7 the pro plan.
FREE={free}
PRO={pro}
API=http://{address}

# Where each stands: 5000 and 15000 requests an hour, one used.
curl -i $API/user -H \"Authorization: Bearer $FREE\"
curl -i $API/user -H \"Authorization: Bearer $PRO\"

# Without a token you are your address: 60 an hour.
curl -i $API/user

# A bad token is 401; it is never taken for no token.
curl -i $API/user -H \"Authorization: Bearer $FREE.\"

# Search has a limit of its own, 10 a minute for the free plan: the eleventh is 429.
for i in $(seq 11); do
  curl -s -o /dev/null -D - $API/search/code -H \"Authorization: Bearer $FREE\" | grep -E '^HTTP|remaining|retry'
done

# The pro plan still has its 30.
curl -i $API/search/code -H \"Authorization: Bearer $PRO\"

# A response with an ETag, and then 304 for that ETag. A 304 is given back: `used` stays where it was.
curl -i $API/repos/octo/hello -H \"Authorization: Bearer $PRO\"
curl -i $API/repos/octo/hello -H \"Authorization: Bearer $PRO\" -H 'If-None-Match: \"v1\"'

# What the API sees: who called, set by the proxy; no token, and nothing that you sent to fake it.
curl -s $API/echo -H \"Authorization: Bearer $PRO\" -H 'X-Tollgate-Subject: somebody-else' -d hello

# Where you stand on every limit; asking is free.
curl -s $API/rate_limit -H \"Authorization: Bearer $PRO\"

# Slow answers take two seconds, and are in flight until they end. An address may have two requests in
# flight: of three at once, one is 429.
(for i in 1 2 3; do curl -s -w '%{{http_code}}\\n' $API/slow & done; wait)

Ctrl-C ends it.
"
    )?;
    output.flush()
}
