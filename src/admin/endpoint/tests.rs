use std::collections::HashSet;

use super::*;

#[test]
fn segment_in_braces_stands_for_any() {
    for (template, path, expected) in [
        ("/status", "/status", true),
        ("/status", "/status/", false),
        ("/status", "/statu", false),
        ("/callers/{name}", "/callers/user:42", true),
        ("/callers/{name}", "/callers/", false),
        ("/callers/{name}", "/callers", false),
        ("/callers/{name}", "/callers/a/reset", false),
        ("/callers/{name}/reset", "/callers/a/reset", true),
        ("/callers/{name}/reset", "/callers/a/b/reset", false),
    ] {
        assert_eq!(fits(template, path), expected, "{template} {path}");
    }
}

#[test]
fn each_endpoint_is_there_once_and_names_the_parameters_of_its_path() {
    let mut seen = HashSet::new();
    for endpoint in ENDPOINTS {
        assert!(seen.insert((endpoint.path, endpoint.verb.name())), "{}", endpoint.path);
        assert_eq!(
            Endpoint::at(endpoint.path).iter().filter(|it| it.verb == endpoint.verb).count(),
            1
        );
        for segment in endpoint.path.split('/').filter(|segment| is_parameter(segment)) {
            let name = segment.trim_matches(['{', '}']);
            let is_named = endpoint.parameters.iter().any(|it| it.name == name);
            assert!(is_named, "{}: {name}", endpoint.path);
        }
    }
}

/// Who acts needs the token for it. What is sent to be explained changes nothing.
#[test]
fn acting_needs_the_token_to_act() {
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.page != Page::Explain) {
        let is_write = endpoint.needs == Some(Permission::Write);
        assert_eq!(endpoint.verb == Verb::Post, is_write, "{}", endpoint.path);
    }
}
