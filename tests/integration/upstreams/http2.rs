//! Servers in HTTP/2: streams, trailers, both ways at once; and servers that refuse or leave.

use std::{
    future::{pending, poll_fn},
    io::Write,
    net::TcpListener,
    sync::Arc,
    thread,
};

use bytes::Bytes;
use h2::{Reason, server::Builder};
use http::{HeaderMap, Method, Request, Response};
use tokio::{runtime, sync::Notify, time::timeout};

use super::{
    before_urls,
    fakes::{Certificates, Fake, Stream},
    until,
};
use crate::support::{
    PATIENCE, Proxy, Request as Http1Request, Signal, Upstream,
    frames::{self, Frames},
    get, http2, post,
};

fn before(server: &Fake, fields: &str) -> Proxy {
    let fields = format!("protocol: h2, {fields}");
    Proxy::start(&before_urls(&[&server.url()], fields.trim_end_matches(", ")))
}

async fn answer_ok(stream: Stream) {
    stream.answer(200, "ok");
}

/// Reads a body whole, and gives it room as it goes.
async fn read(mut body: h2::RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut whole = Vec::new();
    while let Some(data) = body.data().await {
        let Ok(data) = data else { return (whole, None) };
        let _ = body.flow_control().release_capacity(data.len());
        whole.extend(data);
    }
    (whole, body.trailers().await.ok().flatten())
}

#[test]
fn via_of_a_response_says_that_it_came_in_http2() {
    let server = Fake::http2(&Builder::new(), answer_ok);
    let policy = before_urls(&[&server.url()], "protocol: h2");
    let proxy = Proxy::with_settings("workers: 1\nvia: edge-1", &[&policy]);
    proxy.get("/").assert_status(200).assert_field("via", "2 edge-1");
    assert_eq!(server.seen.last().headers()["via"], "1.1 edge-1");
}

#[test]
fn requests_share_a_connection() {
    let server = Fake::http2(&Builder::new(), answer_ok);
    let proxy = before(&server, "");
    let mut client = proxy.connect();
    for _ in 0..5 {
        assert_eq!(client.send(&get("/a?b=c").field("te", "trailers")).text(), "ok");
    }
    assert_eq!((server.seen.count(), server.seen.connections()), (5, 1));
    let seen = server.seen.last();
    assert_eq!(seen.uri().to_string(), "http://api.example.com/a?b=c");
    assert_eq!(seen.headers().get("te").map(|value| value.as_bytes()), Some(&b"trailers"[..]));
    for name in ["host", "connection", "transfer-encoding", "upgrade"] {
        assert!(!seen.headers().contains_key(name), "{name}");
    }
}

#[test]
fn requests_that_come_at_once_share_the_first_connection() {
    let server = Fake::http2(&Builder::new(), answer_ok);
    let policy = before_urls(&[&server.url()], "protocol: h2, retries: off");
    let proxy = Proxy::with_settings("workers: 1", &[&policy]);
    let request = || http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    let answers = http2(proxy.address(), (0..49).map(|_| request()).collect());
    assert!(answers.iter().all(|answer| answer.status() == 200), "{answers:?}");
    assert_eq!((server.seen.count(), server.seen.connections()), (49, 1));
}

#[test]
fn body_and_trailers_go_through() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        let Stream { body, mut respond, .. } = stream;
        let (body, trailers) = read(body).await;
        let mut sending = respond.send_response(Response::new(()), false).unwrap();
        sending.send_data(Bytes::from(body), false).unwrap();
        let mut echoed = trailers.unwrap_or_default();
        echoed.insert("grpc-status", "0".parse().unwrap());
        sending.send_trailers(echoed).unwrap();
    });
    let proxy = before(&server, "");
    let mut client = proxy.connect();
    client.write(
        "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntransfer-encoding: chunked\r\n\
         trailer: x-sum\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n",
    );
    let response = client.read();
    assert_eq!(response.text(), "hello");
    // A known length stays known.
    assert_eq!(client.send(&post("/", "y".repeat(20_000))).body.len(), 20_000);
    let length = server.seen.last().headers().get("content-length").cloned();
    assert_eq!(length.unwrap(), "20000");
}

