use proptest::prelude::*;

use super::{
    client::{NO_PASSWORD, WRONG_PASSWORD},
    *,
};

const START: Timestamp = Timestamp::from_secs(1_000_000);

/// A listener's commands with one client.
struct Talk {
    engine: Engine,
    session: Session,
    now: Timestamp,
}

impl Talk {
    fn new(password: Option<&str>) -> Talk {
        let engine = Engine::new([7; 16], 10_000, password, START);
        Talk { engine, session: Session::new(5), now: START }
    }

    /// What is sent for these bytes, and whether the connection ends.
    fn send(&mut self, bytes: &[u8]) -> (String, bool) {
        let mut replies = Replies::default();
        let served = self.engine.serve(&mut self.session, bytes, &mut replies, self.now);
        (replies.as_bytes().escape_ascii().to_string().replace("\\'", "'"), served.ends)
    }

    /// The reply to words, as it is on the wire, without its last line end.
    fn say(&mut self, line: &str) -> String {
        let (reply, _) = self.send(&encoded(line));
        reply.strip_suffix(r"\r\n").unwrap().to_owned()
    }

    /// Each line, and its reply.
    fn expect(&mut self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(self.say(line), *expected, "{line}");
        }
    }
}

fn encoded(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

/// Commands and replies, each part of which begins with a line of comment.
const VECTORS: &str = include_str!("../../../tests/decisions/vectors.txt");

#[test]
fn replies_are_those_of_the_originals() {
    let mut talk = Talk::new(None);
    let mut commands = 0;
    for line in VECTORS.lines() {
        match line.split_once(" => ") {
            Some((command, reply)) => {
                talk.expect(&[(command, reply)]);
                commands += 1;
            }
            None if line.starts_with('#') => talk = Talk::new(None),
            None => assert!(line.is_empty(), "{line}"),
        }
    }
    assert!(commands > 50, "{commands}");
}

#[test]
fn bucket_without_a_time_of_the_client_follows_the_clock() {
    let mut talk = Talk::new(None);
    let take = "RL.REDUCE twoPerMin 2 60";
    talk.expect(&[(take, ":2"), (take, ":1"), (take, ":0")]);
    talk.now = START + Duration::from_millis(59_999);
    talk.expect(&[(take, ":0")]);
    talk.now = START + Duration::from_secs(60);
    talk.expect(&[(take, ":2")]);
}

#[test]
fn throttle_replies_as_the_original_does() {
    let mut talk = Talk::new(None);
    let once = "CL.THROTTLE user123 0 1 2 1";
    talk.expect(&[
        (once, r"*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:2"),
        (once, r"*5\r\n:1\r\n:1\r\n:0\r\n:2\r\n:2"),
        ("TTL user123", ":2"),
        ("EXISTS user123 other user123", ":2"),
    ]);
    talk.now = START + Duration::from_secs(2);
    talk.expect(&[
        ("TTL user123", ":-2"),
        ("DEL user123", ":0"),
        (once, r"*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:2"),
        ("DEL user123 other", ":1"),
        (once, r"*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:2"),
        ("CL.THROTTLE readme 15 30 60", r"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2"),
    ]);
    talk.expect(&[
        (
            "cl.throttle k 1 1 1 -1",
            "-Cell error: Store error: Negative quantities are not supported",
        ),
        (
            "cl.throttle k 9223372036854775807 1 1",
            "-Cell error: Store error: Burst, period or quantity is too large",
        ),
    ]);
}

#[test]
fn binary_keys_are_keys() {
    let mut talk = Talk::new(None);
    let take = b"*4\r\n$9\r\nrl.reduce\r\n$4\r\n\xff\x00\r\n\r\n$1\r\n2\r\n$1\r\n9\r\n";
    let throttle =
        b"*5\r\n$11\r\ncl.throttle\r\n$2\r\n\xff\xfe\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n";
    assert_eq!((talk.send(take).0, talk.send(take).0), (r":2\r\n".into(), r":1\r\n".into()));
    assert!(talk.send(throttle).0.starts_with(r"*5\r\n:0\r\n:2\r\n:1\r\n"));
}

#[test]
fn clients_get_what_they_ask_for_when_they_connect() {
    let mut talk = Talk::new(None);
    talk.expect(&[
        ("PING", "+PONG"),
        ("PING hi", r"$2\r\nhi"),
        ("echo hi", r"$2\r\nhi"),
        ("SELECT 0", "+OK"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("CLIENT SETINFO lib-name redis-py", "+OK"),
        ("CLIENT NO-EVICT on", "+OK"),
        ("CLIENT NO-TOUCH on", "+OK"),
        ("CLIENT GETNAME", "$-1"),
        ("CLIENT SETNAME worker", "+OK"),
        ("CLIENT GETNAME", r"$6\r\nworker"),
        ("CLIENT ID", ":5"),
        ("CLIENT KILL", "-ERR unknown subcommand 'KILL' of CLIENT"),
        ("COMMAND COUNT", ":29"),
        ("CONFIG GET save", r"*2\r\n$4\r\nsave\r\n$0\r\n"),
        ("CONFIG GET maxmemory", "*0"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("AUTH hunter2", &format!("-{}", NO_PASSWORD)),
        ("GET a", "-ERR unknown command 'GET'"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
    ]);
    let hello = talk.say("HELLO 3 AUTH default any SETNAME it");
    assert!(hello.starts_with(r"%7\r\n$6\r\nserver\r\n$8\r\ntollgate\r\n"), "{hello}");
    assert!(hello.contains(r"$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:5\r\n$4\r\nmode\r\n"), "{hello}");
    talk.expect(&[("CLIENT GETNAME", r"$2\r\nit"), ("COMMAND INFO get", r"*1\r\n_")]);
    talk.expect(&[("CONFIG GET appendonly", r"%1\r\n$10\r\nappendonly\r\n$2\r\nno")]);
    assert!(talk.say("HELLO 2").starts_with(r"*14\r\n"));
    assert!(talk.say("INFO persistence").contains(r"\r\nloading:0\r\n"));
    assert!(talk.say("COMMAND DOCS").starts_with(r"*58\r\n"));
    talk.expect(&[("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'")]);
    talk.expect(&[("RESET", "+RESET"), ("CLIENT GETNAME", "$-1")]);
    assert_eq!(talk.send(&encoded("QUIT")), (r"+OK\r\n".to_owned(), true));
}

#[test]
fn nothing_is_decided_before_the_password() {
    let mut talk = Talk::new(Some("open sesame"));
    let noauth = "-NOAUTH Authentication required.";
    talk.expect(&[("PING", noauth), ("rl.get a 1 1", noauth), ("nothing", noauth)]);
    assert!(talk.say("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    let auth = |words: &[&str]| {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        bytes.into_bytes()
    };
    let right = auth(&["AUTH", "open sesame"]);
    assert_eq!(talk.send(&right), (r"+OK\r\n".into(), false));
    talk.expect(&[("rl.get a 1 1", ":1"), ("RESET", "+RESET"), ("rl.get a 1 1", noauth)]);
    let hello = auth(&["HELLO", "3", "AUTH", "default", "open sesame"]);
    assert!(talk.send(&hello).0.starts_with("%7"));
    talk.expect(&[("RESET", "+RESET"), ("AUTH somebody x", &format!("-{WRONG_PASSWORD}"))]);
    assert!(!talk.send(&auth(&["AUTH", "somebody", "open sesame"])).1);
    // The third in a row ends the connection.
    assert!(talk.send(&auth(&["HELLO", "2", "AUTH", "default", "wrong"])).1);

    let mut large = Talk::new(Some("open sesame"));
    let long = "x".repeat(600);
    let expected = r"-Protocol Error: Invalid Bulk String length\r\n".to_owned();
    assert_eq!(large.send(&encoded(&format!("AUTH {long}"))), (expected, true));
}

#[test]
fn bytes_that_are_no_command_end_the_connection_after_what_came_before() {
    let mut talk = Talk::new(None);
    let bytes = [&encoded("PING")[..], b"GET / HTTP/1.1\r\n"].concat();
    let expected = r"+PONG\r\n-Protocol Error: Invalid Array length\r\n".to_owned();
    assert_eq!(talk.send(&bytes), (expected, true));
}

#[test]
fn no_command_is_begun_while_replies_pile_up() {
    let mut talk = Talk::new(None);
    let echo = encoded(&format!("ECHO {}", "x".repeat(40_000)));
    let input = echo.repeat(10);
    let mut replies = Replies::default();
    let served = talk.engine.serve(&mut talk.session, &input, &mut replies, START);
    assert_eq!((served.taken, served.is_partial), (2 * echo.len(), false));
    assert!(replies.len() < MAX_REPLIES + 40_100);
}

#[test]
fn keys_past_the_bound_are_forgotten_in_the_end() {
    let mut talk = Talk::new(None);
    for number in 0..12_000 {
        talk.say(&format!("rl.reduce key{number} 5 60"));
    }
    assert!(talk.say("INFO").contains("db0:keys=10000,"));
    assert!(talk.say("INFO").contains("evicted_keys:2000"));
    // By then all are full again, and are swept.
    talk.now = START + Duration::from_secs(60);
    (0..256).for_each(|_| talk.engine.tick(talk.now));
    assert!(talk.say("INFO").contains("db0:keys=0,"));
}

proptest! {
    #[test]
    fn prop_replies_do_not_depend_on_how_input_is_split(
        lines in prop::collection::vec("(rl\\.reduce|rl\\.get|cl\\.throttle|ping|x) [ab] [0-9] [0-9]", 1..20),
        garbage in prop::collection::vec(any::<u8>(), 0..20),
        cuts in prop::collection::vec(0usize..600, 0..10),
    ) {
        let mut input: Vec<u8> = lines.iter().flat_map(|line| encoded(line)).collect();
        input.extend(garbage);
        let at_once = Talk::new(None).send(&input);

        let mut talk = Talk::new(None);
        let (mut replies, mut waiting, mut ends) = (Replies::default(), Vec::new(), false);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < input.len()).collect();
        cuts.push(0);
        cuts.push(input.len());
        cuts.sort();
        for part in cuts.windows(2) {
            if ends { break; }
            waiting.extend_from_slice(&input[part[0]..part[1]]);
            let served = talk.engine.serve(&mut talk.session, &waiting, &mut replies, START);
            waiting.drain(..served.taken);
            ends = served.ends;
        }
        let told = replies.as_bytes().escape_ascii().to_string().replace("\\'", "'");
        prop_assert_eq!((told, ends), at_once);
    }
}

const EXECUTED: &str = r"*2\r\n";

/// All replies to these lines and to what a transaction in them begins, as a connection has it.
fn talk_through(talk: &mut Talk, lines: &[&str]) -> String {
    let mut all = String::new();
    for line in lines {
        all += &talk.send(&encoded(line)).0;
        let begun = talk.session.take_begun();
        all += &talk.send(&begun).0;
    }
    all
}

#[test]
fn commands_of_a_transaction_are_served_at_its_end() {
    let mut talk = Talk::new(None);
    let reduce = "RL.REDUCE a 5 60";
    let replies = talk_through(&mut talk, &["MULTI", reduce, reduce]);
    assert_eq!(replies, r"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    let replies = talk_through(&mut talk, &["EXEC", "RL.GET a 5 60"]);
    assert_eq!(replies, format!(r"{EXECUTED}:5\r\n:4\r\n:3\r\n"));
    let replies = talk_through(&mut talk, &["MULTI", reduce, "DISCARD", "RL.GET a 5 60", "EXEC"]);
    assert_eq!(replies, r"+OK\r\n+QUEUED\r\n+OK\r\n:3\r\n-ERR EXEC without MULTI\r\n");
    assert_eq!(talk_through(&mut talk, &["MULTI", "EXEC"]), r"+OK\r\n*0\r\n");
}

#[test]
fn nothing_of_an_aborted_transaction_is_served() {
    let mut talk = Talk::new(None);
    let reduce = "RL.REDUCE a 5 60";
    for wrong in ["NO.SUCH a", "RL.REDUCE a", "TG.GIVEBACK a b c", "MULTI", "WATCH a", "EXEC now"] {
        let replies = talk_through(&mut talk, &["MULTI", reduce, wrong, reduce, "EXEC"]);
        assert!(replies.starts_with(r"+OK\r\n+QUEUED\r\n-"), "{wrong}: {replies}");
        assert!(
            replies.ends_with(
                r"+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n"
            ),
            "{wrong}: {replies}"
        );
        assert_eq!(talk.say("RL.GET a 5 60"), ":5", "{wrong}");
    }
    talk.expect(&[("DISCARD", "-ERR DISCARD without MULTI"), ("UNWATCH", "+OK")]);
    assert!(talk.say("WATCH a").starts_with("-ERR WATCH is not supported"));
}

#[test]
fn transaction_is_bounded_and_refused_as_a_whole() {
    let mut talk = Talk::new(None);
    talk.say("MULTI");
    for number in 0..=1_000 {
        let expected = if number < 1_000 { "+QUEUED" } else { "-ERR a transaction has at most" };
        assert!(talk.say("RL.REDUCE a 5 60").starts_with(expected), "{number}");
    }
    assert!(talk.say("EXEC").starts_with("-EXECABORT"));
    talk.say("MULTI");
    let long = format!("ECHO {}", "x".repeat(60_000));
    for _ in 0..4 {
        assert_eq!(talk.say(&long), "+QUEUED");
    }
    assert!(talk.say(&long).starts_with("-ERR a transaction has at most"));
    assert_eq!(talk.say("RESET"), "+RESET");
    talk.expect(&[("EXEC", "-ERR EXEC without MULTI"), ("RL.GET a 5 60", ":5")]);
}

#[test]
fn limits_of_the_policies_wait_for_the_end_of_a_transaction() {
    let mut talk = Talk::new(None);
    talk.say("MULTI");
    assert_eq!(talk.say("TG.CHARGE core a"), "+QUEUED");
    assert_eq!(talk.send(&encoded("EXEC")).0, r"*1\r\n");
    let begun = talk.session.take_begun();
    let mut replies = Replies::default();
    let served = talk.engine.serve(&mut talk.session, &begun, &mut replies, START);
    assert!(served.is_named && served.taken == 0, "{served:?}");
}

#[test]
fn stranger_begins_no_transaction() {
    let mut talk = Talk::new(Some("secret"));
    talk.expect(&[("MULTI", "-NOAUTH Authentication required."), ("AUTH secret", "+OK")]);
    talk.expect(&[("EXEC", "-ERR EXEC without MULTI")]);
}
