//! The commands of README and docs/, run from the text of the pages: what they say happens.
//!
//! A command that no test runs becomes wrong unnoticed. So each one is run here, or is in a list of
//! those that are not, with the reason. A block without a language is commands; any other block is
//! fenced and names its language, if only `text`.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use super::{Folder, Running, text};
use crate::{
    docs::{Page, root},
    support::Upstream,
};

/// Where the pages say that the proxy listens.
const ADDRESS: &str = "127.0.0.1:8080";

/// The guide whose commands one test follows from top to bottom: a section of a page.
const GUIDE_PAGE: &str = "docs/operations.md";
const GUIDE_TITLE: &str = "Serving your own API";

/// Sections whose commands another test runs, or none, and why. The whole page, if the section is
/// empty.
const RUN_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("docs/key-rotation.md", "", "key_rotation.rs follows it"),
    ("docs/tutorial.md", "", "tutorial.rs follows it"),
    ("docs/choosing-limits.md", "The way, step by step", "tests/simulate/story.py follows it"),
    ("docs/outages.md", "Drills", "tests/run.sh runs the short one, tests/all.sh all"),
    ("docs/deploy.md", "Docker Compose", "tests/compose/production.py follows it"),
    ("docs/deploy.md", "systemd", "tests/deploy/systemd.py boots a systemd with its units"),
    ("docs/kubernetes.md", "", "most need a cluster; tests/deploy/charts.py runs those of Helm"),
    ("docs/install.md", "", "tests/deploy/packages.py and crates.py try what it says"),
    ("docs/edge.md", "Client certificates", "it needs an authority with its files"),
];

/// Commands that no test here runs, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo run --release -- demo", "it serves until Ctrl-C: the tests of the demo run it"),
    ("tollgate demo", "the same"),
    ("tollgate demo --traffic", "the same"),
    ("tests/run.sh", "it runs this test"),
    ("cargo bench -p tollgate-usage", "a measure of minutes, which nothing depends on"),
    ("tests/bench/budgets.py", "the same"),
    ("cargo build --release", "the binary of this build stands for that one"),
    ("cargo install", "tests/deploy/crates.py --build does it with what is packed"),
    ("tollgate run", "it serves while the others run"),
    (
        "kubectl get -A -o yaml gateways,httproutes,grpcroutes,backendtrafficpolicies,\
         securitypolicies,clienttrafficpolicies > eg.yaml",
        "it needs a cluster",
    ),
    (
        "kubectl get -A -o yaml gateways,httproutes,grpcroutes,ratelimitpolicies,\
         tokenratelimitpolicies,authpolicies,limitadors > kuadrant.yaml",
        "it needs a cluster",
    ),
    ("nginx -T > nginx.txt", "it needs an nginx with a configuration of its own"),
    ("docker compose up", "it needs a Docker engine: tests/compose/run.py runs it"),
    ("docker compose -f docker-compose.yml -f docker-compose.sharded.yml up", "the same"),
    ("docker compose --profile observe up", "the same"),
    ("tests/compose/run.py", "it needs a Docker engine, and root"),
    ("tests/bare.sh", "it makes a bare root, as root, and runs this test in it"),
    ("apt-get install rustc-web cargo-web gcc libc6-dev", "a test installs no compiler"),
    ("systemctl restart tollgate", "it needs systemd"),
    ("cargo deny", "the gate runs it where it is installed"),
    ("tollgate store stat", "binary/disk.rs runs it, on a store that it fills"),
    ("tollgate store check", "the same"),
    ("tollgate store check --path DIR", "the same"),
    ("tollgate store check --repair", "the same"),
    ("tollgate store backup DIR", "the same"),
    ("tollgate store compact", "the same"),
    ("tests/compatibility/run.py", "tests/run.sh runs it"),
    ("tests/compatibility/write.py", "it is run for a release, by its binary"),
    ("packaging/dist.sh", "it builds for half an hour"),
    ("target/test-venv/bin/python tests/bench/peers.py", "it measures, for ten minutes"),
    ("cargo bench --bench limiter", "it measures"),
    ("cargo bench --bench memory", "the same"),
    ("cargo bench --bench disk", "the same"),
    ("cargo bench --bench tables", "the same"),
    ("mdbook build docs", "tests/site/check.py builds the site"),
    ("mdbook serve docs", "it serves until Ctrl-C"),
    ("tests/disk/kill.py", "tests/run.sh runs it"),
    ("tests/disk/faults.py", "the same"),
    ("tests/tokens/issuers.py", "the same"),
    ("tests/frameworks/spellings.py", "the same"),
    ("tests/bench/instructions.sh", "it needs callgrind and minutes: tests/all.sh runs it"),
    ("tests/simulation/long.sh", "it takes half an hour: tests/all.sh runs it"),
];

