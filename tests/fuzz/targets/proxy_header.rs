//! Any bytes as a PROXY header: what was decided about the first of them is not changed by those
//! that follow, and never more than the bound is waited for or taken.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_wire::proxy_protocol::{MAX_BYTES, Source, parse};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    for length in 0..bytes.len() {
        match parse(&bytes[..length]) {
            Ok(None) => {}
            decided => assert_eq!(decided, whole, "after {length} bytes"),
        }
    }
    match whole {
        Ok(None) => assert!(bytes.len() < MAX_BYTES, "more than the bound is waited for"),
        Ok(Some(header)) => {
            assert!(header.length <= bytes.len().min(MAX_BYTES));
            if header.length > 0 {
                assert_eq!(parse(&bytes[..header.length - 1]), Ok(None), "less would have done");
            }
            if let Source::Address(address) = header.source {
                assert_eq!(address, address.to_canonical());
            }
        }
        Err(_) => {}
    }
});