#[test]
fn server_in_tls_is_spoken_to_in_what_it_chooses() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let fields = format!(
        "protocol: h2, retries: off, tls: {{ ca_file: \"{}\" }}",
        certificates.path("ca.pem")
    );
    let server = Fake::http2_tls(certificates.acceptor(&["h2"]), answer_ok);
    let proxy = Proxy::start(&before_urls(&[&server.https_url()], &fields));
    proxy.get("/").assert_status(200);
    assert_eq!(server.seen.last().uri().scheme_str(), Some("https"));

    // One that does not choose it does not speak it.
    let server = Fake::tls(certificates.acceptor(&[]));
    let proxy = Proxy::start(&before_urls(&[&server.https_url()], &fields));
    proxy.get("/").assert_status(502);
    assert_eq!(server.seen.count(), 0);
}

#[test]
fn more_requests_than_streams_take_more_connections() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Fake::http2(Builder::new().max_concurrent_streams(2), move |stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            if stream.path == "/held" {
                held.notified().await;
            }
            stream.answer(200, "ok");
        }
    });
    let proxy = before(&server, "");
    let mut clients: Vec<_> = (0..5).map(|_| proxy.connect()).collect();
    for (count, client) in (1..).zip(&mut clients) {
        client.write(get("/held").revalidating().to_bytes());
        until("it was asked", || server.seen.count() == count);
    }
    assert_eq!(server.seen.connections(), 3);
    for client in &mut clients {
        go.notify_one();
        go.notify_waiters();
        client.read().assert_status(200);
    }
}

#[test]
fn request_waits_for_a_stream_where_no_more_connections_may_be_made() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Fake::http2(Builder::new().max_concurrent_streams(1), move |stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            if stream.path == "/held" {
                held.notified().await;
            }
            stream.answer(200, "ok");
        }
    });
    let proxy = before(&server, "max_connections: 1, queue: { size: 2, timeout: 10s }");
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    until("it was asked", || server.seen.count() == 1);
    let mut others: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    others.iter_mut().for_each(|client| client.write(get("/").to_bytes()));
    proxy.get("/").assert_status(503).assert_field("retry-after", "1");
    assert_eq!(server.seen.count(), 1);
    go.notify_one();
    first.read().assert_status(200);
    for client in &mut others {
        client.read().assert_status(200);
    }
    assert_eq!(server.seen.connections(), 1);
}

#[test]
fn refused_stream_is_tried_again_whatever_the_request() {
    for request in [get("/"), post("/", ""), Http1Request::new("PATCH", "/")] {
        let server = Fake::http2(&Builder::new(), |mut stream: Stream| async move {
            match stream.number {
                1 => stream.respond.send_reset(Reason::REFUSED_STREAM),
                _ => stream.answer(200, "ok"),
            }
        });
        let proxy = before(&server, "");
        proxy.send(request).assert_status(200);
        assert_eq!(server.seen.count(), 2);
    }
}

#[test]
fn broken_stream_is_tried_again_only_if_the_request_may_be_repeated() {
    for (request, status, count) in [(get("/"), 200, 2), (post("/", "x"), 502, 1)] {
        let server = Fake::http2(&Builder::new(), |mut stream: Stream| async move {
            match stream.number {
                1 => stream.respond.send_reset(Reason::INTERNAL_ERROR),
                _ => stream.answer(200, "ok"),
            }
        });
        let proxy = before(&server, "");
        proxy.send(request).assert_status(status);
        assert_eq!(server.seen.count(), count);
    }
}

/// See `http2::requests::pseudo_fields_in_trailers_go_nowhere`.
#[test]
fn pseudo_fields_in_trailers_do_not_reach_an_http2_server_either() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        let Stream { body, mut respond, path, .. } = stream;
        let (whole, trailers) = read(body).await;
        let received_trailers: Vec<_> = trailers.iter().flat_map(HeaderMap::iter).collect();
        let is_right = path == "/"
            && whole == b"hello"
            && matches!(received_trailers[..], [(name, _)] if name == "x-sum");
        let status = if is_right { 200 } else { 500 };
        let head = Response::builder().status(status).body(()).unwrap();
        let _ = respond.send_response(head, true);
    });
    let proxy = before(&server, "");
    for pseudo in [(":path", "/admin"), (":method", "DELETE"), (":authority", "b.example")] {
        let mut frames = Frames::open(proxy.address());
        frames.write(frames::head(1, 0, &frames::POST));
        frames.write(frames::frame(frames::DATA, 0, 1, "hello"));
        frames.write(frames::head(1, frames::END_STREAM, &[pseudo, ("x-sum", "5")]));
        assert_eq!(frames.read_status(1), Some(200), "{pseudo:?}");
    }
}