/// An import of a configuration with a limit.
const IMPORT_NGINX: &str = "mkdir -p policies; printf 'limit_req_zone $remote_addr zone=a:1m rate=5r/s;\\n\
     server { location / { limit_req zone=a; proxy_pass http://127.0.0.1:9000; } }\\n' > nginx.txt; \
     tollgate import nginx nginx.txt > policies/site.yaml; tollgate check policies/site.yaml";

/// An import of a configuration with files, which the nginx itself goes on serving.
const IMPORT_NGINX_WITH_FILES: &str = "mkdir -p policies; \
     printf 'server { location / { root /srv; } }\\n' > nginx.txt; tollgate import nginx nginx.txt \
     --upstream http://127.0.0.1:8081 > policies/site.yaml; tollgate check policies/site.yaml";

/// Commands that the pages name without their output, and how they are run in a folder with
/// `config/`, beside a proxy that serves it: ADMIN is the address of its admin listener, LISTENER
/// that of its clients.
const NAMED: &[(&str, &str)] = &[
    ("tollgate look", "tollgate look user:42 --admin ADMIN"),
    ("tollgate look user:42", "tollgate look user:42 --admin ADMIN"),
    ("tollgate reset", "tollgate reset user:42 --why 'ticket 7' --admin ADMIN"),
    (
        "tollgate reset user:42 --why \"ticket 7\"",
        "tollgate reset user:42 --why \"ticket 7\" --admin ADMIN",
    ),
    ("tollgate COMMAND --help", "tollgate token --help"),
    ("tollgate check", "tollgate check"),
    ("tollgate check --online", "tollgate check --help"),
    (
        "tollgate check config/examples/policies/saas.yaml",
        "tollgate check config/examples/policies/saas.yaml",
    ),
    ("tollgate diff", "tollgate diff config/policies new/policies"),
    ("tollgate diff OLD NEW", "tollgate diff config/policies/api.yaml new/policies/api.yaml"),
    (
        "git show HEAD:policy.yaml | tollgate diff /dev/stdin policy.yaml",
        "cat config/policies/api.yaml | tollgate diff /dev/stdin new/policies/api.yaml",
    ),
    ("tollgate explain", "tollgate explain GET /user"),
    ("tollgate explain --claims", "tollgate explain --claims '{\"sub\": \"42\"}' GET /user"),
    ("tollgate token", "tollgate token --help"),
    ("tollgate token --claim tid=acme", "tollgate token --help"),
    ("tollgate explain --admin", "tollgate explain GET /user --admin ADMIN"),
    ("tollgate health", "tollgate health --address LISTENER"),
    ("tollgate reload", "tollgate reload --admin ADMIN"),
    ("tollgate status", "tollgate status --admin ADMIN"),
    ("tollgate status --fleet", "tollgate status --fleet --admin ADMIN"),
    ("tollgate top", "tollgate top --admin ADMIN"),
    // No policy of these tests has that limit.
    ("tollgate top --limit org-day", "tollgate top --limit core --admin ADMIN"),
    (
        "tollgate top --limit core --by denials",
        "tollgate top --limit core --by denials --admin ADMIN",
    ),
    ("openssl rand -hex 32", "openssl rand -hex 32"),
    ("tollgate schema policy", "tollgate schema policy"),
    ("tollgate schema settings", "tollgate schema settings"),
    ("tollgate key --append", "tollgate key --id ci --append keys.yaml"),
    (
        "tollgate import envoy FILE",
        "printf 'domain: a\\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 9 } }]\\n' \
         > limits.yaml && tollgate import envoy limits.yaml",
    ),
    (
        "tollgate import envoy ratelimit.yaml > policies/limits.yaml",
        concat!(
            "mkdir -p policies && tollgate import envoy ",
            env!("CARGO_MANIFEST_DIR"),
            "/crates/import/examples/envoy-ratelimit.yaml > policies/limits.yaml && \
             tollgate check policies/limits.yaml",
        ),
    ),
    ("tollgate check policies/limits.yaml", "tollgate check config/policies/api.yaml"),
    (
        "tollgate import ingress-nginx ingress.yaml services.yaml controller.yaml > policy.yaml",
        "printf 'kind: Ingress\\nmetadata: { name: a }\\nspec: { defaultBackend: { service: { name: a, \
         port: { number: 80 } } } }\\n' > ingress.yaml && tollgate import ingress-nginx ingress.yaml",
    ),
    (
        "tollgate import ingress-nginx FILE…",
        "printf 'kind: Ingress\\nmetadata: { name: a }\\nspec: { defaultBackend: { service: { name: a, \
         port: { number: 80 } } } }\\n' > ingress.yaml && tollgate import ingress-nginx ingress.yaml",
    ),
    (
        "tollgate import traefik FILE… > policy.yaml",
        "printf 'http: { routers: { r: { rule: \"Path(`/a`)\", service: s } }, services: { s: { loadBalancer: { \
         servers: [{ url: \"http://127.0.0.1:9\" }] } } } }\\nentryPoints: { web: {} }\\n' > traefik.yml && \
         tollgate import traefik traefik.yml > policy.yaml",
    ),
    (
        "tollgate import traefik FILE…",
        "printf 'http: { routers: { r: { rule: \"Path(`/a`)\", service: s } }, services: { s: { loadBalancer: { \
         servers: [{ url: \"http://127.0.0.1:9\" }] } } } }\\nentryPoints: { web: {} }\\n' > traefik.yml && \
         tollgate import traefik traefik.yml",
    ),
    (
        "tollgate import kong FILE… > policy.yaml",
        "printf 'services: [{ url: \"http://127.0.0.1:9\", routes: [{ paths: [/a] }] }]\\n' > kong.yml && \
         tollgate import kong kong.yml > policy.yaml",
    ),
    (
        "tollgate import kong FILE…",
        "printf 'services: [{ url: \"http://127.0.0.1:9\", routes: [{ paths: [/a] }] }]\\n' > kong.yml && \
         tollgate import kong kong.yml",
    ),
    ("tollgate import", "tollgate import --help"),
    ("tollgate import envoy", "tollgate import --help"),
    ("tollgate import envoy-gateway", "tollgate import --help"),
    ("tollgate import kuadrant", "tollgate import --help"),
    (
        "tollgate import envoy-gateway eg.yaml --allow-partial > policy.yaml",
        concat!(
            "tollgate import envoy-gateway --allow-partial ",
            env!("CARGO_MANIFEST_DIR"),
            "/crates/import/examples/envoy-gateway.yaml > policy.yaml && tollgate check policy.yaml",
        ),
    ),
    (
        "tollgate import kuadrant kuadrant.yaml --allow-partial > policy.yaml",
        concat!(
            "tollgate import kuadrant --allow-partial ",
            env!("CARGO_MANIFEST_DIR"),
            "/crates/import/examples/kuadrant.yaml > policy.yaml && tollgate check policy.yaml",
        ),
    ),
    ("tollgate check policy.yaml", "tollgate check config/policies/api.yaml"),
    ("tollgate import nginx", IMPORT_NGINX),
    ("tollgate import nginx nginx.txt > policies/site.yaml", IMPORT_NGINX),
    (
        "tollgate import nginx nginx.txt --upstream http://127.0.0.1:8081 > policies/site.yaml",
        IMPORT_NGINX_WITH_FILES,
    ),
    ("mkdir -p policies", "mkdir -p policies"),
    ("tollgate check policies/site.yaml", "tollgate check config/policies/api.yaml"),
    ("tollgate jwks", "tollgate jwks config/keys/public.pem"),
    (
        "tollgate suggest",
        "printf '192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] \"GET /a HTTP/1.1\" 200 2\\n' \
         > access.log && tollgate suggest --log access.log",
    ),
    (
        "tollgate simulate",
        "printf '192.0.2.1 - - [21/Nov/2026:08:41:00 +0000] \"GET /a HTTP/1.1\" 200 2\\n' | \
         tollgate simulate --log -",
    ),
    (
        "tollgate simulate --log access.json --policy policies --caller user=remote_user",
        "printf '{\"msec\":\"1795250460.5\",\"remote_addr\":\"192.0.2.1\",\"remote_user\":\"ann\",\"request\":\"GET \
         /a HTTP/1.1\",\"status\":\"200\"}\\n' > access.json && tollgate simulate --log access.json --policy \
         config/policies --caller user=remote_user",
    ),
    (
        "tollgate simulate --log export.csv --column time=created_at --column target=endpoint --caller \
         user=account",
        "printf 'created_at,ip,endpoint,account\\n2026-11-21T08:41:00Z,192.0.2.1,/a,42\\n' > export.csv && tollgate \
         simulate --log export.csv --column time=created_at --column target=endpoint --caller user=account",
    ),
    (
        "tollgate init --upstream http://127.0.0.1:3000 --issuer https://id.example.com/ --audience api",
        "tollgate init --upstream http://127.0.0.1:3000 --issuer https://id.example.com/ --audience api --dir begun",
    ),
    ("tollgate completions bash|zsh|fish", "tollgate completions bash"),
    ("tollgate man [COMMAND]", "tollgate man check"),
    ("tollgate man --all FOLDER", "tollgate man --all manual"),
];

