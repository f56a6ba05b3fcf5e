//! Patterns against paths, and the router against a search that is obviously right.

use proptest::prelude::*;

use tollgate_wire::target::TargetError;

use super::*;

#[test]
fn patterns_match_whole_segments() {
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
        ("/a*", PartialSegment("a*".into())),
        ("/{a}-{b}", PartialSegment("{a}-{b}".into())),
        ("/{}", PartialSegment("{}".into())),
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
    for (pattern, path, expected) in [
        ("/users/@me", "/users/%40me", "/users/@me"),
        ("/users/@me/{x}/**", "/users/%40me/a%40b/%3A/", "/users/@me/a%40b/%3A/"),
        ("/{a}/x:y", "/%40/x%3Ay", "/%40/x:y"),
        ("/**", "/%40", "/%40"),
        ("/a%7Bb", "/a%7Bb", "/a%7Bb"),
    ] {
        assert_eq!(PathPattern::parse(pattern).unwrap().spell(path), expected, "{pattern} {path}");
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
    Request { host: None, path, method, address }
}

/// A matcher of requests for `path` from `networks`.
fn matcher(path: &str, networks: &[&str]) -> Matcher {
    let networks = networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    let hosts = vec![];
    let methods = vec![];
    Matcher { hosts, path: PathPattern::parse(path).unwrap(), methods, from: networks.into() }
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

/// Texts over a small alphabet, so that patterns and paths meet.
fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c"])
}

fn pattern() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => segment().prop_map(str::to_owned), 1 => Just("*".to_owned()), 1 => Just("{p".to_owned())];
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
            (first == segment || *first == "*" || first.starts_with('{'))
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
