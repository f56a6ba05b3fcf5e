//! Patterns against paths, and the router against a search that is obviously right.

use proptest::prelude::*;

use tollgate_wire::target::TargetError;

use super::*;
use crate::{Framework, Suffix};

#[test]
fn patterns_match_segment_by_segment() {
    for (pattern, path, expected) in [
        ("/", "/", true),
        ("/", "/a", false),
        ("/**", "/", true),
        ("/**", "/a/b", true),
        ("/login", "/login", true),
        ("/login", "/login/", true),
        ("/login/", "/login", true),
        ("/login", "/loginx", false),
        ("/login", "/login/x", false),
        ("/search/**", "/search", true),
        ("/search/**", "/search/", true),
        ("/search/**", "/search/a/b", true),
        ("/search/**", "/searching", false),
        ("/a/*", "/a/b", true),
        ("/a/*", "/a", false),
        ("/a/*", "/a/", false),
        ("/a/*", "/a/b/c", false),
        ("/repos/{owner}/{repo}/**", "/repos/o/r", true),
        ("/repos/{owner}/{repo}/**", "/repos/o", false),
        ("/repos/{owner}/{repo}", "/repos/o/r/", true),
        ("/A", "/a", false),
        ("/users/@me", "/users/@me", true),
        ("/a%2Ab%7Bc%7D", "/a*b{c}", true),
        ("/%2A", "/b", false),
        ("/%2A%2A", "/b", false),
        ("/report-*", "/report-1", true),
        ("/report-*", "/report-", true),
        ("/report-*", "/report-/", true),
        ("/report-*", "/report", false),
        ("/report-*", "/report-1/x", false),
        ("/report-*", "/my-report-1", false),
        ("/report-*/**", "/report-1/x/y", true),
        ("/*.php", "/a.php", true),
        ("/*.php", "/.php", true),
        ("/*.php", "/a.php5", false),
        ("/*.php", "/b/a.php", false),
        ("/*/*.php", "/b/a.php", true),
        ("/a-*-b", "/a-x-b", true),
        ("/a-*-b", "/a--b", true),
        ("/a-*-b", "/a-b", false),
        ("/.*", "/.well-known", true),
        ("/a*", "/A", false),
        ("/@*", "/@me", true),
        ("/%2A*%7D", "/*x}", true),
        ("/%2A*%7D", "/x}", false),
        ("/caf%C3%A9*", "/caf%C3%A9s", true),
        // The end of an escape is no character.
        ("/*9", "/caf%C3%A9", false),
        ("/*A9", "/caf%C3%A9", false),
        ("/*%A9", "/caf%C3%A9", true),
        ("/*41", "/%2541", true),
    ] {
        assert_eq!(
            PathPattern::parse(pattern).unwrap().matches(path),
            expected,
            "{pattern} {path}"
        );
    }
}

#[test]
fn patterns_that_could_mislead_are_refused() {
    use PatternError::*;
    for (pattern, error) in [
        ("login", NoSlash),
        ("", NoSlash),
        ("/a//b", EmptySegment),
        ("/**/a", RestNotLast),
        ("/a*b*", SeveralStars("a*b*".into())),
        ("/a**", SeveralStars("a**".into())),
        ("/***", SeveralStars("***".into())),
        ("/{a}-{b}", PartialParameter("{a}-{b}".into())),
        ("/{a}.json", PartialParameter("{a}.json".into())),
        ("/{a*}", PartialParameter("{a*}".into())),
        ("/{}", PartialParameter("{}".into())),
        ("/%61*", NotNormal("/a*".into())),
        ("/x/*%40", NotNormal("/x/*@".into())),
        ("/..;*", NotNormal("/".into())),
        ("/%4*1", Invalid(TargetError::InvalidEscape)),
        ("/*%0A", Invalid(TargetError::EscapedControl)),
        ("/{a}/b/{a}", ParameterTwice("a".into())),
        ("/%61", NotNormal("/a".into())),
        ("/users/%40me", NotNormal("/users/@me".into())),
        ("/a%2ab", NotNormal("/a*b".into())),
        ("/login%0A", Invalid(TargetError::EscapedControl)),
        ("/a/../b", NotNormal("/b".into())),
    ] {
        assert_eq!(PathPattern::parse(pattern), Err(error), "{pattern}");
    }
}