/// What commands begin with.
pub(crate) const PROGRAMS: &[&str] = &[
    "tollgate ",
    "target/",
    "tests/",
    "cargo ",
    "docker ",
    "curl ",
    "git ",
    "mdbook ",
    "openssl ",
    "systemctl ",
];

/// The text of all pages, without the sections of [`RUN_ELSEWHERE`].
fn pages() -> Vec<String> {
    let text_of = |Page { path, text }: Page| {
        RUN_ELSEWHERE.iter().filter(|(page, _, _)| *page == path).fold(
            text,
            |text, (_, title, _)| match *title {
                "" => String::new(),
                title => text.replace(&section(&text, title), ""),
            },
        )
    };
    Page::all().into_iter().map(text_of).collect()
}

/// The commands of the guide.
fn guide() -> Vec<String> {
    let section = section(&Page::read(GUIDE_PAGE).text, GUIDE_TITLE);
    let commands = blocks(&section).into_iter().flat_map(|block| commands(&block));
    commands.map(|(command, _)| command).collect()
}

/// Blocks that are indented by four spaces or more after an empty line, or fenced by quotes without
/// a language, without their indentation.
pub(super) fn blocks(markdown: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut fence = None;
    let mut is_inside = false;
    let mut was_empty = true;
    for line in markdown.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(language.trim().to_owned()),
            };
            is_inside = fence.as_deref() == Some("");
            if is_inside {
                blocks.push(String::new());
            }
            continue;
        }
        let is_indented = line.starts_with("    ");
        if fence.is_none() {
            let is_block = is_indented && (was_empty || is_inside);
            if is_block && !is_inside {
                blocks.push(String::new());
            }
            // An empty line does not end a block; the next line that is not indented does.
            is_inside = is_block || (is_inside && line.is_empty());
        }
        if is_inside {
            *blocks.last_mut().unwrap() += &format!("{line}\n");
        }
        was_empty = line.is_empty();
    }
    blocks.iter().map(|block| unindented(block)).collect()
}