/// Answers with so many interim responses first.
async fn hint(mut stream: Stream, times: usize) {
    for _ in 0..times {
        let hint = Response::builder().status(103).header("link", "</a.css>").body(()).unwrap();
        if stream.respond.send_informational(hint).is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    stream.answer(200, "ok");
}

#[test]
fn storm_of_interim_responses_is_a_502() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| hint(stream, 10_000));
    let proxy = before(&server, "");
    proxy.get("/").assert_status(502);
    // Nor is it asked again.
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn storm_that_never_ends_is_a_502_before_there_is_no_more_time() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| hint(stream, usize::MAX));
    let proxy = before(&server, "response_timeout: 1h");
    proxy.get("/").assert_status(502);
}

#[test]
fn interim_responses_are_no_storm() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| hint(stream, 30));
    let proxy = before(&server, "");
    let mut client = proxy.connect();
    for _ in 0..50 {
        client.send(&get("/")).assert_status(200);
    }
    assert_eq!(server.seen.connections(), 1);
}

/// What HTTP/1.1 servers may not answer either.
#[test]
fn response_that_could_be_read_in_two_ways_is_a_502() {
    let server = Fake::http2(&Builder::new(), |mut stream: Stream| async move {
        let answer = |status: u16, lengths: &[&str]| {
            let lengths = lengths.iter();
            lengths.fold(Response::builder().status(status), |head, length| {
                head.header("content-length", *length)
            })
        };
        let (head, is_whole) = match stream.path.as_str() {
            "/list" => (answer(304, &["5, 5"]), true),
            "/two" => (answer(304, &["5", "6"]), true),
            "/list-of-two" => (answer(200, &["5, 6"]), true),
            "/status" => (answer(600, &["0"]), true),
            "/reset" => (answer(205, &[]), false),
            "/reset-long" => (answer(205, &["2"]), false),
            _ => panic!("asked for {}", stream.path),
        };
        let Ok(mut body) = stream.respond.send_response(head.body(()).unwrap(), is_whole) else {
            return;
        };
        if !is_whole {
            let _ = body.send_data(Bytes::from_static(b"ok"), true);
        }
    });
    let proxy = before(&server, "");
    for path in ["/list", "/two", "/list-of-two", "/status", "/reset", "/reset-long"] {
        for method in ["GET", "HEAD"] {
            if method == "HEAD" && path.starts_with("/reset") {
                continue;
            }
            let answered = proxy.send(Http1Request::new(method, path));
            assert_eq!(answered.status, 502, "{method} {path}: {answered:?}");
        }
    }
}

#[test]
fn equal_lengths_become_one() {
    let server = Fake::http2(&Builder::new(), |mut stream: Stream| async move {
        let head = Response::builder().status(200);
        let head = head.header("content-length", "5").header("content-length", "5");
        let _ = stream.respond.send_response(head.body(()).unwrap(), true);
    });
    let proxy = before(&server, "");
    let answered = proxy.send(Http1Request::new("HEAD", "/"));
    answered.assert_status(200).assert_field("content-length", "5");
}

#[test]
fn server_that_leaves_finishes_what_it_has_and_gets_no_more() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Fake::http2(&Builder::new(), move |stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            if stream.path == "/held" {
                stream.leave.notify_one();
                held.notified().await;
            }
            stream.answer(200, "ok");
        }
    });
    let proxy = before(&server, "");
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    until("it was asked", || server.seen.count() == 1);
    // Without a body: one that was sent to who then leaves cannot be sent again.
    for _ in 0..5 {
        proxy.send(post("/", "")).assert_status(200);
    }
    go.notify_one();
    first.read().assert_status(200);
    assert!((2..=3).contains(&server.seen.connections()));
}

