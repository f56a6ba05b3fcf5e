//! Any text as a policy file: it compiles, or there are problems to read; and where it compiles,
//! every path in normal form takes the first route that matches it.

#![no_main]

use std::{net::IpAddr, path::Path};

use http::Method;
use libfuzzer_sys::fuzz_target;
use tollgate_policy::{Policies, Request, RequestPath, load};
use tollgate_yaml::Sources;
use tollgate_wire::target::{EncodedSlash, normalize_path, plain_form};

const PATHS: [&str; 6] =
    ["/", "/healthz", "/search/%C3%A4", "/repos/octo/hello/pulls", "/a;v=1/b", "/.x/"];

fuzz_target!(|text: &str| {
    let sources =
        Sources::system().with_variable("SECRET", "a secret of more than 32 bytes, is it not");
    let policy = match load(Path::new("policy.yaml"), text, &sources) {
        Ok(policy) => policy,
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a word");
            assert!(problems.iter().all(|problem| !problem.to_string().trim().is_empty()));
            return;
        }
    };
    let policies = Policies::new(vec![policy]);
    for host in [None, Some("api.example.com"), Some("other.test")] {
        let Some(policy) = policies.for_host(host) else { continue };
        let names = policy.routes.iter().map(|route| &*route.name);
        for raw in names.chain(PATHS) {
            let Ok(path) = normalize_path(raw, policy.encoded_slash) else { continue };
            assert_eq!(
                normalize_path(&path, EncodedSlash::Keep).as_deref(),
                Ok(&*path),
                "of {raw}"
            );
            let addresses: [IpAddr; 2] = [[192, 0, 2, 1].into(), [0_u16; 8].into()];
            for (method, address) in [Method::GET, Method::POST].into_iter().zip(addresses) {
                let plain = plain_form(&path);
                let path = RequestPath::new(&path, &plain);
                let request = Request { host, path, method: &method, address };
                let first = policy.router.differences(request).position(|parts| parts.is_empty());
                assert_eq!(policy.router.route(request), first, "{method} {plain}");
                assert_eq!(policy.route(request).is_some(), first.is_some());
            }
        }
    }
});
