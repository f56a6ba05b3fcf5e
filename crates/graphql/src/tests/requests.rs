//! What requests are made of: bodies in JSON, batches, URLs.

use serde_json::json;

use crate::{Measure, Refusal, RequestCost, body_cost, document_cost, query_cost};

#[test]
fn requests_that_two_servers_may_read_in_two_ways_are_refused() {
    for (body, said) in [
        (r#"{"query":"{a}","query":"{b}"}"#, "`query` is there twice"),
        (r#"{"query":"{a}","qu\u0065ry":"{a}"}"#, "`query` is there twice"),
        (r#"{"query":"{a}","variables":{},"variables":{}}"#, "`variables` is there twice"),
        (r#"{"query":"{a}","variables":{"n":1,"n":2}}"#, "`variables` has a member twice"),
        (r#"{"operationName":"a","operationName":"a"}"#, "`operationName` is there twice"),
        (
            r#"{"query":"{a}","Query":"{b}"}"#,
            "a name that some servers read as `query` is not spelled `query`",
        ),
        (
            r#"{"query":"{a}","variable\u017f":{}}"#,
            "a name that some servers read as `variables` is not spelled `variables`",
        ),
        (r#"{"query":"{a}","variables":"{}"}"#, "`variables` must be an object"),
        (r#"{"query":["{a}"]}"#, "`query` must be a text"),
        (r#"{"query":"{a}","operationName":1}"#, "`operationName` must be a text"),
        (
            r#"{"query":"{a}","documentId":"x"}"#,
            "`query` and `documentId` are both there: send one of them",
        ),
        (r#""{a}""#, "a request is an object with a member `query`, or an array of such objects"),
        ("[]", "a request is an object with a member `query`, or an array of such objects"),
        ("{\"query\":\n}", "the request is not JSON (line 2, column 1)"),
    ] {
        let refusal = body_cost(Measure::Nodes, "", body.as_bytes()).unwrap_err();
        assert_eq!(refusal.to_string(), said, "{body}");
    }
}

#[test]
fn requests_without_a_text_are_unknown() {
    for body in [
        r#"{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}}"#,
        r#"{"query":null,"documentId":"sha256:00","variables":{"n":1}}"#,
        r#"{"query":"","extensions":{}}"#,
        r#"{"id":"1"}"#,
        "{}",
    ] {
        let cost = body_cost(Measure::Points, "", body.as_bytes());
        assert_eq!(cost, Ok(RequestCost { units: 0, unknown: 1 }), "{body}");
    }
    // The server compares the hash with the text.
    let body = r#"{"query":"{a(first:3)}","extensions":{"persistedQuery":{"sha256Hash":"0"}}}"#;
    let expected = RequestCost { units: 3, unknown: 0 };
    assert_eq!(body_cost(Measure::Nodes, "", body.as_bytes()), Ok(expected));
}

#[test]
fn batches_are_the_sum_of_their_requests() {
    let body = json!([
        { "query": "{ a(first: 3) }" },
        { "id": "x" },
        { "query": "query A { a } query B { b(last: 4) }", "operationName": "B" },
    ]);
    let cost = body_cost(Measure::Nodes, "", body.to_string().as_bytes());
    assert_eq!(cost, Ok(RequestCost { units: 7, unknown: 1 }));

    let body = json!([{ "query": "{ a }" }, { "query": "{ a(first: -1) }" }]);
    let refusal = body_cost(Measure::Nodes, "", body.to_string().as_bytes()).unwrap_err();
    let said = "request 2 of the batch: `first` is negative (line 1, column 5)";
    assert_eq!(refusal.to_string(), said);

    // Tokens count over the whole batch.
    let long = json!({ "query": format!("{{ {} }}", "a ".repeat(6_000)) });
    let body = json!([long, long]).to_string();
    let refusal = body_cost(Measure::Nodes, "", body.as_bytes()).unwrap_err();
    let said = "request 2 of the batch: the request has more than 20000 tokens";
    assert_eq!(refusal.to_string(), said);

    let of = |count| json!(vec![json!({ "query": "{ a }" }); count]).to_string();
    let hundred = body_cost(Measure::Nodes, "", of(100).as_bytes());
    assert_eq!(hundred, Ok(RequestCost { units: 100, unknown: 0 }));
    let more = body_cost(Measure::Nodes, "", of(101).as_bytes());
    assert_eq!(more, Err(Refusal::LongBatch));
}

#[test]
fn the_query_of_a_url_is_a_request() {
    let of = |url_query: &str| query_cost(Measure::Nodes, url_query).map(|cost| cost.units);
    for (url_query, expected) in [
        ("query=%7Ba(first:3)%7D&x=1&extensions=%7B%7D", Ok(3)),
        (
            "query=query+A($n:Int){a(first:$n)}query+B{b}&operationName=A&variables={%22n%22:8}",
            Ok(8),
        ),
        ("query={a}&variables=&operationName=", Ok(1)),
        ("query={a}&query={a}", Err(Refusal::RepeatedMember("query"))),
        ("query={a}&variables[n]=8", Err(Refusal::MisspelledMember("variables"))),
        ("query={a}&id=8", Err(Refusal::TextAndName("id"))),
    ] {
        assert_eq!(of(url_query), expected, "{url_query}");
    }
    assert!(matches!(of("query={a}&variables={"), Err(Refusal::NotJson(_))));
    let unknown = RequestCost { units: 0, unknown: 1 };
    assert_eq!(query_cost(Measure::Nodes, "documentId=x"), Ok(unknown));
}

#[test]
fn a_url_beside_a_body_may_only_repeat_the_name() {
    let body = br#"{"query":"query A{a(first:2)} query B{a(first:3)}"}"#;
    let of = |url_query: &str| body_cost(Measure::Nodes, url_query, body).map(|cost| cost.units);
    assert_eq!(of("x=1&operationName=B"), Ok(3));
    assert_eq!(of("operationName="), Err(Refusal::UnnamedOperation));
    assert_eq!(of("query={a}"), Err(Refusal::InUrl("query")));
    assert_eq!(of("operationName=A&variables={}"), Err(Refusal::InUrl("variables")));

    let body = br#"{"query":"query A{a} query B{b}","operationName":"A"}"#;
    let of = |url_query: &str| body_cost(Measure::Nodes, url_query, body).map(|cost| cost.units);
    assert_eq!(of("operationName=A"), Ok(1));
    assert_eq!(of("operationName=B"), Err(Refusal::TwoNames));
}

#[test]
fn a_body_may_be_the_document() {
    let of = |url_query: &str, body: &[u8]| document_cost(Measure::Nodes, url_query, body);
    let expected = RequestCost { units: 2, unknown: 0 };
    assert_eq!(of("", b"{ a(first: 2) }"), Ok(expected));
    assert_eq!(of("operationName=B", b"query A { a } query B { a(first: 2) }"), Ok(expected));
    assert_eq!(of("", b"{ a } # \xFF"), Err(Refusal::NotUtf8));
    assert!(matches!(of("", b""), Err(Refusal::Syntax(_))));
}
