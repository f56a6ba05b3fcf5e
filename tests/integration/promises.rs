//! What the pages promise about paths, addresses, identity fields, keys, audit lines, guards and
//! bounds, and at each door the test that shows it.
//!
//! The lock of the front door is of no use if another door lacks it. So a promise names, for every
//! door, a test, or why it is no matter there; and a sentence of these pages is a promise of the
//! table, or says no more than where something is explained.

mod askers_only;
mod bad_paths;
mod bounds;

use std::fs;

use crate::docs::{Page, root};

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// Requests by HTTP/1.1.
    Http1,
    /// Requests by HTTP/2.
    Http2,
    /// Traefik, Caddy and HAProxy ask: `/decide/forward`.
    Forward,
    /// nginx asks: `/decide/nginx`.
    Nginx,
    /// Envoy's filter `ext_authz` asks.
    Envoy,
    /// Envoy's filter `ratelimit` asks.
    Descriptors,
    /// Programs call over HTTP: `/v1/…`.
    Programs,
    /// Programs send commands of the Redis protocol.
    Commands,
    /// The admin listener.
    Admin,
}

use Door::{Admin, Commands, Descriptors, Envoy, Forward, Http1, Http2, Nginx, Programs};

const ALL: [Door; 9] =
    [Http1, Http2, Forward, Nginx, Envoy, Descriptors, Programs, Commands, Admin];
const FRONT: &[Door] = &[Http1, Http2];
const ASKERS: &[Door] = &[Forward, Nginx, Envoy];
/// No request of an API passes them.
const OTHERS: &[Door] = &[Descriptors, Programs, Commands, Admin];

/// Why a promise holds at a door.
#[derive(Clone, Copy)]
enum Shown {
    /// This test shows it.
    By(&'static str),
    /// It is no matter there, because of this.
    Not(&'static str),
}

use Shown::{By, Not};

struct Promise {
    page: &'static str,
    /// Words of that page, as they stand in its source, but for line breaks.
    words: &'static str,
    at: &'static [(&'static [Door], Shown)],
}

const NO_PATH: (&[Door], Shown) = (OTHERS, Not("no path of an API is judged there"));
const NO_FIELDS: (&[Door], Shown) = (OTHERS, Not("nothing is forwarded, and no field is believed"));

