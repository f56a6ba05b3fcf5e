//! When requests are sent: after the others of the same turn were judged.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    net::Ipv4Addr,
    num::NonZeroU32,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Wake, Waker},
    time::Duration,
};

use futures_util::FutureExt;
use http::{HeaderValue, Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpListener,
    task::spawn_local,
};
use tollgate_policy::Server;

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A server, and a worker's connections to it.
struct Bench {
    upstreams: Upstreams,
    upstream: Upstream,
    group: Arc<Group>,
    /// Connections that the server has accepted.
    accepted: Rc<Cell<usize>>,
    /// Requests that it has received.
    received: Rc<Cell<usize>>,
}

impl Bench {
    async fn new() -> Rc<Bench> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = Server {
            host: Ipv4Addr::LOCALHOST.to_string().as_str().into(),
            port: listener.local_addr().unwrap().port(),
            weight: NonZeroU32::MIN,
            authority: HeaderValue::from_static("a"),
        };
        let upstream = Upstream::new("u", vec![server]);
        let bench = Rc::new(Bench {
            upstreams: Upstreams::new(Rc::new(Ticker::new(Duration::MAX, None))),
            group: Group::new(&upstream),
            upstream,
            accepted: Rc::default(),
            received: Rc::default(),
        });
        let (accepted, received) = (Rc::clone(&bench.accepted), Rc::clone(&bench.received));
        spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                accepted.set(accepted.get() + 1);
                let received = Rc::clone(&received);
                spawn_local(async move {
                    let mut head = Vec::new();
                    while stream.read_buf(&mut head).await.unwrap() > 0 {
                        if head.ends_with(b"\r\n\r\n") {
                            received.set(received.get() + 1);
                            head.clear();
                            stream.write_all(OK).await.unwrap();
                        }
                    }
                });
            }
        });
        bench
    }

    /// Forwards a request, which sets `sent` when it is sent.
    async fn forward(&self, request: Request<Incoming>, sent: &Rc<Cell<bool>>) {
        let destination = Destination { upstream: &self.upstream, group: &self.group };
        let sender = Sender { caller: 0, client: None };
        let (head, incoming) = request.into_parts();
        let body = ClientBody { sent: Some(Rc::clone(sent)), ..incoming.into() };
        let response = self.upstreams.forward(destination, sender, head, body, None).await;
        assert_eq!(response.unwrap().status(), 200);
    }

    fn counts(&self) -> [usize; 2] {
        [self.accepted.get(), self.received.get()]
    }
}

/// Serves a client's request, which is there at once.
async fn serve(serve_one: impl AsyncFn(Request<Incoming>)) {
    let (mut client, server): (DuplexStream, _) = duplex(4096);
    client.write_all(GET).await.unwrap();
    let serve_one = service_fn(async |request| {
        serve_one(request).await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(server), serve_one)
        .await
        .unwrap();
}

/// Two requests of one turn. Returns how many were sent when each was judged.
async fn two_of_one_turn(bench: &Rc<Bench>) -> Vec<usize> {
    let sent: Rc<[Rc<Cell<bool>>; 2]> = Rc::default();
    let seen: Rc<RefCell<Vec<usize>>> = Rc::default();
    let tasks = [0, 1].map(|place| {
        let (bench, sent, seen) = (Rc::clone(bench), Rc::clone(&sent), Rc::clone(&seen));
        spawn_local(async move {
            serve(async |request| {
                seen.borrow_mut().push(sent.iter().filter(|sent| sent.get()).count());
                bench.forward(request, &sent[place]).await;
            })
            .await;
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert!(sent.iter().all(|sent| sent.get()));
    seen.take()
}

/// How often a task was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn run(test: impl AsyncFnOnce(Rc<Bench>)) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default()).unwrap();
    runtime.block_on(async {
        let bench = Bench::new().await;
        two_of_one_turn(&bench).await;
        assert_eq!(bench.counts(), [2, 2], "two connections are kept");
        test(bench).await;
    });
}

#[test]
fn requests_of_one_turn_are_judged_before_either_is_sent() {
    run(async |bench| assert_eq!(two_of_one_turn(&bench).await, [0, 0]));
}

#[test]
fn request_that_is_alone_waits_for_nothing() {
    run(async |bench| {
        serve(async |request| {
            let sent = Rc::default();
            let mut forward = pin!(bench.forward(request, &sent));
            let wakes = Arc::<Wakes>::default();
            let waker = Waker::from(Arc::clone(&wakes));
            let mut context = Context::from_waker(&waker);
            assert!(forward.as_mut().poll(&mut context).is_pending());
            assert_eq!((wakes.0.load(Ordering::Relaxed), sent.get()), (1, false));
            assert!(forward.as_mut().poll(&mut context).is_pending());
            assert!(sent.get());
            forward.await;
        })
        .await;
    });
}

#[test]
fn request_that_is_abandoned_before_it_is_sent_costs_no_connection() {
    run(async |bench| {
        serve(async |request| {
            let sent = Rc::default();
            assert_eq!(bench.forward(request, &sent).now_or_never(), None);
            assert!(!sent.get());
        })
        .await;
        two_of_one_turn(&bench).await;
        assert_eq!(bench.counts(), [2, 4]);
    });
}
