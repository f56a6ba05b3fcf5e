//! What can be asked for: a table of endpoints. Requests are answered by it, and `/openapi.json`
//! describes it, so that the two cannot differ.

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};
use tollgate_preview::{Explanation, explain::Question};
use tollgate_settings::Permission;

use super::{
    BackupOrder, BackupReport, CheckReport, EVENTS, FleetReport, Health, Message, Readiness,
    RefusedReload, Reloaded, Status,
    callers::ResetOrder,
    dashboard::File,
    exposition::TextFormat,
    live::{History, LiveReport},
};
use crate::callers::{CallerReport, DenialsReport, ResetReport, top::TopReport};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Dashboard(File),
    Events,
    History,
    Health,
    Ready,
    Status,
    Metrics,
    Description,
    Reload,
    Explain,
    TopCallers,
    Denials,
    Fleet,
    Caller,
    ResetCaller,
    BackUpStore,
    CheckStore,
    CompactStore,
}

/// A path, and what is to be had there by one method.
pub(super) struct Endpoint {
    pub(super) page: Page,
    pub(super) verb: Verb,
    /// A segment in braces stands for any: `/callers/{name}`.
    pub(super) path: &'static str,
    /// What a token must allow. None: anybody may ask.
    pub(super) needs: Option<Permission>,
    /// A sentence for people.
    pub(super) summary: &'static str,
    /// Of the path, which has them in braces, and of the query.
    pub(super) parameters: &'static [Parameter],
    /// What is sent, if anything is: JSON.
    pub(super) takes: Option<SchemaOf>,
    /// What is answered when no check before refuses the request.
    pub(super) answers: &'static [Answer],
}

/// How it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Looks. `HEAD` does too.
    Get,
    /// Acts, or takes what is sent.
    Post,
}

/// A word that the client chooses.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// A sentence for people.
    pub(super) summary: &'static str,
}

/// One of the ways in which it is answered.
pub(super) struct Answer {
    pub(super) status: u16,
    /// A sentence for people.
    pub(super) summary: &'static str,
    /// By which the client chooses, if there are several.
    pub(super) content_types: &'static [&'static str],
    pub(super) schema: SchemaOf,
}