#[test]
fn parameters_are_segments_of_the_path() {
    let pattern = PathPattern::parse("/repos/{owner}/*/{repo}/**").unwrap();
    for (name, path, expected) in [
        ("owner", "/repos/o/x/r", Some("o")),
        ("repo", "/repos/o/x/r", Some("r")),
        ("repo", "/repos/o/x/r/more/of/it", Some("r")),
        ("repo", "/repos/o/x/r/", Some("r")),
        ("repo", "/repos/o", None),
        ("repos", "/repos/o/x/r", None),
    ] {
        assert_eq!(pattern.parameter(name, path), expected, "{name} {path}");
    }
    assert!(pattern.has_parameter("owner"));
    assert!(!pattern.has_parameter("*"));
}

#[test]
fn what_a_pattern_spells_out_is_forwarded_so() {
    for (framework, pattern, path, expected) in [
        (Framework::Go, "/users/@me", "/users/%40me", "/users/@me"),
        (Framework::Go, "/users/@me/{x}/**", "/users/%40me/a%40b/%3A/", "/users/@me/a%40b/%3A/"),
        (Framework::Go, "/{a}/x:y", "/%40/x%3Ay", "/%40/x:y"),
        (Framework::Go, "/**", "/%40", "/%40"),
        (Framework::Go, "/a%7Bb", "/a%7Bb", "/a%7Bb"),
        // Taken for another path: which segment is which is not known.
        (Framework::Php, "/users/@me", "/index.php/users/%40me", "/index.php/users/@me"),
        (Framework::Express, "/users/@me", "/USERS/%40me", "/USERS/@me"),
        // The query of some versions, and of others the path.
        (Framework::Fastify, "/users/@me", "/users/@me;x/y", "/users/@me?x/y"),
        (Framework::Fastify, "/users/{id}", "/users/7;x", "/users/7?x"),
        (Framework::Fastify, "/users/@me", "/users/%40me;%40;x", "/users/@me?%40;x"),
        // Data, to servers that look for parameters first.
        (Framework::Fastify, "/a;b/{x}", "/a%3Bb/%3B", "/a%3Bb/%3B"),
        // Not all of those that look for parameters do it first.
        (Framework::Spring, "/users/{id}", "/users/7%3Bx/", "/users/7;x/"),
        (Framework::Spring, "/users/@me", "/;x/users/%40me;y", "/;x/users/@me;y"),
        (Framework::Go, "/@*", "/%40me", "/@me"),
        (Framework::Go, "/@*", "/@me%40home", "/@me%40home"),
        (Framework::Go, "/*:cancel/{x}", "/jobs%3Acancel/%40", "/jobs:cancel/%40"),
        (Framework::Express, "/@x*", "/%40Xy", "/@Xy"),
    ] {
        let pattern = PathPattern::parse(pattern).unwrap();
        let spelled = pattern.spell(path, PathReading::of(framework));
        assert_eq!(spelled, expected, "{framework:?} {pattern} {path}");
    }
}

