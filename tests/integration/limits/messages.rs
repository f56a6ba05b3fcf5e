//! What the body of a request calls: the messages of the Model Context Protocol, and members that
//! limits count by.

use serde_json::{Value, json};

use crate::support::{Policy, Proxy, Request, Upstream, get, http2, post, token};

/// A policy with these limits of all requests to `/mcp`.
fn proxy(upstream: &Upstream, limits: &[&str]) -> Proxy {
    let names: Vec<&str> = limits.iter().filter_map(|limit| limit.split(':').next()).collect();
    let route = format!("{{ match: {{ path: /mcp }}, limits: [{}] }}", names.join(", "));
    Proxy::start(&Policy::before(upstream).limits(limits).routes(&[&route]))
}

const BY_TOOL: &str = "calls: { per: [caller, mcp.tool], rate: 2/hour }";

fn message(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

fn call(tool: &str) -> Value {
    message("tools/call", &json!({ "name": tool, "arguments": { "name": "none" } }))
}

fn send(message: &Value) -> Request {
    send_text(&message.to_string())
}

fn send_text(body: &str) -> Request {
    post("/mcp", body)
        .field("content-type", "application/json")
        .field("accept", "application/json, text/event-stream")
        .by("alice")
}

#[test]
fn each_tool_has_a_counter_and_what_every_client_sends_is_free() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &[BY_TOOL]);
    let free = ["initialize", "notifications/initialized", "ping", "server/discover", "tools/list"];
    for _ in 0..3 {
        for method in free {
            proxy.send(send(&message(method, &json!({})))).assert_status(200);
        }
        proxy.send(get("/mcp").by("alice")).assert_status(200);
        proxy.send(send(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} }))).assert_status(200);
    }
    for tool in ["search", "render"] {
        proxy.send(send(&call(tool))).assert_status(200);
        proxy.send(send(&call(tool))).assert_status(200);
        proxy.send(send(&call(tool))).assert_status(429);
    }
    // Others that call no tool share a counter.
    proxy.send(send(&message("prompts/get", &json!({ "name": "a" })))).assert_status(200);
    proxy.send(send(&message("resources/read", &json!({ "uri": "b" })))).assert_status(200);
    proxy.send(send(&message("prompts/get", &json!({ "name": "c" })))).assert_status(429);
}

#[test]
fn denial_is_an_error_of_json_rpc_with_the_id_of_the_call() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &["calls: { per: [caller, mcp.tool], rate: 1/hour }"]);
    proxy.send(send(&call("search"))).assert_status(200);
    let denied = proxy.send(send(&call("search")));
    denied.assert_status(429).assert_field("content-type", "application/json");
    denied.assert_field("x-ratelimit-remaining", "0");
    let retry_after = denied.field("retry-after").unwrap().parse::<u64>().unwrap();
    let error = denied.json();
    assert_eq!(error["id"], json!(7));
    assert_eq!(error["jsonrpc"], json!("2.0"));
    assert_eq!(error["error"]["code"], json!(429));
    assert_eq!(error["error"]["data"], json!({ "limit": "calls", "retry_after": retry_after }));
    assert!(error["error"]["message"].as_str().unwrap().contains("rate limit"), "{error}");

    let named = send_text(r#"{"id":"a\u0062","method":"tools/call","params":{"name":"search"}}"#);
    assert_eq!(proxy.send(named).assert_status(429).json()["id"], json!("ab"));
    let unnamed = send_text(r#"{"method":"tools/call","params":{"name":"search"}}"#);
    assert_eq!(proxy.send(unnamed).assert_status(429).json()["id"], Value::Null);
}

#[test]
fn batch_is_charged_whole_or_not_at_all() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &["calls: { per: [caller, mcp.tool], rate: 3/hour }"]);
    let batch = |tools: &[&str]| {
        let calls = tools.iter().enumerate().map(|(id, tool)| {
            let mut call = call(tool);
            call["id"] = json!(id);
            call
        });
        send(&Value::Array(calls.collect()))
    };
    proxy.send(batch(&["a", "b", "a"])).assert_status(200);
    let denied = proxy.send(batch(&["b", "a", "a"]));
    let ids: Vec<Value> = denied
        .assert_status(429)
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["id"].clone())
        .collect();
    assert_eq!(ids, [json!(0), json!(1), json!(2)]);
    // Nothing was taken of b.
    proxy.send(batch(&["b", "b", "a"])).assert_status(200);
    proxy.send(batch(&["b"])).assert_status(429);
    proxy.send(batch(&vec!["c"; 33])).assert_status(400);
}

#[test]
fn tools_have_their_costs() {
    let upstream = Upstream::start();
    let costs = "calls: { per: caller, rate: 10/hour, cost: { mcp: { tools/call: 1, tools: { render: 6 }, \
                 resources/read: 2, default: 0 } } }";
    let proxy = proxy(&upstream, &[costs]);
    let remaining = |message: &Value, expected: &str| {
        proxy
            .send(send(message))
            .assert_status(200)
            .assert_field("x-ratelimit-remaining", expected);
    };
    remaining(&message("initialize", &json!({})), "10");
    remaining(&message("prompts/get", &json!({ "name": "render" })), "10");
    remaining(&call("render"), "4");
    remaining(&message("resources/read", &json!({ "uri": "a" })), "2");
    proxy.send(send(&call("render"))).assert_status(429);
    remaining(&call("search"), "1");
    // What cannot be read costs as much as the dearest call.
    proxy.send(send_text("{")).assert_status(429);
}

