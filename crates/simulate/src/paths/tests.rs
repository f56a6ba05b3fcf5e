use tollgate_policy::PathPattern;

use super::*;

fn patterns_of(paths: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let mut all = Paths::default();
    paths.into_iter().for_each(|path| all.add(path.as_ref(), 1, None));
    all.templates(0.0, 100).into_iter().map(|template| template.pattern).collect()
}

/// Those that have 2 % of the requests.
fn frequent(all: Paths) -> Vec<String> {
    all.templates(0.02, 12).into_iter().map(|template| template.pattern).collect()
}

/// A word without digits for each number.
fn word(number: usize) -> String {
    let letter = |place: u32| (b'a' + (number / 10_usize.pow(place) % 10) as u8) as char;
    (0..6).map(letter).collect()
}

#[test]
fn segments_that_vary_become_parameters() {
    let found = patterns_of([
        "/",
        "/v1/users/42/posts?page=2",
        "/v1/users/7f3a-99/posts",
        "/v1/users",
        "/files/550e8400-e29b-41d4-a716-446655440000",
        "/mail/a@b.c",
        "/api/oauth2/token",
    ]);
    let expected =
        ["/", "/api/oauth2/token", "/v1/users", "/v1/users/{a}/posts", "/files/{a}", "/mail/{a}"];
    assert_eq!(found, expected);
}

#[test]
fn many_names_at_one_place_are_one_that_varies() {
    let names = (1..60).map(|number| format!("/repos/{}/issues", word(number)));
    assert_eq!(patterns_of(names), ["/repos/{a}/issues"]);
}

#[test]
fn rare_paths_are_left_out() {
    let mut all = Paths::default();
    all.add("/often", 99, None);
    all.add("/seldom", 1, None);
    let found = all.templates(0.02, 10);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].pattern.as_str(), found[0].requests), ("/often", 99));
}

#[test]
fn paths_are_those_that_routes_match() {
    let found = patterns_of(["/%61", "/a//b/./c", "/b/../c", "/..", "/.", "/a/b/c/"]);
    assert_eq!(found, ["/", "/a", "/a/b/c", "/c"]);
}

#[test]
fn paths_that_are_refused_have_no_pattern() {
    let mut all = Paths::default();
    for path in ["/%zz", "/a%2Fb", "/%00", "/a\\b", "*", "/%2e%2e%5c"] {
        all.add(path, 1, None);
    }
    all.add("/a", 1, None);
    let found = all.templates(0.0, 10);
    assert_eq!((found.len(), found[0].pattern.as_str(), found[0].requests), (1, "/a", 1));
}

#[test]
fn every_pattern_is_one_that_policies_take() {
    let odd = ["/{a}", "/*", "/**", "/a*b", "/a:b", "/~", "/'", "/%7B", "/...", "/.well-known/x"];
    for pattern in patterns_of(odd) {
        assert!(PathPattern::parse(&pattern).is_ok(), "{pattern}");
    }
}

#[test]
fn deep_paths_have_a_pattern_that_matches_them() {
    let deep = "/a/b/c/d/e/f/g/h/i/j";
    let varying = "/a/1/b/2/c/3/d/4/e/5";
    let found = patterns_of([deep, varying, "/a/b/c/d/e/f/g/h"]);
    assert_eq!(found, ["/a/b/c/d/e/f/g/h/**", "/a/{a}/b/{b}/c/{c}/d/{d}/**"]);
    for (pattern, path) in found.iter().zip([deep, varying]) {
        assert!(PathPattern::parse(pattern).unwrap().matches(path), "{pattern}");
    }
}

#[test]
fn probes_of_scanners_leave_the_frequent_paths_their_names() {
    let mut all = Paths::default();
    for path in ["/search", "/cart", "/checkout", "/items/1234", "/account/orders"] {
        all.add(path, 4000, None);
    }
    (0..33).for_each(|number| all.add(&format!("/{}", word(number)), 1, None));
    let expected = ["/account/orders", "/cart", "/checkout", "/search", "/items/{a}"];
    assert_eq!(frequent(all), expected);
}

#[test]
fn popular_names_vary_like_all_others() {
    let mut all = Paths::default();
    all.add("/users/ada", 500, None);
    (0..5000).for_each(|number| all.add(&format!("/users/{}", word(number)), 2, None));
    assert_eq!(frequent(all), ["/users/{a}"]);
}

#[test]
fn frequent_paths_are_found_among_any_number_of_others() {
    let mut all = Paths::default();
    for number in 0..150_000 {
        all.add(&format!("/{}/{}", word(number), word(number * 7 + 1)), 1, None);
    }
    // After the room was full.
    for _ in 0..50_000 {
        all.add("/real/endpoint", 1, None);
    }
    assert!(all.nodes <= MOST_NODES + MOST_DEPTH, "{}", all.nodes);
    assert_eq!(frequent(all), ["/real/endpoint", "/{a}/{b}"]);
}

#[test]
fn each_request_takes_the_pattern_that_counted_it() {
    let paths = ["/b/1/c", "/1/x/c", "/b/x/2", "/1/2/c", "/b/x/c", "/b/1/2"];
    let found = patterns_of(paths);
    let parsed: Vec<PathPattern> =
        found.iter().map(|pattern| PathPattern::parse(pattern).unwrap()).collect();
    for (path, expected) in paths.into_iter().zip([
        "/b/{a}/c",
        "/{a}/x/c",
        "/b/x/{a}",
        "/{a}/{b}/c",
        "/b/x/c",
        "/b/{a}/{b}",
    ]) {
        let first = parsed.iter().position(|pattern| pattern.matches(path)).unwrap();
        assert_eq!(found[first], expected, "{path}");
    }
}