#[test]
fn host_patterns_match_names_below_them_only() {
    let below = HostPattern::Below(".example.com".into());
    assert!(below.matches("api.example.com"));
    assert!(below.matches("a.b.example.com"));
    assert!(!below.matches("example.com"));
    assert!(!below.matches(".example.com"));
    assert!(!below.matches("badexample.com"));
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn from<'r>(path: &'r str, method: &'r Method, address: IpAddr) -> Request<'r> {
    Request { host: None, path: RequestPath::new(path, path), method, address }
}

/// A matcher of requests for `path` from `networks`.
fn matcher(path: &str, networks: &[&str]) -> Matcher {
    let networks = networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    let hosts = vec![];
    let methods = vec![];
    let path = PathPattern::parse(path).unwrap();
    let reading = PathReading::default();
    Matcher { hosts, path, methods, from: networks.into(), reading }
}

/// A router over routes whose servers read paths as a framework does.
fn router_before(framework: Framework, patterns: &[&str]) -> Router {
    let reading = PathReading::of(framework);
    let routes = patterns.iter().map(|path| Matcher { reading, ..matcher(path, &[]) });
    Router::new(routes.collect())
}

#[test]
fn route_for_a_network_is_passed_over_from_elsewhere() {
    let router = Router::new(vec![
        matcher("/admin/**", &["10.0.0.0/8", "2001:db8::/32"]),
        matcher("/admin/**", &["192.0.2.7/32"]),
        matcher("/**", &[]),
    ]);
    for (address, path, expected) in [
        ("10.9.8.7", "/admin/users", 0),
        ("2001:db8::9", "/admin", 0),
        ("192.0.2.7", "/admin", 1),
        ("192.0.2.8", "/admin", 2),
        ("::1", "/admin", 2),
        ("10.9.8.7", "/", 2),
    ] {
        let request = from(path, &Method::GET, address.parse().unwrap());
        assert_eq!(router.route(request), Some(expected), "{address} {path}");
        let differs = router.differences(request).next().unwrap();
        assert_eq!(
            differs.contains(&RoutePart::Address),
            expected != 0 && path != "/",
            "{address}"
        );
    }
}

#[test]
fn route_for_a_network_does_not_cover_one_for_more_addresses() {
    for (first, second, expected) in [
        (&[][..], &[][..], true),
        (&[], &["10.0.0.0/8"], true),
        (&["10.0.0.0/8"], &[], false),
        (&["10.0.0.0/8"], &["10.1.0.0/16", "10.2.0.0/16"], true),
        (&["10.1.0.0/16"], &["10.0.0.0/8"], false),
    ] {
        let [first, second] = [first, second].map(|networks| matcher("/", networks));
        assert_eq!(first.covers_addresses_of(&second), expected, "{first:?} {second:?}");
    }
}

#[test]
fn first_match_wins_over_a_closer_one() {
    let matcher = |path| matcher(path, &[]);
    let router = Router::new(vec![matcher("/a/**"), matcher("/{x}/b"), matcher("/a/b")]);
    let route = |path| router.route(from(path, &Method::GET, HERE));
    assert_eq!(route("/a/b"), Some(0));
    assert_eq!(route("/z/b"), Some(1));
    assert_eq!(route("/z"), None);
    assert_eq!(route("/"), None);
}

#[test]
fn what_servers_take_for_the_path_of_a_route_takes_it() {
    for (framework, patterns, path, expected) in [
        (Framework::Express, &["/admin/**", "/**"][..], "/ADMIN/x", 0),
        (Framework::Express, &["/Admin/**", "/**"], "/admin/x", 0),
        (Framework::Express, &["/caf%C3%A9", "/**"], "/CAF%C3%89", 0),
        (Framework::Express, &["/{id}/x", "/**"], "/7/X", 0),
        (Framework::Koa, &["/a/**", "/b/**"], "/B", 1),
        (Framework::Django, &["/admin/**", "/**"], "/ADMIN/x", 1),
        (Framework::Spring, &["/admin/**", "/**"], "/admin;x=1/users;y", 0),
        (Framework::Spring, &["/admin/**", "/**"], "/;x/admin/users", 0),
        (Framework::Fastify, &["/login", "/**"], "/login;a/b", 0),
        (Framework::Fastify, &["/users/{id}", "/**"], "/users/", 0),
        (Framework::Fastify, &["/users", "/users/{id}"], "/users/", 1),
        (Framework::Fastify, &["/users", "/users/{id}"], "/users", 0),
        (Framework::Fastify, &["/users/**", "/users/{id}"], "/users/", 0),
        (Framework::Fastify, &["/users/{id}/x", "/users"], "/users/", 1),
        (Framework::Fastify, &["/login", "/**"], "/login/", 0),
        (Framework::Koa, &["/users/{id}", "/**"], "/users/", 1),
        (Framework::Rails, &["/login", "/**"], "/login.json", 0),
        (Framework::Rails, &["/v1.2", "/**"], "/v1.2.json", 0),
        (Framework::Rails, &["/admin/**", "/**"], "/admin.json", 0),
        (Framework::Rails, &["/login", "/**"], "/login/.json", 1),
        (Framework::Php, &["/login.php", "/**"], "/login.php/x", 0),
        (Framework::Php, &["/admin/**", "/**"], "/index.php/admin/x", 0),
        (Framework::Php, &["/admin", "/**"], "/admin/index.php", 0),
        (Framework::Php, &["/index.php/{id}", "/**"], "/index.php/7", 0),
        // Of a part of a segment, as of the whole.
        (Framework::Express, &["/admin/*.php", "/**"], "/ADMIN/x.PHP", 0),
        (Framework::Express, &["/Report-*", "/**"], "/rEPORT-x", 0),
        (Framework::Express, &["/caf%C3%A9-*", "/**"], "/CAF%C3%89-X", 0),
        (Framework::Express, &["/*-caf%C3%89", "/**"], "/X-CAF%C3%A9", 0),
        (Framework::Express, &["/k*k", "/**"], "/%E2%84%AA%E2%84%AA", 0),
        (Framework::Express, &["/k*k", "/**"], "/%E2%84%AA", 1),
        (Framework::Express, &["/*9", "/**"], "/%C3%89", 1),
        (Framework::Django, &["/admin/*.php", "/**"], "/admin/x.PHP", 1),
        (Framework::Spring, &["/*.do", "/**"], "/a.do;x=1", 0),
        (Framework::Spring, &["/report-*/x", "/**"], "/report-;a/x;b", 0),
        (Framework::Spring, &["/report-*", "/**"], "/;x/report-1;y", 0),
        (Framework::Fastify, &["/report-*", "/**"], "/report-1;a/b", 0),
        (Framework::Fastify, &["/users/*0", "/users"], "/users/", 1),
        (Framework::Rails, &["/report-*", "/**"], "/report-x.json", 0),
        (Framework::Rails, &["/report-*", "/**"], "/report-.json", 0),
        (Framework::Rails, &["/*-report", "/**"], "/x-report.json", 0),
        (Framework::Rails, &["/*-report", "/**"], "/x-report", 0),
        (Framework::Php, &["/*.php", "/**"], "/x.php/y", 0),
        (Framework::Php, &["/*.php", "/**"], "/x.PHP/y", 1),
        (Framework::Php, &["/admin/*.php", "/**"], "/admin/x.php/y/z", 0),
        (Framework::Php, &["/report-*", "/**"], "/index.php/report-1", 0),
        (Framework::Php, &["/report-*", "/**"], "/report-1/index.php", 0),
        (Framework::Php, &["/*.php/**", "/**"], "/x.php/y", 0),
        (Framework::Php, &["/*.php", "/*.php/**"], "/x.php/y", 1),
        (Framework::Php, &["/*.php/**", "/*.php"], "/x.php/y", 0),
        (Framework::Php, &["/login.php", "/*.php/**"], "/login.php/y", 0),
        (Framework::Php, &["/*.php/**", "/login.php"], "/login.php/y", 1),
        (Framework::Php, &["/{page}", "/*.php"], "/x.php/y", 1),
        (Framework::Php, &["/{page}", "/rep-*"], "/index.php/rep-1", 1),
        (Framework::Php, &["/*.php", "/{page}"], "/index.php/about", 1),
        (Framework::Php, &["/adm*/status", "/**"], "/admin.php/status", 1),
        // Whatever else these paths match, the servers take them for nothing else.
        (Framework::Fastify, &["/orders/{id}", "/orders/{id}/status"], "/orders/7;/status", 0),
        (Framework::Fastify, &["/orders/{id}/status", "/orders/{id}"], "/orders/7;/status", 1),
        (Framework::Fastify, &["/{a}/{b}", "/orders"], "/orders;x/status", 1),
        (Framework::Spring, &["/{org}/info", "/info"], "/;x/info", 1),
        (Framework::Spring, &["/a;b", "/a"], "/a;b", 1),
        (Framework::Php, &["/{page}", "/admin/**"], "/index.php/admin/x", 1),
        (Framework::Php, &["/index.php", "/admin/**"], "/index.php/admin/x", 1),
        (Framework::Php, &["/{app}/admin/{x}", "/admin/**"], "/index.php/admin/x", 1),
        (Framework::Php, &["/", "/{page}"], "/index.php/about", 1),
        (Framework::Php, &["/about", "/index.php/**"], "/index.php/about", 1),
        (Framework::Php, &["/{a}/{b}", "/admin"], "/admin/index.php", 1),
        (Framework::Php, &["/{a}/{b}", "/admin"], "/admin/index.php/foo", 1),
        (Framework::Php, &["/{a}/{b}", "/admin/index.php"], "/admin/index.php/foo", 1),
        (Framework::Php, &["/{app}/status", "/admin.php"], "/admin.php/status", 1),
        (Framework::Php, &["/admin.php", "/{app}/status"], "/admin.php/status", 0),
        (Framework::Php, &["/{app}/status", "/{page}"], "/admin.php/status", 1),
        (Framework::Php, &["/**", "/admin.php"], "/admin.php", 0),
        (Framework::Php, &["/{script}"], "/index.php", 0),
    ] {
        let router = router_before(framework, patterns);
        let request = from(path, &Method::GET, HERE);
        assert_eq!(router.route(request), Some(expected), "{framework:?} {patterns:?} {path}");
        let first = router.differences(request).position(|parts| parts.is_empty());
        assert_eq!(first, Some(expected), "{framework:?} {patterns:?} {path}");
    }
}

/// Or a path of the second would fall to the first.
#[test]
fn route_that_spells_a_path_out_goes_before_one_that_reads_it_otherwise() {
    for (framework, patterns, path, expected, is_listed) in [
        (Framework::Rails, &["/health", "/health.json"][..], "/health.json", 1, true),
        (Framework::Rails, &["/health", "/health.json"], "/health.xml", 0, true),
        (Framework::Rails, &["/health", "/{page}"], "/health.json", 0, false),
        (Framework::Rails, &["/{page}", "/health.json"], "/health.json", 0, false),
        (Framework::Rails, &["/health", "/{page}", "/health.json"], "/health.json", 0, false),
        (Framework::Spring, &["/health", "/health.json"], "/health.json;x", 1, false),
        (Framework::Express, &["/admin/{id}", "/ADMIN/me"], "/ADMIN/me", 1, true),
        (Framework::Express, &["/admin/{id}", "/ADMIN/me"], "/Admin/me", 0, true),
        (Framework::Express, &["/admin/users", "/ADMIN/**"], "/ADMIN/Users", 0, true),
        (Framework::Php, &["/a.php", "/a.php/b"], "/a.php/b", 1, true),
        (Framework::Php, &["/a.php", "/a.php/**"], "/a.php/b", 1, true),
        (Framework::Go, &["/health", "/health.json"], "/health.json", 1, false),
        // A part of a segment goes before nothing: `/admin.json` is answered by what `/admin` is.
        (Framework::Rails, &["/admin", "/*.json"], "/admin.json", 0, false),
        (Framework::Rails, &["/admin", "/adm*"], "/admin.json", 0, false),
        (Framework::Rails, &["/*-report", "/*.json"], "/x-report.json", 0, false),
        (Framework::Rails, &["/*-report", "/x-report.json"], "/x-report.json", 1, true),
        (Framework::Rails, &["/*-report", "/x-report.json"], "/y-report.json", 0, true),
        (Framework::Express, &["/rep-*", "/REP-x"], "/REP-x", 1, true),
        (Framework::Express, &["/rep-*", "/REP-x"], "/REP-X", 0, true),
        (Framework::Express, &["/admin/a*", "/ADMIN/*b"], "/ADMIN/ab", 1, true),
        (Framework::Express, &["/admin/a*", "/ADMIN/*b"], "/Admin/ab", 0, true),
    ] {
        let router = router_before(framework, patterns);
        let request = from(path, &Method::GET, HERE);
        assert_eq!(router.route(request), Some(expected), "{framework:?} {patterns:?} {path}");
        let first = router.differences(request).position(|parts| parts.is_empty());
        assert_eq!(first, Some(expected), "{framework:?} {patterns:?} {path}");
        assert_eq!(!router.preceded().is_empty(), is_listed, "{framework:?} {patterns:?}");
    }
}

#[test]
fn parameter_is_counted_as_the_servers_read_it() {
    for (framework, pattern, path, expected) in [
        (Framework::Express, "/users/{id}", "/USERS/Bob", "bob"),
        (Framework::Rails, "/users/{id}", "/users/7.json", "7"),
        (Framework::Rails, "/users/{id}/x", "/users/a.b/x", "a.b"),
        (Framework::Spring, "/users/{id}/x", "/users;a/7;b=c/x", "7"),
        (Framework::Php, "/index.php/{id}", "/index.php/7", "7"),
        (Framework::Php, "/users/{id}", "/index.php/users/7", "7"),
        (Framework::Flask, "/users/{id}", "/users/Bob.json", "Bob.json"),
        (Framework::Fastify, "/users/{id}", "/users/", "%00"),
        (Framework::Fastify, "/users/{id}", "/users/;x", "%00"),
        (Framework::Fastify, "/users/{id}", "/users/7;x", "7"),
        (Framework::Fastify, "/users/{id}", "/users/7/", "7"),
        (Framework::Express, "/a-*/{id}", "/A-x/Bob", "bob"),
        (Framework::Php, "/*.php/{id}", "/x.php/7", "7"),
    ] {
        let pattern = PathPattern::parse(pattern).unwrap();
        let reading = PathReading::of(framework);
        let form = pattern.form_to_count(RequestPath::new(path, path), reading);
        assert_eq!(pattern.parameter("id", &form), Some(expected), "{framework:?} {path}");
    }
}

/// What a client may add to a path makes no new counter.
#[test]
fn route_of_one_path_has_one_counter() {
    for (framework, pattern, path) in [
        (Framework::Express, "/Login", "/LOGIN/"),
        (Framework::Rails, "/v1.2", "/v1.2.json"),
        (Framework::Spring, "/login", "/;a/login;b"),
        (Framework::Fastify, "/login", "/login;a/b"),
        (Framework::Php, "/index.php", "/index.php/a"),
        (Framework::Php, "/login.php", "/index.php/login.php/x"),
    ] {
        let written = PathPattern::parse(pattern).unwrap();
        let request_path = RequestPath::new(path, path);
        let form = written.form_to_count(request_path, PathReading::of(framework));
        let form = form.strip_suffix('/').unwrap_or(&form);
        let expected = PathReading::of(framework).fold(pattern).into_owned();
        assert_eq!(form, expected, "{framework:?} {pattern} {path}");
    }
}

/// A forward-auth proxy forwards the path as the client wrote it.
#[test]
fn escapes_hide_nothing_of_what_a_pattern_spells_out() {
    for (framework, pattern, raw, path, expected) in [
        (Framework::Go, "/report-*", "/%72eport-1", "/report-1", false),
        (Framework::Go, "/report-*", "/report-%31", "/report-1", true),
        (Framework::Go, "/*.php", "/%61.php", "/a.php", true),
        (Framework::Go, "/*.php", "/a%2Ephp", "/a.php", false),
        (Framework::Go, "/*A1", "/%41xA1", "/AxA1", true),
        (Framework::Go, "/*1", "/%41%31", "/A1", false),
        (Framework::Express, "/report-*", "/REPORT-%41", "/REPORT-A", true),
        (Framework::Express, "/report-*", "/REPORT%2D%41", "/REPORT-A", false),
    ] {
        let reading = PathReading::of(framework);
        let pattern = PathPattern::parse(pattern).unwrap();
        assert_eq!(pattern.is_spelled_out_by(raw, path, reading), expected, "{pattern} {raw}");
    }
}

/// Forms of which less is left out are closer.
#[test]
fn route_that_spells_a_path_out_takes_its_other_spellings_too() {
    let reading = PathReading { suffix: Suffix::Ignore, ..PathReading::of(Framework::Spring) };
    let routes = ["/health", "/health.json"].map(|path| Matcher { reading, ..matcher(path, &[]) });
    let router = Router::new(routes.into());
    for (path, expected) in
        [("/health.json;x", 1), ("/health.xml;x", 0), ("/health;x", 0), ("/;x/health.json", 1)]
    {
        assert_eq!(router.route(from(path, &Method::GET, HERE)), Some(expected), "{path}");
    }
}

/// Texts over a small alphabet, so that patterns and paths meet.
fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "ab", "aba", "abc"])
}