#[test]
fn field_that_names_another_tool_than_the_body_is_refused() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &[BY_TOOL]);
    let with = |method: &str, name: &str| {
        send(&call("render"))
            .field("mcp-protocol-version", "2026-07-28")
            .field("mcp-method", method)
            .field("mcp-name", name)
    };
    proxy.send(with("tools/call", "render")).assert_status(200);
    proxy.send(with("tools/call", "=?base64?cmVuZGVy?=")).assert_status(200);
    let new = send(&call("render")).field("mcp-protocol-version", "2026-07-28");
    for lie in [
        with("tools/call", "search"),
        with("tools/call", "Render"),
        with("tools/list", "render"),
        with("tools/call", "render").field("mcp-name", "render"),
        new.clone(),
        new.field("mcp-method", "tools/call"),
        send(&call("render")).field("mcp-method", "ping"),
    ] {
        let refused = proxy.send(lie);
        refused.assert_status(400).assert_field("content-type", "application/json");
        let error = refused.json();
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(-32020)), "{error}");
    }
    proxy.send(send(&call("render"))).assert_status(429);
}

#[test]
fn what_two_readers_may_see_otherwise_is_refused() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &[BY_TOOL]);
    for body in [
        r#"{"id":1,"method":"ping","method":"tools/call","params":{"name":"render"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"render","name":"search"}}"#,
        r#"{"id":1,"Method":"tools/call","method":"ping","params":{"name":"render"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"search","NAME":"render"}}"#,
        r#"[{"id":1,"method":"ping"},{"id":2,"method":7}]"#,
    ] {
        let refused = proxy.send(send_text(body));
        let error = refused.assert_status(400).json();
        assert_eq!(error["error"]["code"], json!(-32600), "{body}: {error}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn message_that_cannot_be_read_is_the_dearest_and_shares_a_counter() {
    let upstream = Upstream::start();
    let costs = "core: { per: caller, rate: 100/hour, cost: { mcp: { tools: { render: 25 }, default: 1 } } }";
    let calls = "calls: { per: [caller, mcp.tool], rate: 100/hour }";
    let proxy = proxy(&upstream, &[costs, calls]);
    let render = r#"{"id":1,"method":"tools/call","params":{"\ud800":0,"name":"render"}}"#;
    let remaining = |request: Request, expected: &str| {
        proxy.send(request).assert_status(200).assert_field("x-ratelimit-remaining", expected);
    };
    // Half of a surrogate pair hides no name beside it.
    remaining(send_text(render), "75");
    let nested = format!(r#"[{{"method":"notifications/a"}},[{render}]]"#);
    remaining(send_text(&nested), "50");
    let utf7 = r#"{"id":1,"method":"tools/call","params":{"name":"+AHI-ender"}}"#;
    let utf7 = post("/mcp", utf7).field("content-type", "application/json; charset=utf-7");
    remaining(utf7.by("alice"), "25");
    let padded = format!("{}{}", call("search"), " ".repeat(66_000));
    remaining(send_text(&padded), "0");
    proxy.send(send_text(&padded)).assert_status(429);
}

#[test]
fn padding_evades_no_limit_by_tool() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &["calls: { per: [caller, mcp.tool], rate: 1/hour }"]);
    let padded = send_text(&format!("{}{}", call("search"), " ".repeat(66_000)));
    proxy.send(padded.clone()).assert_status(200);
    proxy.send(padded).assert_status(429);
}

#[test]
fn old_clients_may_be_denied_with_a_good_status() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["calls: { per: [caller, mcp.tool], rate: 1/hour }"])
        .routes(&["{ match: { path: /mcp }, limits: [calls] }"])
        .responses(&["mcp_denied_status: 200"]);
    let proxy = Proxy::start(&policy);
    proxy.send(send(&call("a"))).assert_status(200);
    let denied = proxy.send(send(&call("a")).field("mcp-protocol-version", "2025-11-25"));
    assert_eq!(denied.assert_status(200).json()["error"]["code"], json!(429));
    let new = send(&call("a"))
        .field("mcp-protocol-version", "2026-07-28")
        .field("mcp-method", "tools/call")
        .field("mcp-name", "a");
    proxy.send(new).assert_status(429);
}

#[test]
fn calls_are_counted_over_http_2_too() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, &["calls: { per: [caller, mcp.tool], rate: 1/hour }"]);
    let authorization = format!("Bearer {}", token("alice"));
    let send = |tool: &str| {
        http::Request::post("http://api.example.com/mcp")
            .header("authorization", &authorization)
            .body(call(tool).to_string())
            .unwrap()
    };
    let [one, two, other] = &http2(proxy.address(), vec![send("a"), send("a"), send("b")])[..]
    else {
        panic!("three answers")
    };
    assert_eq!((one.status(), other.status()), (http::StatusCode::OK, http::StatusCode::OK));
    let denied: Value = serde_json::from_slice(two.body()).unwrap();
    assert_eq!((two.status().as_u16(), &denied["id"]), (429, &json!(7)));
}

#[test]
fn limit_counts_per_member_of_the_body() {
    let upstream = Upstream::start();
    let proxy =
        proxy(&upstream, &["one: { per: [caller, body.model], rate: 1/hour, on_missing: deny }"]);
    for (body, status) in [
        (r#"{"model":"a"}"#, 200),
        (r#"{"stream":true,"model":"\u0061"}"#, 429),
        (r#"{"model":"b"}"#, 200),
        (r#"{"model":7}"#, 200),
        (r#"{"model":7.0}"#, 429),
        (r#"{"model":"a","model":"c"}"#, 400),
        (r#"{"Model":"c"}"#, 400),
        (r#"{"model":null}"#, 403),
        (r#"{"model":{}}"#, 403),
        (r#"{"model":""}"#, 403),
        ("model=c", 403),
        ("", 403),
    ] {
        let answered = proxy.send(send_text(body));
        assert_eq!(answered.status, status, "{body}:\n{answered:?}");
    }
}