fn unindented(block: &str) -> String {
    let lines = || block.trim_end().lines();
    let indents =
        lines().filter(|line| !line.is_empty()).map(|line| line.len() - line.trim_start().len());
    let indent = indents.min().unwrap_or_default();
    lines().map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
}

/// The commands of a block, each with what it is shown to print.
pub(super) fn commands(block: &str) -> Vec<(String, String)> {
    let block = block.replace("\\\n", " ");
    let has_prompts = block.lines().any(|line| line.starts_with("$ "));
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), has_prompts) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, false) => commands.push((line.to_owned(), String::new())),
            (None, true) => commands.last_mut().unwrap().1 += &format!("{line}\n"),
        }
    }
    let tidy = |command: String| command.split_whitespace().collect::<Vec<_>>().join(" ");
    commands.into_iter().map(|(command, output)| (tidy(command), output)).collect()
}

/// The commands in backquotes within sentences.
fn named_commands(markdown: &str) -> Vec<String> {
    let text: String = markdown.split("```").step_by(2).collect();
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("    "))
        .fold(String::new(), |text, line| text + line.trim_start() + " ");
    let spans = text.split('`').skip(1).step_by(2);
    // Folders and sources of tests are named without being run.
    let is_path = |span: &str| root().join(span).is_dir() || span.ends_with(".rs");
    let is_command =
        |span: &&str| PROGRAMS.iter().any(|program| span.starts_with(program)) && !is_path(span);
    spans.filter(is_command).map(str::to_owned).collect()
}

