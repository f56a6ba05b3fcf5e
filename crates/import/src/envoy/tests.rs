use tollgate_yaml::Document;

use super::*;
use crate::Verdict;

fn imported(text: &str) -> (Vec<String>, Vec<String>) {
    let document = Document::parse("limits.yaml", text).unwrap();
    let mut problems = Vec::new();
    let configuration: Configuration = document.decode(&[], &mut problems).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let Imported { policy, findings } = super::policy(&[(document.into(), configuration)]).unwrap();
    let left_out = findings.iter().filter(|own| own.verdict == Verdict::LeftOut);
    let left_out = left_out.map(|own| format!("{}: {}", own.place, own.there));
    let lines = policy.lines().filter(|line| line.starts_with("  "));
    (lines.map(|line| line.trim().to_owned()).collect(), left_out.collect())
}

#[test]
fn more_specific_nodes_come_first_and_hide_the_others() {
    let (lines, left_out) = imported(
        "domain: d\ndescriptors:\n\
         - { key: a, rate_limit: { unit: second, requests_per_unit: 1 }, descriptors: [\
             { key: b, rate_limit: { unit: HOUR, requests_per_unit: 2 } }] }\n\
         - { key: a, value: x*, rate_limit: { unlimited: true } }\n\
         - { key: a, value: xy, rate_limit: { unit: month, requests_per_unit: 3 }, \
             shadow_mode: true }\n",
    );
    assert_eq!(left_out, [""; 0]);
    let expected = [
        "a-xy: { per: [descriptor.a], rate: 3/30d, align: epoch, mode: shadow }",
        "a-x: { per: [descriptor.a], rate: unlimited }",
        "a: { per: [descriptor.a], rate: 1/second, align: epoch }",
        "a-b: { per: [descriptor.a, descriptor.b], rate: 2/hour, align: epoch }",
        "- { domain: d, when: { key: [a], value: { a: xy } }, limits: [a-xy] }",
        "- { domain: d, when: { key: [a, b], value: { a: xy } }, limits: [] }",
        "- { domain: d, when: { key: [a], value: { a: x* } }, limits: [a-x] }",
        "- { domain: d, when: { key: [a, b], value: { a: x* } }, limits: [] }",
        "- { domain: d, when: { key: [a] }, limits: [a] }",
        "- { domain: d, when: { key: [a, b] }, limits: [a-b] }",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_has_no_counterpart_is_left_out_and_reported() {
    let (lines, left_out) = imported(
        "name: d\ndomain: d\ndescriptors:\n\
         - { key: \"k*\", rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         - { key: [k], rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         - { key: l, rate_limit: { unit: fortnight, requests_per_unit: 1 } }\n\
         - { key: m, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: n }] } }\n\
         - { key: n, quota_mode: false, rate_limit: { unit: day, requests_per_unit: 1, replaces: [] } }\n",
    );
    assert_eq!(lines.len(), 4, "{lines:?}");
    let expected = [
        "limits.yaml:4:10: a key with",
        "limits.yaml:5:10: a key that is no text",
        "limits.yaml:6:25: a rate without",
        "limits.yaml:7:70: `replaces`",
    ];
    assert_eq!(left_out.len(), expected.len(), "{left_out:?}");
    for (note, expected) in left_out.iter().zip(expected) {
        assert!(note.starts_with(expected), "{note}");
    }
}

#[test]
fn values_with_stars_are_taken_in_the_order_of_the_file() {
    let rate = |number: u32| format!("rate_limit: {{ unit: day, requests_per_unit: {number} }}");
    let (lines, left_out) = imported(&format!(
        "domain: 7\ndescriptors:\n\
         - {{ key: p, value: \"foo*\", {} }}\n\
         - {{ key: p, value: \"foobar*\", descriptors: [{{ key: q, value: 30, {} }}] }}\n\
         - {{ key: p, value: true, metadata: {{ owner: a }}, {} }}\n",
        rate(1),
        rate(2),
        rate(3)
    ));
    assert_eq!(left_out, [""; 0]);
    let rules: Vec<&String> = lines.iter().filter(|line| line.starts_with('-')).collect();
    assert_eq!(
        rules,
        [
            "- { domain: \"7\", when: { key: [p], value: { p: \"true\" } }, limits: [p-true] }",
            "- { domain: \"7\", when: { key: [p], value: { p: foo* } }, limits: [p-foo] }",
            "- { domain: \"7\", when: { key: [p, q], value: { p: foo*, q: \"30\" } }, limits: [] }",
            "- { domain: \"7\", when: { key: [p, q], value: { p: foobar*, q: \"30\" } }, \
             limits: [p-foobar-q-30] }",
        ]
    );
}

#[test]
fn node_that_is_never_taken_makes_no_entry() {
    let rate = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let text = format!(
        "domain: d\ndescriptors:\n\
         - {{ key: k, {rate}, descriptors: [{{ key: l, {rate} }}] }}\n\
         - {{ key: k, value: \"x*\", descriptors: [\
             {{ key: l, value: \"*\", share_threshold: true, {rate} }}] }}\n\
         - {{ key: k, value: \"**\", {rate} }}\n\
         - {{ key: k, value: \"y*\", {rate} }}\n"
    );
    let document = Document::parse("limits.yaml", &text).unwrap();
    let configuration: Configuration = document.decode(&[], &mut Vec::new()).unwrap();
    let Imported { policy, findings } = super::policy(&[(document.into(), configuration)]).unwrap();
    let rules: Vec<&str> = policy.lines().filter(|line| line.starts_with("  - ")).collect();
    assert_eq!(
        rules,
        [
            "  - { domain: d, when: [{ key: k, value: x* }, { key: l, value: \"*\", shared: true }], limits: [k-x-l] }",
            "  - { domain: d, when: { key: [k], value: { k: x* } }, limits: [] }",
            "  - { domain: d, when: { key: [k], value: { k: \"**\" } }, limits: [k] }",
        ]
    );
    let never = findings.iter().filter(|own| own.there.contains("never taken"));
    let never: Vec<&str> = never.map(|own| own.place.as_str()).collect();
    assert_eq!(never, ["limits.yaml:3:3", "limits.yaml:6:3"]);
}

#[test]
fn several_files_of_a_domain_are_one_tree() {
    let files = [
        "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }]\n",
        "domain: e\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 2 } }]\n",
        "domain: d\ndescriptors: [{ key: k, value: 30, rate_limit: { unlimited: true } }]\n",
    ];
    let all = files.map(|text| {
        let document = Document::parse("limits.yaml", text).unwrap();
        let configuration: Configuration = document.decode(&[], &mut Vec::new()).unwrap();
        (document.into(), configuration)
    });
    let Imported { policy, findings } = super::policy(&all).unwrap();
    let rules: Vec<&str> = policy.lines().filter(|line| line.starts_with("  - ")).collect();
    assert_eq!(
        rules,
        [
            "  - { domain: d, when: { key: [k], value: { k: \"30\" } }, limits: [k-30] }",
            "  - { domain: d, when: { key: [k] }, limits: [k] }",
            "  - { domain: e, when: { key: [k] }, limits: [k-2] }",
        ]
    );
    assert_eq!(findings.iter().filter(|own| own.verdict == Verdict::Nearly).count(), 2);
}

#[test]
fn key_that_is_there_twice_and_shared_counters_are_said_entry_by_entry() {
    let (lines, left_out) = imported(
        "domain: d\ndescriptors:\n\
         - { key: k, value: a, descriptors: [\
             { key: k, value: b, rate_limit: { unit: day, requests_per_unit: 1 } }] }\n\
         - { key: f, value: \"f/*\", share_threshold: true, \
             rate_limit: { unit: day, requests_per_unit: 2 } }\n",
    );
    assert_eq!(left_out, [""; 0]);
    let rules: Vec<&String> = lines.iter().filter(|line| line.starts_with('-')).collect();
    assert_eq!(
        rules,
        [
            "- { domain: d, when: [{ key: k, value: a }, { key: k, value: b }], limits: [k-a-k-b] }",
            "- { domain: d, when: [{ key: f, value: f/*, shared: true }], limits: [f-f] }",
        ]
    );
    assert!(lines.iter().any(|line| line.starts_with("k-a-k-b: { per: [descriptor.k], ")));
}

#[test]
fn example_of_the_page_is_imported_as_shown() {
    let (lines, left_out) = imported(include_str!("../../examples/envoy-ratelimit.yaml"));
    assert_eq!(left_out, [""; 0]);
    assert_eq!(lines.len(), 10, "{lines:?}");
    let page = include_str!("../../../../docs/from-envoy-ratelimit.md");
    for line in &lines {
        assert!(page.contains(line.as_str()), "{line}");
    }
}

#[test]
fn table_says_what_each_rate_became() {
    let text = "domain: d\ndescriptors:\n\
        - { key: k, value: secret, rate_limit: { unlimited: true } }\n\
        - { key: k, shadow_mode: true, rate_limit: { unit: WEEK, requests_per_unit: 7 } }\n\
        - { key: l, rate_limit: { unit: second, requests_per_unit: 3000000000 } }\n\
        - { key: m, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let document = Document::parse("limits.yaml", text).unwrap();
    let configuration: Configuration = document.decode(&[], &mut Vec::new()).unwrap();
    let Imported { policy, findings } = super::policy(&[(document.into(), configuration)]).unwrap();
    let shown = findings
        .iter()
        .map(|own| format!("{}: {}: {}: {}", own.verdict, own.place, own.there, own.here));
    let shown: Vec<String> = shown.collect();
    let expected = [
        "left out: limits.yaml:6:25: `quota_mode`",
        "nearly the same: limits.yaml:1:9: domain d: all descriptors of a request are charged, or none",
        "nearly the same: limits.yaml:5:25: l: 3000000000 per second: limit l, unlimited; more than",
        "the same: limits.yaml:3:40: k: unlimited: limit k-secret, unlimited",
        "the same: limits.yaml:4:44: k: 7 per week, shadow_mode: limit k, 7/7d, align: epoch, mode: shadow",
        "the same: limits.yaml:6:43: m: 1 per day: limit m, 1/day, align: epoch",
    ];
    assert_eq!(shown.len(), expected.len(), "{shown:#?}");
    for (row, expected) in shown.iter().zip(expected) {
        assert!(row.starts_with(expected), "{row}");
    }
    assert_eq!(policy.matches("# Left out").count(), 1, "{policy}");
}

#[test]
fn small_file_that_needs_very_many_entries_is_refused() {
    let nested = (0..8).fold(String::new(), |below, level| {
        let rate = "rate_limit: { unit: day, requests_per_unit: 1 }";
        let valued = ["a", "b", "c"].map(|value| format!("{{ key: k{level}, value: {value} }}"));
        let valued = valued.join(", ");
        format!("{valued}, {{ key: k{level}, {rate}, descriptors: [{below}] }}")
    });
    let text = format!("domain: d\ndescriptors: [{nested}]\n");
    let document = Document::parse("limits.yaml", &text).unwrap();
    let configuration: Configuration = document.decode(&[], &mut Vec::new()).unwrap();
    let all = [(document.into(), configuration)];
    assert_eq!(super::policy(&all).err(), Some(TooManyEntries));
}
