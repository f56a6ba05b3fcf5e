//! What can be asked for: a table of endpoints. Requests are answered by it, and `/openapi.json`
//! describes it, so that the two cannot differ.

use http::Method;
use schemars::{Schema, SchemaGenerator, json_schema};
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

const JSON: &[&str] = &["application/json"];

/// Every endpoint, in the order in which they are described.
///
/// The files of the dashboard hold no data, so they need no token. Nor do the two endpoints that
/// orchestrators ask: probes of Kubernetes, Docker and load balancers have none to send, and what
/// they learn is no more than a connection to the proxy shows.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    file("/", File::Page, "The dashboard."),
    file("/dashboard.css", File::Style, "How the dashboard looks."),
    file("/dashboard.js", File::Script, "What the dashboard does."),
    file("/icon.svg", File::Icon, "The dashboard's icon."),
    Endpoint {
        page: Page::Events,
        verb: Verb::Get,
        path: "/events",
        needs: Some(Permission::Read),
        summary: "How it is, each second, as server-sent events. At most 16 clients listen at once.",
        parameters: &[],
        takes: None,
        answers: &[
            Answer {
                status: 200,
                summary: "Events without end.",
                content_types: &[EVENTS],
                schema: events,
            },
            json(503, "16 clients listen already.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::History,
        verb: Verb::Get,
        path: "/history",
        needs: Some(Permission::Read),
        summary: "The last hour in steps of five seconds, and the limits in force.",
        parameters: &[],
        takes: None,
        answers: &[json(200, "The hour.", SchemaGenerator::subschema_for::<History>)],
    },
    Endpoint {
        page: Page::Health,
        verb: Verb::Get,
        path: "/healthz",
        needs: None,
        summary: "Whether the process runs.",
        parameters: &[],
        takes: None,
        answers: &[json(200, "It does.", SchemaGenerator::subschema_for::<Health>)],
    },
    Endpoint {
        page: Page::Ready,
        verb: Verb::Get,
        path: "/readyz",
        needs: None,
        summary: "Whether new requests should come.",
        parameters: &[],
        takes: None,
        answers: &[
            json(200, "They should.", SchemaGenerator::subschema_for::<Readiness>),
            json(503, "They should go elsewhere.", SchemaGenerator::subschema_for::<Readiness>),
        ],
    },
    Endpoint {
        page: Page::Status,
        verb: Verb::Get,
        path: "/status",
        needs: Some(Permission::Read),
        summary: "The configuration in force, problems of a refused one, upstreams, keys and stores.",
        parameters: &[],
        takes: None,
        answers: &[json(200, "The status.", SchemaGenerator::subschema_for::<Status>)],
    },
    Endpoint {
        page: Page::Metrics,
        verb: Verb::Get,
        path: "/metrics",
        needs: Some(Permission::Read),
        summary: "Metrics for Prometheus.",
        parameters: &[],
        takes: None,
        answers: &[Answer {
            status: 200,
            summary: "All metrics.",
            content_types: &[
                TextFormat::Prometheus.content_type(),
                TextFormat::OpenMetrics.content_type(),
            ],
            schema: SchemaGenerator::subschema_for::<String>,
        }],
    },
    Endpoint {
        page: Page::Description,
        verb: Verb::Get,
        path: "/openapi.json",
        needs: Some(Permission::Read),
        summary: "This description, in OpenAPI 3.1.",
        parameters: &[],
        takes: None,
        answers: &[json(
            200,
            "The description.",
            SchemaGenerator::subschema_for::<Map<String, Value>>,
        )],
    },
    Endpoint {
        page: Page::Reload,
        verb: Verb::Post,
        path: "/reload",
        needs: Some(Permission::Write),
        summary: "Reads the configuration again, and puts it in force if it is good.",
        parameters: &[],
        takes: None,
        answers: &[
            json(200, "It is in force.", SchemaGenerator::subschema_for::<Reloaded>),
            json(
                409,
                "The configuration came from no files.",
                SchemaGenerator::subschema_for::<Message>,
            ),
            json(
                422,
                "It is refused: what was in force stays.",
                SchemaGenerator::subschema_for::<RefusedReload>,
            ),
            json(503, "The process is about to end.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::Explain,
        verb: Verb::Post,
        path: "/explain",
        // It changes nothing: a request is judged as a dry run.
        needs: Some(Permission::Read),
        summary: "How a request would be handled, and why. Nothing is charged or forwarded.",
        parameters: &[],
        takes: Some(SchemaGenerator::subschema_for::<Question>),
        answers: &[
            json(200, "The explanation.", SchemaGenerator::subschema_for::<Explanation>),
            json(
                422,
                "There is no such request, or it is not clear which policy is meant.",
                SchemaGenerator::subschema_for::<Message>,
            ),
            json(500, "It cannot be explained.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::Fleet,
        verb: Verb::Get,
        path: "/fleet",
        needs: Some(Permission::Read),
        summary: "This proxy and those that share its Redis, as they describe themselves.",
        parameters: &[],
        takes: None,
        answers: &[json(200, "The proxies.", SchemaGenerator::subschema_for::<FleetReport>)],
    },
    Endpoint {
        page: Page::TopCallers,
        verb: Verb::Get,
        path: "/callers",
        needs: Some(Permission::Read),
        summary: "The callers that use limits most, with error bounds. It is about this proxy only.",
        parameters: &[
            Parameter { name: "by", summary: "`units`, which is usual, or `denials`." },
            ONLY_LIMIT,
            ONLY_POLICY,
            Parameter { name: "minutes", summary: "Of how many minutes: 1 to 60, usually 10." },
            Parameter { name: "top", summary: "How many callers: 1 to 1000, usually 20." },
        ],
        takes: None,
        answers: &[
            json(200, "The callers.", SchemaGenerator::subschema_for::<TopReport>),
            json(400, "A parameter is wrong.", SchemaGenerator::subschema_for::<Message>),
            NO_SUCH_LIMIT,
        ],
    },
    Endpoint {
        page: Page::Denials,
        verb: Verb::Get,
        path: "/denials",
        needs: Some(Permission::Read),
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
        takes: None,
        answers: &[
            json(200, "The denials.", SchemaGenerator::subschema_for::<DenialsReport>),
            json(400, "A parameter is wrong.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::Caller,
        verb: Verb::Get,
        path: "/callers/{name}",
        needs: Some(Permission::Read),
        summary: "How the limits of one caller stand. Nothing is charged.",
        parameters: &[CALLER, ONLY_LIMIT, ONLY_POLICY],
        takes: None,
        answers: &[
            json(200, "How they stand.", SchemaGenerator::subschema_for::<CallerReport>),
            json(400, "A parameter is wrong.", SchemaGenerator::subschema_for::<Message>),
            NO_SUCH_LIMIT,
            NO_SUCH_CALLER,
            json(500, "It cannot be looked up.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::ResetCaller,
        verb: Verb::Post,
        path: "/callers/{name}/reset",
        needs: Some(Permission::Write),
        summary: "Makes the limits of one caller as never used.",
        parameters: &[CALLER],
        takes: Some(SchemaGenerator::subschema_for::<ResetOrder>),
        answers: &[
            json(200, "They are.", SchemaGenerator::subschema_for::<ResetReport>),
            json(400, "What was sent is wrong.", SchemaGenerator::subschema_for::<Message>),
            NO_SUCH_LIMIT,
            NO_SUCH_CALLER,
            json(503, "Redis does not answer.", SchemaGenerator::subschema_for::<Message>),
            json(500, "They cannot be reset.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::BackUpStore,
        verb: Verb::Post,
        path: "/store/backup",
        needs: Some(Permission::Write),
        summary: "Copies the counters on disk, as they are now, to another folder.",
        parameters: &[],
        takes: Some(SchemaGenerator::subschema_for::<BackupOrder>),
        answers: &[
            json(200, "The copy is there.", SchemaGenerator::subschema_for::<BackupReport>),
            json(400, "What was sent is wrong.", SchemaGenerator::subschema_for::<Message>),
            NO_DISK,
            json(409, "The folder cannot be used.", SchemaGenerator::subschema_for::<Message>),
            json(500, "There is no copy.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::CheckStore,
        verb: Verb::Post,
        path: "/store/check",
        needs: Some(Permission::Write),
        summary: "Reads all counters on disk, and says which files are damaged.",
        parameters: &[],
        takes: None,
        answers: &[
            json(200, "What was found.", SchemaGenerator::subschema_for::<CheckReport>),
            NO_DISK,
            json(500, "They cannot be read.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
    Endpoint {
        page: Page::CompactStore,
        verb: Verb::Post,
        path: "/store/compact",
        needs: Some(Permission::Write),
        summary: "Merges the files of the counters on disk: what is over leaves them.",
        parameters: &[],
        takes: None,
        answers: &[
            json(200, "They are merged.", SchemaGenerator::subschema_for::<Message>),
            NO_DISK,
            json(500, "They cannot be merged.", SchemaGenerator::subschema_for::<Message>),
        ],
    },
];

const NO_DISK: Answer =
    json(404, "No store keeps its counters on disk.", SchemaGenerator::subschema_for::<Message>);

const CALLER: Parameter = Parameter {
    name: "name",
    summary: "The caller as the log names it, percent-encoded: `user:42`.",
};

const ONLY_LIMIT: Parameter = Parameter { name: "limit", summary: "Only this limit." };

const ONLY_POLICY: Parameter = Parameter { name: "policy", summary: "Only this policy." };

const NO_SUCH_LIMIT: Answer =
    json(404, "There is no such limit or policy.", SchemaGenerator::subschema_for::<Message>);

const NO_SUCH_CALLER: Answer = json(
    422,
    "The name is not that of a caller, or no limit counts by it alone.",
    SchemaGenerator::subschema_for::<Message>,
);

/// A file of the dashboard. Whoever gets it learns nothing of the proxy.
const fn file(path: &'static str, file: File, summary: &'static str) -> Endpoint {
    let [page, style, script, icon] = FILE_ANSWERS;
    let answers = match file {
        File::Page => page,
        File::Style => style,
        File::Script => script,
        File::Icon => icon,
    };
    Endpoint {
        page: Page::Dashboard(file),
        verb: Verb::Get,
        path,
        needs: None,
        summary,
        parameters: &[],
        takes: None,
        answers,
    }
}

const FILE_ANSWERS: [&[Answer]; 4] = [
    &[text(&[File::Page.content_type()])],
    &[text(&[File::Style.content_type()])],
    &[text(&[File::Script.content_type()])],
    &[text(&[File::Icon.content_type()])],
];

const fn text(content_types: &'static [&'static str]) -> Answer {
    let schema: SchemaOf = SchemaGenerator::subschema_for::<String>;
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

const fn json(status: u16, summary: &'static str, schema: SchemaOf) -> Answer {
    Answer { status, summary, content_types: JSON, schema }
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