#[test]
fn client_that_leaves_ends_its_stream_and_no_other() {
    let reset = Signal::default();
    let go = Arc::new(Notify::new());
    let seen_reset = reset.clone();
    let held = Arc::clone(&go);
    let server = Fake::http2(&Builder::new(), move |mut stream: Stream| {
        let reset = seen_reset.clone();
        let held = Arc::clone(&held);
        async move {
            match stream.path.as_str() {
                "/left" => {
                    let reason = poll_fn(|context| stream.respond.poll_reset(context)).await;
                    assert_eq!(reason.unwrap(), Reason::CANCEL);
                    reset.open();
                }
                _ => {
                    held.notified().await;
                    stream.answer(200, "ok");
                }
            }
        }
    });
    let proxy = before(&server, "");
    let mut stays = proxy.connect();
    let mut leaves = proxy.connect();
    stays.write(get("/stays").to_bytes());
    leaves.write(get("/left").to_bytes());
    until("it was asked", || server.seen.count() == 2);
    drop(leaves);
    reset.wait();
    go.notify_one();
    stays.read().assert_status(200);
    assert_eq!(server.seen.connections(), 1);
}

#[test]
fn bodies_stream_both_ways_at_once() {
    // Echoes each chunk before it reads the next.
    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        let Stream { mut body, mut respond, .. } = stream;
        let mut sending = respond.send_response(Response::new(()), false).unwrap();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            sending.send_data(data, false).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        sending.send_trailers(trailers).unwrap();
    });
    let proxy = before(&server, "");
    let talking = async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = Request::builder()
            .method(Method::POST)
            .uri("http://api.example.com/echo")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (response, mut sending) = sender.send_request(request, false).unwrap();
        // The head of the response comes before anything of the body is sent.
        let mut body = response.await.unwrap().into_body();
        for word in ["one", "two", "three"] {
            sending.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
            let received = body.data().await.unwrap().unwrap();
            assert_eq!(received, word);
        }
        sending.send_data(Bytes::new(), true).unwrap();
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, talking).await.expect("it takes too long") });
}

#[test]
fn server_of_another_kind_is_a_502() {
    let server = Upstream::refusing();
    let proxy = Proxy::start(&before_urls(&[&server.url()], "protocol: h2"));
    proxy.get("/").assert_status(502);
    for answer in ["HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(answer.as_bytes());
        });
        let proxy = Proxy::start(&before_urls(&[&url], "protocol: h2, retries: off"));
        proxy.get("/").assert_status(502);
        answering.join().unwrap();
    }
}

#[test]
fn server_that_says_nothing_is_a_504() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let proxy = Proxy::start(&before_urls(&[&url], "protocol: h2, connect_timeout: 200ms"));
    proxy.get("/").assert_status(504);

    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        pending::<()>().await;
        drop(stream);
    });
    let proxy = before(&server, "response_timeout: 200ms");
    proxy.get("/").assert_status(504);
}

#[test]
fn cost_is_charged_though_the_client_has_hung_up() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Fake::http2(&Builder::new(), move |mut stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            let response = Response::builder().header("x-cost", "20").body(()).unwrap();
            let _ = stream.respond.send_response(response, true);
        }
    });
    let policy = before_urls(&[&server.url()], "protocol: h2")
        .core("rate: 100/hour, cost: { reserve: 4, from_response_header: x-cost }");
    let proxy = Proxy::start(&policy);
    let mut client = proxy.connect();
    client.write(get("/").by("alice").to_bytes());
    until("it was asked", || server.seen.count() == 1);
    drop(client);
    proxy.wait_until_logged(" 499 ");
    assert_eq!(proxy.used("alice", "core"), 4);
    go.notify_one();
    until("its cost is charged", || proxy.used("alice", "core") == 20);
}