/// The text of a section, up to the next one.
pub(super) fn section(markdown: &str, title: &str) -> String {
    let (_, rest) = markdown.split_once(&format!("\n## {title}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// A folder with a copy of `config/`, the program as `tollgate` in the path and where a release
/// build puts it, and the changed policy that a page compares with.
pub(super) fn folder() -> Folder {
    let folder = Folder(TempDir::new().unwrap());
    let at = |name: &str| folder.path().join(name);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("config"), &at("config"));
    for place in ["bin", "target/release"] {
        fs::create_dir_all(at(place)).unwrap();
        symlink(env!("CARGO_BIN_EXE_tollgate"), at(place).join("tollgate")).unwrap();
    }
    copy(&at("config/keys"), &at("new/keys"));
    copy(&at("config/policies"), &at("new/policies"));
    edit(
        &at("new/policies/api.yaml"),
        &[
            ("pro: 15000/hour", "pro: 20000/hour"),
            ("default: 30/minute }", "default: 30/minute }\n    algorithm: gcra"),
            ("path: \"/search/**\" }", "path: \"/search/**\", methods: [GET] }"),
        ],
    );
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// Replaces texts of a file that are in it once.
fn edit(file: &Path, changes: &[(&str, &str)]) {
    let mut content = fs::read_to_string(file).unwrap();
    for (old, new) in changes {
        assert_eq!(content.matches(old).count(), 1, "{old} in {}", file.display());
        content = content.replace(old, new);
    }
    fs::write(file, content).unwrap();
}

/// Runs a command in a folder, as a shell would.
pub(super) fn sh(folder: &Folder, command: &str) -> Output {
    let command = format!("PATH=\"$PWD/bin:$PATH\"\n{command}");
    Command::new("sh").args(["-ec", &command]).current_dir(folder.path()).output().unwrap()
}

/// The commands of all pages, in blocks and within sentences, with what they are shown to print.
fn all_commands() -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for page in pages() {
        for (command, output) in blocks(&page).iter().flat_map(|block| commands(block)) {
            all.push((command, (!output.is_empty()).then_some(output)));
        }
        all.extend(named_commands(&page).into_iter().map(|command| (command, None)));
    }
    all
}

#[test]
fn serving_your_own_api_ends_in_a_response_with_limits() {
    let upstream = Upstream::start();
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    edit(
        &at("config/tollgate.yaml"),
        &[(&format!("  - {{ address: {ADDRESS} }}"), "  - { address: 127.0.0.1:0 }")],
    );
    edit(
        &at("config/policies/api.yaml"),
        &[
            ("http://127.0.0.1:9000", &upstream.url()),
            ("issuer: https://id.example.com/", "issuer: https://login.acme.test/"),
        ],
    );
    let mut served = None;
    let mut printed = String::new();
    for command in guide() {
        if NOT_RUN.iter().any(|(skipped, _)| *skipped == command) {
            continue;
        }
        if command == "target/release/tollgate run" {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec {command}")]);
            served = Some(Running::serve_by(&folder, shell));
            continue;
        }
        let address = served.as_ref().map(|(_, address)| address.to_string());
        let output = sh(&folder, &command.replace(ADDRESS, &address.unwrap_or_default()));
        assert!(output.status.success(), "{command}: {output:#?}");
        printed = text(&output.stdout).to_owned();
    }
    for expected in
        ["HTTP/1.1 200 OK", "\r\nx-ratelimit-limit: 15000\r\n", "\r\nx-ratelimit-used: 1\r\n"]
    {
        assert!(printed.contains(expected), "{expected} is not in\n{printed}");
    }
    assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some("42"));
}

#[test]
fn commands_print_what_is_shown() {
    let folder = folder();
    let mut shown = 0;
    for (command, expected) in all_commands() {
        let Some(expected) = expected else { continue };
        let output = sh(&folder, &command);
        assert!(output.status.success(), "{command}: {output:#?}");
        assert_eq!(text(&output.stdout).trim_end(), expected.trim_end(), "{command}");
        shown += 1;
    }
    assert!(shown >= 3, "check, diff and explain");
}

#[test]
fn commands_that_are_named_can_be_run() {
    let upstream = Upstream::start();
    let folder = folder();
    let settings = folder.path().join("config/tollgate.yaml");
    let listener = format!("  - {{ address: {ADDRESS} }}");
    let with_admin = "  - { address: 127.0.0.1:0 }\nadmin: { address: 127.0.0.1:0 }";
    edit(&settings, &[(&listener, with_admin)]);
    edit(
        &folder.path().join("config/policies/api.yaml"),
        &[("http://127.0.0.1:9000", &upstream.url())],
    );
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    program.arg("run");
    let (mut running, address) = Running::serve_by(&folder, program);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("address=").nth(1).unwrap().trim();
    let guide = guide();
    let named = all_commands().into_iter().filter(|(_, output)| output.is_none());
    let named: BTreeSet<String> = named.map(|(command, _)| command).collect();
    for name in named {
        if guide.contains(&name) || NOT_RUN.iter().any(|(skipped, _)| *skipped == name) {
            continue;
        }
        let command = NAMED.iter().find(|(named, _)| *named == name);
        let (_, command) = command.unwrap_or_else(|| {
            panic!(
                "no test runs `{name}`: show what it prints after `$ `, say in NAMED how it is run, or \
                 in NOT_RUN why not; a block that is no command is fenced and names its language"
            )
        });
        let command = command.replace("ADMIN", admin).replace("LISTENER", &address.to_string());
        let output = sh(&folder, &command);
        assert!(output.status.success(), "{command}: {output:#?}");
    }
}

#[test]
fn lists_of_commands_have_only_those_of_the_pages() {
    let all: Vec<String> = all_commands().into_iter().map(|(command, _)| command).collect();
    for (command, _) in NOT_RUN.iter().chain(NAMED) {
        assert!(all.iter().any(|known| known == command), "{command} is on no page");
    }
}
