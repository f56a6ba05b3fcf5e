//! Header fields that a location sets on the way to the upstream.

use super::{Importer, directive::Directive, levels::Levels};
use crate::{Finding, flow::Flow, words};

/// Fields of the connection, which the proxy writes itself.
const OF_CONNECTION: &str =
    "connection content-length transfer-encoding te accept-encoding keep-alive expect";
/// Parts of the names of fields whose values may be credentials.
const SECRET: [&str; 7] = ["auth", "key", "token", "secret", "cookie", "password", "credential"];

/// What becomes of a field that is set there.
enum Field {
    /// As it is here anyway.
    Alike,
    /// The host that the client asked for.
    Host,
    Upgrade,
    /// What every upstream gets.
    Forwarded,
    LeftOut(&'static str),
    Remove,
    Set,
}

impl<'c> Importer<'c> {
    /// The fields of a route that say which header fields are set.
    pub(super) fn headers(
        &mut self,
        levels: &Levels<'c>,
        authority: &str,
        is_grpc: bool,
    ) -> Vec<(&'static str, Flow)> {
        self.row(Finding::nearly(
            "proxy_pass",
            "fields of responses",
            "`Server` of the upstream is passed on, unless `response_headers` remove it: nginx \
             writes its own; `X-Accel-…` are passed on as well, and do nothing",
        ));
        let own = levels.nearest(&[if is_grpc { "grpc_set_header" } else { "proxy_set_header" }]);
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        let (mut has_host, mut has_upgrade) = (false, is_grpc);
        for directive in own {
            let name = directive.arg(0).to_ascii_lowercase();
            let value = levels.filled(directive.arg(1));
            match Field::of(&name, &value) {
                Field::Alike => {}
                Field::Host => {
                    has_host = true;
                    self.grouped(row_of_host(directive));
                }
                Field::Upgrade => has_upgrade = true,
                Field::Forwarded if name == "x-forwarded-for" => self.grouped(directive.nearly(
                    "the upstream gets it in any case; what the client wrote there is removed, \
                     unless it comes from one of `trusted_proxies`: stricter",
                )),
                Field::Forwarded => {
                    self.grouped(directive.same("the upstream gets it in any case"));
                }
                Field::LeftOut(why) => {
                    has_host |= name == "host";
                    self.left_out(directive, why);
                }
                Field::Remove => remove.push(name),
                Field::Set => {
                    has_host |= name == "host";
                    set.push((name, Flow::Text(value)));
                }
            }
        }
        if !has_host {
            set.push(("host".to_owned(), authority.into()));
        }
        set.sort_by(|one, other| one.0.cmp(&other.0));
        set.dedup_by(|one, other| one.0 == other.0);
        let edits = Flow::fields([]).with_fields("set", set).with_list("remove", remove);
        let mut fields = Vec::new();
        if !edits.is_empty() {
            fields.push(("request_headers", edits));
        }
        if !has_upgrade {
            fields.push(("upgrades", Flow::List(Vec::new())));
        }
        fields
    }
}

fn row_of_host(directive: &Directive) -> Finding {
    match directive.arg(1) {
        "$http_host" => directive.same("the Host that the client sent"),
        _ => directive.nearly("the Host that the client sent: with its port, if it has one"),
    }
}

impl Field {
    /// Of a name in small letters.
    fn of(name: &str, value: &str) -> Self {
        let is_for_proxies =
            name.contains('_') || name.starts_with("x-forwarded") || name.starts_with("x-real");
        match (name, value) {
            ("host", "$host" | "$http_host" | "$host:$server_port" | "$server_name") => Field::Host,
            ("host", "$proxy_host") => Field::Alike,
            ("upgrade", _) => Field::Upgrade,
            ("x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "x-request-id", _)
                if value.starts_with('$') =>
            {
                Field::Forwarded
            }
            _ if value == format!("$http_{}", name.replace('-', "_")) => Field::Alike,
            ("x-real-ip", _) => {
                Field::LeftOut("the upstream gets X-Forwarded-For alone: have it read that")
            }
            _ if value.contains('$') || is_for_proxies => {
                Field::LeftOut("no counterpart: the upstream does not get this value")
            }
            _ if words::has(OF_CONNECTION, name) => Field::Alike,
            (_, "") => Field::Remove,
            _ if SECRET.iter().any(|part| name.contains(part)) => Field::LeftOut(
                "it may be a credential: write it into `request_headers` of the route yourself, by \
                 `${NAME}`",
            ),
            _ => Field::Set,
        }
    }
}
