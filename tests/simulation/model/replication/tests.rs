//! Effects, and what becomes of replicas.

use tollgate_clock::Timestamp;

use super::{super::Reply, *};

/// A primary, and a replica that follows it.
fn pair() -> [Server; 2] {
    let [mut primary, mut replica] =
        [1, 2].map(|port| Server::new(Address::new("redis", port), port.into()));
    replica.follow(Address::new("redis", 1));
    let resync = primary.resync(replica.position());
    replica.accept(resync);
    [primary, replica]
}

fn execute(server: &mut Server, words: &[&str]) {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut session = server.connect();
    server.handle(Timestamp::from_secs(1_000), &mut session, &words);
}

fn missing(primary: &Server, replica: &Server) -> Vec<Effect> {
    primary.effects_after(replica.position().offset).cloned().collect()
}

#[test]
fn effects_come_in_their_order_or_not_at_all() {
    let [mut primary, mut replica] = pair();
    execute(&mut primary, &["SET", "a", "1"]);
    execute(&mut primary, &["GET", "a"]);
    execute(&mut primary, &["SET", "b", "1"]);
    let effects = missing(&primary, &replica);
    assert_eq!(effects.len(), 2, "only what changes something is one");
    assert_eq!(replica.apply(&effects[1]), Err(Gap));
    assert_eq!(replica.apply(&effects[0]), Ok(()));
    assert_eq!(replica.apply(&effects[0]), Err(Gap));
    replica.lose_link();
    assert_eq!(replica.apply(&effects[1]), Err(Gap));
    let resync = primary.resync(replica.position());
    assert!(matches!(&resync, Resync::Partial { effects, .. } if effects.len() == 1));
    replica.accept(resync);
    assert_eq!((replica.keys(), replica.position()), (2, primary.position()));
}

#[test]
fn tail_that_a_promoted_replica_lacks_is_lost() {
    let [mut primary, mut replica] = pair();
    execute(&mut primary, &["SET", "a", "1"]);
    let late = missing(&primary, &replica);
    replica.promote();
    assert_eq!(replica.apply(&late[0]), Err(Gap));
    primary.follow(Address::new("redis", 2));
    let resync = replica.resync(primary.position());
    assert!(matches!(resync, Resync::Full(_)), "it has what its primary has not");
    primary.accept(resync);
    assert_eq!((primary.keys(), primary.position()), (0, replica.position()));
}

#[test]
fn replica_that_was_away_for_long_gets_all_data() {
    let [mut primary, mut replica] = pair();
    replica.lose_link();
    (0..=BACKLOG).for_each(|_| execute(&mut primary, &["SET", "a", "1"]));
    let resync = primary.resync(replica.position());
    assert!(matches!(resync, Resync::Full(_)));
}

#[test]
fn replica_keeps_what_has_expired_until_its_primary_removes_it() {
    let [mut primary, mut replica] = pair();
    execute(&mut primary, &["SET", "a", "1", "PX", "1000"]);
    for effect in missing(&primary, &replica) {
        replica.apply(&effect).unwrap();
    }
    let later = Timestamp::from_secs(1_002);
    let mut session = replica.connect();
    let get = [b"GET".to_vec(), b"a".to_vec()];
    assert_eq!(replica.handle(later, &mut session, &get), Reply::Nil);
    replica.sweep(later);
    assert_eq!(replica.keys(), 1);
    primary.sweep(later);
    for effect in missing(&primary, &replica) {
        replica.apply(&effect).unwrap();
    }
    assert_eq!([primary.keys(), replica.keys()], [0, 0]);
}
