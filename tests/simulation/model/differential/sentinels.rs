//! A Sentinel, asked for a primary.

use super::{
    super::{Address, Sentinel, Watched},
    real::{RealServer, command},
    states::assert_has_lines,
};

#[test]
fn sentinel_names_a_primary_as_that_of_redis_does() {
    let watched = RealServer::start(&[]);
    let mut real = RealServer::start_sentinel(watched.port);
    let mut model = Sentinel::new(Address::new("127.0.0.1", real.port), 0);
    let primary = Address::new("127.0.0.1", watched.port);
    model.services.insert("main".to_owned(), Watched { primary, epoch: 0 });
    let mut session = model.connect();
    let mut both = |words: &[&str]| {
        let reply = model.handle(&mut session, &command(words));
        (real.execute(words), session.encode(&reply))
    };
    // Each has an ID of its own for a connection.
    both(&["HELLO", "3"]);
    for words in [
        &["PING"][..],
        &["TIME"],
        &["INFO", "replication"],
        &["HELLO", "4"],
        &["SENTINEL"],
        &["SENTINEL", "get-master-addr-by-name", "main"],
        &["sentinel", "GET-MASTER-ADDR-BY-NAME", "none"],
        &["SENTINEL", "MASTER", "none"],
        &["SENTINEL", "typo", "main"],
        &["GET", "a"],
    ] {
        let (expected, found) = both(words);
        assert_eq!(
            found.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{words:?}"
        );
    }
    let (expected, found) = both(&["INFO", "server"]);
    assert_has_lines(&expected, &found);
    let (expected, found) = both(&["SENTINEL", "MASTER", "main"]);
    let [expected, found] = [expected, found].map(|reply| String::from_utf8(reply).unwrap());
    // The model's Sentinel does not tell all of it.
    let (_, fields) = found.split_once("\r\n").unwrap();
    let lines: Vec<&str> = fields.lines().collect();
    for field in lines.chunks(4) {
        assert!(expected.contains(&field.join("\r\n")), "{field:?} in {expected}");
    }
}
