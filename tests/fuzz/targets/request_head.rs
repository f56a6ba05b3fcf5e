//! Any request head: what is refused takes no route, what passes is forwarded with a path in normal
//! form, and no spelling of a path leads around the route that protects it.

#![no_main]

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, LazyLock},
};

use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use libfuzzer_sys::fuzz_target;
use tollgate_clock::{Clock, Timestamp};
use tollgate_gate::Shared;
use tollgate_identity::PublishedKeys;
use tollgate_preview::{Draft, Explanation, Prospect, Rehearsal};
use tollgate_policy::{Policies, is_reserved, load};
use tollgate_yaml::Sources;
use tollgate_wire::target::{EncodedSlash, normalize_path};

const POLICY: &str = include_str!("../policy.yaml");

static POLICIES: LazyLock<Policies> = LazyLock::new(|| {
    let sources =
        Sources::system().with_variable("SECRET", "a secret of more than 32 bytes, is it not");
    let policy = load(Path::new("policy.yaml"), POLICY, &sources);
    Policies::new(vec![policy.unwrap_or_else(|problems| panic!("{}", problems[0]))])
});

fuzz_target!(|text: &[u8]| {
    let Some(draft) = read(text) else { return };
    let explanation = explain(&draft);
    let path = &explanation.request.path;
    match &explanation.prospect {
        Prospect::Forward { target, removes, .. } => {
            assert!(explanation.route.is_some(), "{path} is forwarded without a route");
            assert_eq!(target.split('?').next(), Some(path.as_str()), "another path is forwarded");
            let headers = draft.head.headers.keys();
            let dropped = |name: &&HeaderName| is_reserved(name.as_str());
            let kept =
                headers.filter(dropped).find(|name| !removes.iter().any(|it| it == name.as_str()));
            assert_eq!(kept, None, "a client's own limit header goes on");
        }
        Prospect::Answer { status, .. } => assert_ne!(*status, 500),
    }
    let Some(route) = &explanation.route else { return };
    assert_eq!(normalize_path(path, EncodedSlash::Reject).as_deref(), Ok(path.as_str()));
    let is_private = path == "/private" || path.starts_with("/private/");
    assert_eq!(route.route == "/private/**", is_private, "{path}");
    assert!(
        !is_private || matches!(explanation.prospect, Prospect::Answer { status: 401 | 400, .. })
    );
});

/// `METHOD TARGET VERSION`, then lines of `name: value`.
fn read(text: &[u8]) -> Option<Draft> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut words = lines.next()?.splitn(3, |byte| *byte == b' ');
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    *request.uri_mut() = Uri::try_from(words.next()?).ok()?;
    *request.version_mut() = match words.next() {
        Some(b"2") => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request.headers_mut().append(name, value);
    }
    let (head, ()) = request.into_parts();
    let address = IpAddr::from([203, 0, 113, 7]);
    Some(Draft { head, body: Box::default(), address, token: None })
}

fn explain(draft: &Draft) -> Explanation {
    thread_local! {
        static REHEARSAL: (tokio::runtime::LocalRuntime, Rehearsal) = {
            let clock = Clock::Manual(Arc::new(Timestamp::from_secs(1_790_000_000).as_micros().into()));
            let shared = Arc::new(Shared::rehearsing(None, clock).expect("threads"));
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build_local(Default::default()).expect("a runtime");
            let rehearsal = runtime.block_on(async { Rehearsal::with_fresh_counters(&shared, &PublishedKeys::default()) });
            (runtime, rehearsal)
        };
    }
    REHEARSAL.with(|(runtime, rehearsal)| runtime.block_on(rehearsal.explain(&POLICIES, draft)))
}