fn affix() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a*", "*a", "ab*", "*bc", "a*c", "ab*ba"])
}

fn pattern() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => segment().prop_map(str::to_owned),
        1 => Just("*".to_owned()),
        1 => Just("{p".to_owned()),
        2 => affix().prop_map(str::to_owned),
    ];
    (prop::collection::vec(piece, 0..4), any::<bool>()).prop_map(|(mut pieces, rest)| {
        for (position, piece) in pieces.iter_mut().enumerate() {
            if piece.starts_with('{') {
                *piece += &format!("{position}}}");
            }
        }
        if rest {
            pieces.push("**".to_owned());
        }
        format!("/{}", pieces.join("/"))
    })
}

/// The obvious way: recurse over both lists of segments.
fn reference(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        (["**"], _) => true,
        ([], []) => true,
        ([first, pattern @ ..], [segment, path @ ..]) => {
            let has_affix = |(before, after): (&str, &str)| {
                let rest = segment.strip_prefix(before);
                rest.is_some_and(|rest| rest.ends_with(after))
            };
            (first == segment
                || first.split_once('*').is_some_and(has_affix)
                || first.starts_with('{'))
                && reference(pattern, path)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn prop_router_agrees_with_a_naive_search(
        patterns in prop::collection::vec((pattern(), any::<bool>()), 1..12),
        path in prop::collection::vec(segment(), 0..5),
        slash in any::<bool>(),
    ) {
        let router = Router::new(
            patterns
                .iter()
                .map(|(pattern, get_only)| Matcher {
                    hosts: vec![],
                    path: PathPattern::parse(pattern).unwrap(),
                    methods: if *get_only { vec![Method::GET] } else { vec![] },
                    from: Networks::default(),
                    reading: PathReading::default(),
                })
                .collect(),
        );
        let text = format!("/{}{}", path.join("/"), if slash && !path.is_empty() { "/" } else { "" });
        for method in [Method::GET, Method::POST] {
            let expected = patterns.iter().position(|(pattern, get_only)| {
                let pieces: Vec<&str> = pattern.split('/').filter(|piece| !piece.is_empty()).collect();
                (!get_only || method == Method::GET) && reference(&pieces, &path)
            });
            prop_assert_eq!(router.route(from(&text, &method, HERE)), expected);
        }
    }
}