/// The schema of a type; parts of it that have a name are kept by the generator.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Every endpoint, in the order in which they are described.
///
/// The files of the dashboard hold no data, so they need no token. Nor do the two endpoints that
/// orchestrators ask: probes of Kubernetes, Docker and load balancers have none to send, and what
/// they learn is no more than a connection to the proxy shows.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        summary: "The dashboard.",
        answers: &[text(&[File::Page.content_type()])],
        ..open(Page::Dashboard(File::Page), "/")
    },
    Endpoint {
        summary: "How the dashboard looks.",
        answers: &[text(&[File::Style.content_type()])],
        ..open(Page::Dashboard(File::Style), "/dashboard.css")
    },
    Endpoint {
        summary: "What the dashboard does.",
        answers: &[text(&[File::Script.content_type()])],
        ..open(Page::Dashboard(File::Script), "/dashboard.js")
    },
    Endpoint {
        summary: "The dashboard's icon.",
        answers: &[text(&[File::Icon.content_type()])],
        ..open(Page::Dashboard(File::Icon), "/icon.svg")
    },
    Endpoint {
        summary: "How it is, each second, as server-sent events. At most 16 clients listen at once.",
        answers: &[
            Answer {
                status: 200,
                summary: "Events without end.",
                content_types: &[EVENTS],
                schema: events,
            },
            message(503, "16 clients listen already."),
        ],
        ..read(Page::Events, "/events")
    },
    Endpoint {
        summary: "The last hour in steps of five seconds, and the limits in force.",
        answers: &[json::<History>(200, "The hour.")],
        ..read(Page::History, "/history")
    },
    Endpoint {
        summary: "Whether the process runs.",
        answers: &[json::<Health>(200, "It does.")],
        ..open(Page::Health, "/healthz")
    },
    Endpoint {
        summary: "Whether new requests should come.",
        answers: &[
            json::<Readiness>(200, "They should."),
            json::<Readiness>(503, "They should go elsewhere."),
        ],
        ..open(Page::Ready, "/readyz")
    },
    Endpoint {
        summary: "The configuration in force, problems of a refused one, upstreams, keys and stores.",
        answers: &[json::<Status>(200, "The status.")],
        ..read(Page::Status, "/status")
    },
    Endpoint {
        summary: "Metrics for Prometheus.",
        answers: &[Answer {
            status: 200,
            summary: "All metrics.",
            content_types: &[
                TextFormat::Prometheus.content_type(),
                TextFormat::OpenMetrics.content_type(),
            ],
            schema: SchemaGenerator::subschema_for::<String>,
        }],
        ..read(Page::Metrics, "/metrics")
    },
    Endpoint {
        summary: "This description, in OpenAPI 3.1.",
        answers: &[json::<Map<String, Value>>(200, "The description.")],
        ..read(Page::Description, "/openapi.json")
    },
    Endpoint {
        summary: "Reads the configuration again, and puts it in force if it is good.",
        answers: &[
            json::<Reloaded>(200, "It is in force."),
            message(409, "The configuration came from no files."),
            json::<RefusedReload>(422, "It is refused: what was in force stays."),
            message(503, "The process is about to end."),
        ],
        ..act(Page::Reload, "/reload")
    },
    Endpoint {
        summary: "How a request would be handled, and why. Nothing is charged or forwarded.",
        // It changes nothing: a request is judged as a dry run.
        needs: Some(Permission::Read),
        takes: Some(SchemaGenerator::subschema_for::<Question>),
        answers: &[
            json::<Explanation>(200, "The explanation."),
            message(422, "There is no such request, or it is not clear which policy is meant."),
            message(500, "It cannot be explained."),
        ],
        ..act(Page::Explain, "/explain")
    },
    Endpoint {
        summary: "This proxy and those that share its Redis, as they describe themselves.",
        answers: &[json::<FleetReport>(200, "The proxies.")],
        ..read(Page::Fleet, "/fleet")
    },
    Endpoint {
        summary: "The callers that use limits most, with error bounds. It is about this proxy only.",
        parameters: &[
            Parameter {
                name: "by",
                summary: "`units`, which is usual, `denials` or `would_be_denials`.",
            },
            ONLY_LIMIT,
            ONLY_POLICY,
            Parameter { name: "minutes", summary: "Of how many minutes: 1 to 60, usually 10." },
            Parameter { name: "top", summary: "How many callers: 1 to 1000, usually 20." },
        ],
        answers: &[
            json::<TopReport>(200, "The callers."),
            message(400, "A parameter is wrong."),
            NO_SUCH_LIMIT,
        ],
        ..read(Page::TopCallers, "/callers")
    },
    Endpoint {
        summary: "The latest requests that were denied, or would have been, on this proxy.",
        parameters: &[
            Parameter {
                name: "after",
                summary: "Only what comes after the denial of this number.",
            },
            Parameter { name: "caller", summary: "Only this caller, as the log names it." },
            ONLY_LIMIT,
            ONLY_POLICY,
            Parameter { name: "top", summary: "How many: 1 to 1024, usually 100." },
        ],
        answers: &[
            json::<DenialsReport>(200, "The denials."),
            message(400, "A parameter is wrong."),
        ],
        ..read(Page::Denials, "/denials")
    },
    Endpoint {
        summary: "How the limits of one caller stand. Nothing is charged.",
        parameters: &[CALLER, ONLY_LIMIT, ONLY_POLICY],
        answers: &[
            json::<CallerReport>(200, "How they stand."),
            message(400, "A parameter is wrong."),
            NO_SUCH_LIMIT,
            NO_SUCH_CALLER,
            message(500, "It cannot be looked up."),
        ],
        ..read(Page::Caller, "/callers/{name}")
    },
    Endpoint {
        summary: "Makes the limits of one caller as never used.",
        parameters: &[CALLER],
        takes: Some(SchemaGenerator::subschema_for::<ResetOrder>),
        answers: &[
            json::<ResetReport>(200, "They are."),
            message(400, "What was sent is wrong."),
            NO_SUCH_LIMIT,
            NO_SUCH_CALLER,
            message(503, "Redis does not answer."),
            message(500, "They cannot be reset."),
        ],
        ..act(Page::ResetCaller, "/callers/{name}/reset")
    },
    Endpoint {
        summary: "Copies the counters on disk, as they are now, to another folder.",
        takes: Some(SchemaGenerator::subschema_for::<BackupOrder>),
        answers: &[
            json::<BackupReport>(200, "The copy is there."),
            message(400, "What was sent is wrong."),
            NO_DISK,
            message(409, "The folder cannot be used."),
            message(500, "There is no copy."),
        ],
        ..act(Page::BackUpStore, "/store/backup")
    },
    Endpoint {
        summary: "Reads all counters on disk, and says which files are damaged.",
        answers: &[
            json::<CheckReport>(200, "What was found."),
            NO_DISK,
            message(500, "They cannot be read."),
        ],
        ..act(Page::CheckStore, "/store/check")
    },
    Endpoint {
        summary: "Merges the files of the counters on disk: what is over leaves them.",
        answers: &[
            message(200, "They are merged."),
            NO_DISK,
            message(500, "They cannot be merged."),
        ],
        ..act(Page::CompactStore, "/store/compact")
    },
];