const PROMISES: &[Promise] = &[
    // Paths.
    Promise {
        page: "docs/policy.md",
        words: "**What is forwarded** is the normal form",
        at: &[
            (
                FRONT,
                By(
                    "askers::targets::target_that_was_judged_in_another_form_is_refused_by_every_asker",
                ),
            ),
            (
                ASKERS,
                By(
                    "askers::targets::target_that_was_judged_in_another_form_is_refused_by_every_asker",
                ),
            ),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/policy.md",
        words: "An encoded slash, a backslash and control characters are refused",
        at: REFUSED_PATHS,
    },
    Promise {
        page: "docs/policy.md",
        words: "there an escape in what the pattern spells out is 400",
        at: &[
            (FRONT, Not("what comes in here is forwarded as the pattern spells it")),
            (ASKERS, By("askers::targets::asker_is_refused_an_escape_in_what_a_route_spells_out")),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/policy.md",
        words: "so is a path with dot segments or repeated slashes",
        at: &[
            (FRONT, Not("what comes in here is forwarded in its normal form")),
            (
                ASKERS,
                By(
                    "askers::targets::target_that_was_judged_in_another_form_is_refused_by_every_asker",
                ),
            ),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/policy.md",
        words: "An encoded backslash is always refused",
        at: REFUSED_PATHS,
    },
    Promise {
        page: "docs/policy.md",
        words: "overlong UTF-8, which only ever hides a character",
        at: REFUSED_PATHS,
    },
    Promise {
        page: "docs/policy.md",
        words: "make no difference between a character and its escape",
        at: &[
            (FRONT, By("promises::bad_paths::character_is_its_escape_at_every_door")),
            (ASKERS, By("promises::bad_paths::character_is_its_escape_at_every_door")),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/policy.md",
        words: "**It stands for any text within that segment, and for none**",
        at: &[
            (FRONT, By("promises::bad_paths::part_of_a_segment_is_guarded_at_every_door")),
            (ASKERS, By("promises::bad_paths::part_of_a_segment_is_guarded_at_every_door")),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/policy.md",
        words: "and routes and counters read paths as it does",
        at: &[
            (
                &[Http1, Http2, Forward],
                By(
                    "readings::spelling_that_a_framework_takes_for_a_path_is_no_way_around_its_route",
                ),
            ),
            (&[Nginx, Envoy], Not("heads of all who ask are judged by one code")),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/policy.md",
        words: "`%00` to `%1F`, `%7F`, and these characters themselves",
        at: REFUSED_PATHS,
    },
    Promise { page: "docs/policy.md", words: "`%u002e` | 400 | servers differ", at: REFUSED_PATHS },
    Promise {
        page: "docs/policy.md",
        words: "dots for a server that decodes twice",
        at: REFUSED_PATHS,
    },
    Promise {
        page: "docs/policy.md",
        words: "dots for a server that cuts names off there",
        at: REFUSED_PATHS,
    },
    Promise {
        page: "docs/policy.md",
        words: "look-alikes (fullwidth and others) that some servers fold to dots and slashes",
        at: REFUSED_PATHS,
    },
    Promise {
        page: "docs/policy.md",
        words: "servlet containers drop parameters before they look for dots",
        at: &[
            (FRONT, By("promises::bad_paths::spelling_of_a_guarded_path_is_guarded_at_every_door")),
            (
                ASKERS,
                By("promises::bad_paths::spelling_of_a_guarded_path_is_guarded_at_every_door"),
            ),
            NO_PATH,
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "Escapes may be written in any way (`/%61`, `%c3` and `%C3`)",
        at: &[
            (FRONT, By("askers::targets::target_whose_characters_are_spelled_otherwise_is_judged")),
            (
                ASKERS,
                By("askers::targets::target_whose_characters_are_spelled_otherwise_is_judged"),
            ),
            NO_PATH,
        ],
    },
    // Addresses.
    Promise {
        page: "docs/edge.md",
        words: "From all other peers these fields are removed",
        at: &[
            (FRONT, By("forwarding::fields::client_says_its_address_in_no_field")),
            (&[Envoy], By("askers::addresses::envoy_removes_what_the_proxy_removes")),
            (&[Forward, Nginx], Not("the proxy that asks removes them: tests/beside/run.py")),
            NO_FIELDS,
        ],
    },
    Promise {
        page: "docs/edge.md",
        words: "Names that become one of them where servers make variables of names (CGI, WSGI, PHP) are removed as well",
        at: &[
            (FRONT, By("askers::identity::alias_of_an_identity_field_is_refused_by_every_asker")),
            (&[Envoy], By("askers::addresses::envoy_removes_what_the_proxy_removes")),
            (
                &[Forward, Nginx],
                By("askers::identity::alias_of_an_identity_field_is_refused_by_every_asker"),
            ),
            NO_FIELDS,
        ],
    },
    Promise {
        page: "docs/edge.md",
        words: "No trailer carries any of them",
        at: &[
            (FRONT, By("identity::forged::trailers_tell_the_upstream_no_more_than_heads")),
            (ASKERS, Not("trailers stay with the proxy that asks")),
            NO_FIELDS,
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "The client is the last address in `X-Forwarded-For` that is no trusted proxy",
        at: &[
            (FRONT, By("identity::address::untrusted_peer_cannot_choose_its_address")),
            (
                ASKERS,
                By("askers::addresses::only_x_forwarded_for_says_who_the_client_of_an_asker_is"),
            ),
            (
                &[Descriptors, Programs, Commands],
                Not("the client is who asks, whatever fields it sends"),
            ),
            (&[Admin], Not("an address is looked at for its wrong tokens only, and is the peer's")),
        ],
    },
    // Identity.
    Promise {
        page: "docs/decisions.md",
        words: "A field whose name servers that make variables of names take for one of these, such as `X_Tollgate_Subject`",
        at: &[
            (FRONT, By("askers::identity::alias_of_an_identity_field_is_refused_by_every_asker")),
            (ASKERS, By("askers::identity::alias_of_an_identity_field_is_refused_by_every_asker")),
            NO_FIELDS,
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "`auth: required` lets nobody in where certificates alone name callers",
        at: &[
            (
                FRONT,
                By("tls::callers::certificate_is_the_credential_where_the_policy_knows_no_token"),
            ),
            (
                ASKERS,
                By("tls::callers::certificate_is_the_credential_where_the_policy_knows_no_token"),
            ),
            (OTHERS, Not("no route is taken there")),
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "a preflight is forwarded, and charged to its address, as with `pass`",
        at: &[
            (
                FRONT,
                By(
                    "askers::preflights::preflight_that_would_be_answered_here_is_charged_where_it_is_forwarded",
                ),
            ),
            (
                ASKERS,
                By(
                    "askers::preflights::preflight_that_would_be_answered_here_is_charged_where_it_is_forwarded",
                ),
            ),
            (OTHERS, Not("no route is taken there")),
        ],
    },
    // Who may ask, and pages that may not.
    Promise {
        page: "docs/decisions.md",
        words: "An asker can claim to be any client, so only `askers` may ask",
        at: &[
            (FRONT, Not("everybody is a client")),
            (&[Forward, Nginx], By("promises::askers_only::only_askers_may_ask_at_any_door")),
            (&[Envoy, Descriptors], By("promises::askers_only::only_askers_may_ask_at_any_door")),
            (&[Programs], By("programs::only_askers_may_call")),
            (&[Commands], By("binary::decisions::who_may_not_ask_is_told")),
            (&[Admin], By("binary::admin_access::each_endpoint_wants_the_token_for_it")),
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "A page in the browser of somebody whose address may ask can neither act nor read",
        at: &[
            (FRONT, Not("what pages may do there, `cors` says")),
            (
                &[Forward, Nginx, Envoy],
                By(
                    "askers::pages::fields_of_a_client_are_no_suspicion_against_the_proxy_that_asks",
                ),
            ),
            (&[Descriptors, Programs], By("askers::pages::page_of_another_origin_can_not_act")),
            (
                &[Commands],
                By("binary::decisions::bytes_that_are_no_command_harm_their_own_connection_only"),
            ),
            (&[Admin], By("binary::admin_access::pages_of_other_origins_can_neither_read_nor_act")),
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "`Sec-Fetch-Site`, if sent, must be `same-origin` or `none`, and `Origin` the listener's own. That holds for calls of gRPC, too",
        at: &[
            (FRONT, Not("what pages may do there, `cors` says")),
            (&[Forward, Nginx], Not("these fields are those of the client that is asked about")),
            (&[Envoy, Descriptors], By("askers::pages::grpc_call_of_a_page_is_refused")),
            (&[Programs], By("askers::pages::page_of_another_origin_can_not_read")),
            (&[Commands], Not("it has no fields")),
            (&[Admin], By("binary::admin_access::pages_of_other_origins_can_neither_read_nor_act")),
        ],
    },
    // Bounds of who guesses and who is slow.
    Promise {
        page: "docs/decisions.md",
        words: "Three wrong passwords do too, whatever comes between them",
        at: &[
            (FRONT, By("limits::made_up::whatever_clients_write_themselves_is_bounded")),
            (ASKERS, Not("who asks has an address that may, or a certificate")),
            (&[Descriptors, Programs], Not("who asks has an address that may, or a certificate")),
            (
                &[Commands],
                By("binary::decisions::tries_of_passwords_are_counted_whatever_comes_between"),
            ),
            (&[Admin], By("binary::admin_access::wrong_tokens_cannot_be_tried_without_end")),
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "Who has not said the password within [`timeouts.head`](edge.md#timeouts) is cut, whatever else it says",
        at: &[
            (&[Http1], By("hardening::slow::head_that_trickles_in_is_a_408")),
            (&[Http2], By("hardening::slow::head_that_is_never_whole_ends_an_http2_connection")),
            (
                &[Forward, Nginx, Envoy, Descriptors, Programs],
                Not("workers serve these listeners, as they serve clients"),
            ),
            (
                &[Commands],
                By("binary::decisions::who_says_no_password_in_time_is_cut_whatever_it_sends"),
            ),
            (&[Admin], Not("it has a deadline of its own for each request")),
        ],
    },
    // Audit lines.
    Promise {
        page: "docs/admin.md",
        words: "The log has a line for each reset: who, whom, which limits and why",
        at: &[
            (FRONT, Not("nobody resets anything there")),
            (ASKERS, Not("nobody resets anything there")),
            (&[Descriptors], Not("nobody resets anything there")),
            (&[Programs], By("programs::calls_are_in_the_log_and_among_the_denials")),
            (&[Commands], By("binary::decisions::limits_of_the_policy_are_charged_by_name")),
            (&[Admin], By("binary::admin_access::who_acts_and_who_tries_is_logged_without_tokens")),
        ],
    },
    // Keys that programs name.
    Promise {
        page: "docs/decisions.md",
        words: "count as [client-chosen](stores.md#who-gets-the-room) unless the limit says `verified: true`",
        at: &[
            (FRONT, NO_NAMED_KEY),
            (ASKERS, NO_NAMED_KEY),
            (&[Descriptors], By("descriptors::values_of_descriptors_fill_no_more_than_their_room")),
            (&[Programs, Commands], By("programs::keys_fill_no_more_than_their_room")),
            (&[Admin], NO_NAMED_KEY),
        ],
    },
    Promise {
        page: "docs/decisions.md",
        words: "The log has who has reset which limit, a hash of the key, and why",
        at: &[
            (FRONT, NO_NAMED_KEY),
            (ASKERS, NO_NAMED_KEY),
            (&[Descriptors], Not("Envoy cannot reset a counter")),
            (
                &[Programs, Commands],
                By("binary::decisions::resets_of_programs_are_logged_with_who_asked_and_why"),
            ),
            (&[Admin], By("binary::admin_access::who_acts_and_who_tries_is_logged_without_tokens")),
        ],
    },
    // HTTP/2 clients.
    Promise {
        page: "docs/hardening.md",
        words: "a connection has a budget of 1,000, gets back 100 per second and 32 for each response",
        at: FRAMES,
    },
    Promise {
        page: "docs/hardening.md",
        words: "a head, or trailers, may be 6 KiB larger than twice the bytes that the client sent for it",
        at: GROWTH,
    },
    Promise {
        page: "docs/hardening.md",
        words: "Both count as `flood` in the metric `tollgate_connection_faults_total`",
        at: &[
            (&[Http1], Not("it has no frames")),
            (&[Http2], By("http2::floods::flood_is_counted_and_others_are_served_meanwhile")),
            (
                &[Forward, Nginx, Envoy, Descriptors, Programs],
                Not("workers serve these listeners, by the code of HTTP/2 above"),
            ),
            (&[Commands, Admin], Not("it speaks no HTTP/2")),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "none of these fields reaches a server, in HTTP/1.1 or HTTP/2",
        at: &[
            (&[Http1], Not("it has no pseudo-fields")),
            (&[Http2], By("http2::requests::pseudo_fields_in_trailers_go_nowhere")),
            (ASKERS, Not("trailers stay with the proxy that asks")),
            NO_FIELDS,
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "of more than 19 digits** ends its stream with PROTOCOL_ERROR",
        at: &[
            (&[Http1], Not("there it is 400, as any length that is too large")),
            (&[Http2], By("http2::requests::length_of_more_than_19_digits_ends_its_stream")),
            (
                &[Forward, Nginx, Envoy, Descriptors, Programs],
                Not("workers serve these listeners, by the code of HTTP/2 above"),
            ),
            (&[Commands, Admin], Not("it speaks no HTTP/2")),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "Such a request has no response, and no line in the log",
        at: &[
            (&[Http1], Not("there it is 400, as any length that is too large")),
            (&[Http2], By("http2::requests::length_of_more_than_19_digits_ends_its_stream")),
            (
                &[Forward, Nginx, Envoy, Descriptors, Programs],
                Not("workers serve these listeners, by the code of HTTP/2 above"),
            ),
            (&[Commands, Admin], Not("it speaks no HTTP/2")),
        ],
    },
    // Responses of servers.
    Promise {
        page: "docs/hardening.md",
        words: "A route's `response_headers` change them, too",
        at: &[
            (
                &[Http1],
                By("forwarding::connections::interim_responses_are_changed_as_the_route_says"),
            ),
            (&[Http2], Not("interim responses end here")),
            (ASKERS, Not("responses stay with the proxy that asks")),
            (OTHERS, Not("nothing is forwarded")),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "such as 103 Early Hints, go on where server and client speak HTTP/1.1",
        at: &[
            (
                &[Http1],
                By("forwarding::connections::interim_responses_go_on_to_clients_that_know_them"),
            ),
            (&[Http2], Not("they end here, as the page says")),
            (ASKERS, NO_RESPONSE),
            (OTHERS, NO_RESPONSE),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "A response that two readers could understand in two ways is a 502",
        at: RESPONSES,
    },
    Promise {
        page: "docs/hardening.md",
        words: "a length that is given in two ways",
        at: RESPONSES,
    },
    Promise {
        page: "docs/hardening.md",
        words: "a line of a head in HTTP/1.1 that ends with a bare line feed",
        at: &[
            (FRONT, By("forwarding::ambiguous_responses::bare_line_feeds_in_a_head_are_a_502")),
            (ASKERS, NO_RESPONSE),
            (OTHERS, NO_RESPONSE),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "more than 32 interim responses (1xx) to one request, or 128 KiB before the response",
        at: &[
            (FRONT, By("forwarding::ambiguous_responses::storm_of_interim_responses_is_a_502")),
            (ASKERS, NO_RESPONSE),
            (OTHERS, NO_RESPONSE),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "a switch to a protocol that was not requested, a status above 599, a head of more than 64 KiB",
        at: &[
            (FRONT, By("forwarding::ambiguous_responses::upgrade_that_was_not_asked_for_is_a_502")),
            (ASKERS, NO_RESPONSE),
            (OTHERS, NO_RESPONSE),
        ],
    },
    Promise {
        page: "docs/hardening.md",
        words: "a 205 with content",
        at: &[
            (FRONT, By("forwarding::ambiguous_responses::reset_content_with_content_is_a_502")),
            (ASKERS, NO_RESPONSE),
            (OTHERS, NO_RESPONSE),
        ],
    },
];

const REFUSED_PATHS: &[(&[Door], Shown)] = &[
    (FRONT, By("promises::bad_paths::path_that_is_refused_is_refused_at_every_door")),
    (ASKERS, By("promises::bad_paths::path_that_is_refused_is_refused_at_every_door")),
    NO_PATH,
];

const NO_NAMED_KEY: Shown = Not("no key is named there");

const NO_RESPONSE: Shown = Not("no server's response passes it");

const RESPONSES: &[(&[Door], Shown)] = &[
    (FRONT, By("forwarding::ambiguous_responses::two_ways_to_tell_a_length_are_a_502")),
    (ASKERS, NO_RESPONSE),
    (OTHERS, NO_RESPONSE),
];

const FRAMES: &[(&[Door], Shown)] = &[
    (&[Http1], Not("it has no frames")),
    (&[Http2], By("http2::floods::pings")),
    (
        &[Forward, Nginx, Envoy, Descriptors, Programs],
        By("promises::bounds::flood_at_a_listener_for_decisions_ends_its_connection"),
    ),
    (&[Commands, Admin], Not("it speaks no HTTP/2")),
];

const GROWTH: &[(&[Door], Shown)] = &[
    (&[Http1], Not("heads are as long as they came")),
    (&[Http2], By("http2::floods::heads_that_grow_on_this_side")),
    (
        &[Forward, Nginx, Envoy, Descriptors, Programs],
        Not("workers serve these listeners, by the code of HTTP/2 above"),
    ),
    (&[Commands, Admin], Not("it speaks no HTTP/2")),
];

/// What the whole of a page, or of a section, promises.
const SECTIONS: &[(&str, &str)] = &[
    ("docs/hardening.md", "## HTTP/2 clients"),
    ("docs/hardening.md", "## Responses of servers"),
    ("docs/policy.md", "## Paths"),
    ("docs/edge.md", "## The client's address"),
    ("docs/decisions.md", "### Web pages"),
];

/// How paragraphs and rows of these sections begin that promise nothing, or what a promise of the
/// table explains.
const EXPLANATIONS: &[&str] = &[
    "`CF-Connecting-IP`, ",
    "| `paths` | default |",
    "| --- |",
    "| in a path |",
    "| `/a/../b`",
    "| `/a;x=1/b`",
    "| `%2F` | 400",
    "| `/a/%7euser`",
    "| `/a%40b`",
    "In a pattern, ",
    "| `/a/.../b`",
    "- `Host` must be",
    "- A POST has no",
    "Everything else is a 403",
];

/// Without line breaks.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The paragraphs, list entries and rows below a heading, up to the next one.
fn parts(page: &Page, heading: &str) -> Vec<String> {
    let (_, rest) = page.text.split_once(&format!("{heading}\n")).expect(heading);
    let end = rest.find("\n#").unwrap_or(rest.len());
    let mut parts: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in rest[..end].lines() {
        let begins = line.starts_with("- ") || line.starts_with("| ");
        match parts.last_mut().filter(|_| is_open && !begins) {
            Some(last) if !line.is_empty() => *last += &format!(" {}", line.trim()),
            _ if !line.is_empty() => parts.push(line.trim().to_owned()),
            _ => {}
        }
        is_open = !line.is_empty();
    }
    parts
}

/// Whether a module of this test binary has this test.
fn has_test(path: &str) -> bool {
    let (module, name) = path.rsplit_once("::").expect(path);
    let file = format!("tests/integration/{}.rs", module.replace("::", "/"));
    let Ok(text) = fs::read_to_string(root().join(file)) else { return false };
    let mut tests = text.split("#[test]\n").skip(1);
    tests.any(|after| after.trim_start().starts_with(&format!("fn {name}(")))
}

#[test]
fn each_promise_is_what_its_page_says() {
    for Promise { page, words, .. } in PROMISES {
        let text = flowing(&Page::read(page).text);
        assert!(text.contains(words), "{page} does not say: {words}");
    }
}

#[test]
fn each_promise_has_a_test_at_each_door() {
    for Promise { words, at, .. } in PROMISES {
        for door in ALL {
            let shown: Vec<&Shown> = at
                .iter()
                .filter(|(doors, _)| doors.contains(&door))
                .map(|(_, shown)| shown)
                .collect();
            match shown.as_slice() {
                [By(test)] => {
                    assert!(has_test(test), "{words}\nat {door:?}: there is no test {test}")
                }
                [Not(why)] => assert!(!why.is_empty(), "{words}\nat {door:?}"),
                [] => panic!("{words}\nis shown by no test at {door:?}"),
                _ => panic!("{words}\nis there twice for {door:?}"),
            }
        }
    }
}

#[test]
fn each_sentence_that_promises_is_in_the_table() {
    for (page, heading) in SECTIONS {
        let page = Page::read(page);
        for part in parts(&page, heading) {
            let is_promised = PROMISES.iter().any(|promise| part.contains(promise.words));
            let is_explained = EXPLANATIONS.iter().any(|begin| part.starts_with(begin));
            assert!(is_promised || is_explained, "{}: no promise has this: {part}", page.path);
        }
    }
}