#[test]
fn long_stream_of_one_worker_holds_up_no_other() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Fake::http2(&Builder::new(), move |stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            if stream.path == "/held" {
                held.notified().await;
            }
            stream.answer(200, "ok");
        }
    });
    let fields = "protocol: h2, max_connections: 1, queue: { timeout: 1s }";
    let policy = before_urls(&[&server.url()], fields);
    let proxy = Proxy::with_settings("workers: 3", &[&policy]);
    // Connections go to the worker that has the fewest, so these are on all of them.
    let mut clients: Vec<_> = (0..6).map(|_| proxy.connect()).collect();
    clients[0].write(get("/held").to_bytes());
    until("it was asked", || server.seen.count() == 1);
    for _ in 0..3 {
        for client in &mut clients[1..] {
            client.send(&get("/")).assert_status(200);
        }
    }
    // Nor its own.
    assert_eq!(server.seen.connections(), 3);
    go.notify_one();
    clients[0].read().assert_status(200);
}

#[test]
fn body_that_a_server_does_not_read_ends_and_no_other_stream_with_it() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Fake::http2(&Builder::new(), move |stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            match stream.path.as_str() {
                // Its window stays as small as it is.
                "/stuck" => {
                    pending::<()>().await;
                    drop(stream);
                }
                "/held" => {
                    held.notified().await;
                    stream.answer(200, "ok");
                }
                _ => stream.answer(200, "ok"),
            }
        }
    });
    let policy = |fields: &str| {
        before_urls(&[&server.url()], &format!("protocol: h2, retries: off, {fields}"))
    };
    // What is held began while it had more time.
    let proxy = Proxy::start(&policy("response_timeout: 1h"));
    let mut stays = proxy.connect();
    stays.write(get("/held").to_bytes());
    until("it was asked", || server.seen.count() == 1);
    proxy.install(&[&policy("response_timeout: 200ms")]);
    let mut stuck = proxy.connect();
    stuck.write(post("/stuck", vec![b'x'; 200_000]).to_bytes());
    stuck.read().assert_status(504);
    assert_eq!(server.seen.connections(), 1);
    // It takes no part of the connection's window from others for ever: that is given up.
    until("requests have another connection", || {
        proxy.get("/").assert_status(200);
        server.seen.connections() == 2
    });
    assert_eq!(server.seen.closed(), 0, "what is held goes on");
    go.notify_one();
    stays.read().assert_status(200);
    until("it is closed", || server.seen.closed() == 1);
    proxy.get("/").assert_status(200);
}

#[test]
fn body_that_a_server_does_not_go_on_with_is_reset_and_no_other_stream() {
    let go = Arc::new(Notify::new());
    let reset = Signal::default();
    let held = Arc::clone(&go);
    let seen_reset = reset.clone();
    let server = Fake::http2(&Builder::new(), move |stream: Stream| {
        let held = Arc::clone(&held);
        let reset = seen_reset.clone();
        async move {
            let Stream { mut respond, path, .. } = stream;
            let mut sending = respond.send_response(Response::new(()), false).unwrap();
            sending.send_data(Bytes::from_static(b"he"), false).unwrap();
            match path.as_str() {
                "/stuck" => {
                    let reason = poll_fn(|context| sending.poll_reset(context)).await;
                    assert_eq!(reason.unwrap(), Reason::CANCEL);
                    reset.open();
                }
                _ => {
                    held.notified().await;
                    sending.send_data(Bytes::from_static(b"re"), true).unwrap();
                }
            }
        }
    });
    let policy =
        |idle: &str| before_urls(&[&server.url()], &format!("protocol: h2, idle_timeout: {idle}"));
    let proxy = Proxy::start(&policy("1h"));
    let mut stays = proxy.connect();
    let mut stuck = proxy.connect();
    stays.write(get("/held").to_bytes());
    assert_eq!(stays.read_head().status, 200);
    proxy.install(&[&policy("200ms")]);
    stuck.write(get("/stuck").to_bytes());
    assert_eq!(stuck.read_head().status, 200);
    assert!(!stuck.read_to_end().ends_with(b"0\r\n\r\n"), "it is not whole");
    reset.wait();
    go.notify_one();
    assert_eq!(stays.read_chunk().unwrap(), b"he");
    assert_eq!(stays.read_chunk().unwrap(), b"re");
    assert_eq!(stays.read_chunk(), None);
    assert_eq!(server.seen.connections(), 1);
}