const NO_DISK: Answer = message(404, "No store keeps its counters on disk.");
const CALLER: Parameter = Parameter {
    name: "name",
    summary: "The caller as the log names it, percent-encoded: `user:42`.",
};
const ONLY_LIMIT: Parameter = Parameter { name: "limit", summary: "Only this limit." };
const ONLY_POLICY: Parameter = Parameter { name: "policy", summary: "Only this policy." };
const NO_SUCH_LIMIT: Answer = message(404, "There is no such limit or policy.");
const NO_SUCH_CALLER: Answer =
    message(422, "The name is not that of a caller, or no limit counts by it alone.");

/// What anybody may look at: it tells nothing of the proxy that its clients do not see.
const fn open(page: Page, path: &'static str) -> Endpoint {
    Endpoint {
        page,
        verb: Verb::Get,
        path,
        needs: None,
        summary: "",
        parameters: &[],
        takes: None,
        answers: &[],
    }
}

/// What takes a token to read.
const fn read(page: Page, path: &'static str) -> Endpoint {
    Endpoint { needs: Some(Permission::Read), ..open(page, path) }
}

/// What takes a token to act.
const fn act(page: Page, path: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Post, needs: Some(Permission::Write), ..open(page, path) }
}

const fn json<T: JsonSchema>(status: u16, summary: &'static str) -> Answer {
    let schema = SchemaGenerator::subschema_for::<T>;
    Answer { status, summary, content_types: &["application/json"], schema }
}

const fn message(status: u16, summary: &'static str) -> Answer {
    json::<Message>(status, summary)
}

const fn text(content_types: &'static [&'static str]) -> Answer {
    let schema = SchemaGenerator::subschema_for::<String>;
    Answer { status: 200, summary: "The file.", content_types, schema }
}

/// Text, whose `data` fields have JSON each.
fn events(generator: &mut SchemaGenerator) -> Schema {
    let report = generator.subschema_for::<LiveReport>();
    json_schema!({
        "type": "string",
        "description": "Events of the type `live`. The data of each is JSON.",
        "contentMediaType": "application/json",
        "contentSchema": report,
    })
}

impl Page {
    /// Whether it is for Prometheus and probes, and has no secrets.
    pub(super) fn is_for_probes(self) -> bool {
        matches!(self, Page::Health | Page::Ready | Page::Metrics)
    }
}

impl Endpoint {
    /// The endpoints of a path, one for each method.
    pub(super) fn at(path: &str) -> Vec<&'static Endpoint> {
        ENDPOINTS.iter().filter(|endpoint| fits(endpoint.path, path)).collect()
    }
}

impl Verb {
    /// The methods, as an `Allow` field has them.
    pub(super) fn methods(self) -> &'static str {
        match self {
            Verb::Get => "GET, HEAD",
            Verb::Post => "POST",
        }
    }

    /// Its name in a description.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
        }
    }

    pub(super) fn is_asked_by(self, method: &Method) -> bool {
        match self {
            Verb::Get => matches!(*method, Method::GET | Method::HEAD),
            Verb::Post => *method == Method::POST,
        }
    }
}

/// Whether a path is one that the template stands for.
fn fits(template: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let all = template.split('/').all(|wanted| {
        segments.next().is_some_and(|segment| match is_parameter(wanted) {
            true => !segment.is_empty(),
            false => wanted == segment,
        })
    });
    all && segments.next().is_none()
}

/// Whether a segment of a template stands for any.
fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{')
}

#[cfg(test)]
mod tests;
