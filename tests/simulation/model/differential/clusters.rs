//! A Redis Cluster of three nodes: who serves what, while a slot is moved and while a replica is
//! read.

use tollgate_clock::Timestamp;

use super::{
    super::{Address, ClusterView, Server, Session, SlotRange},
    real::{RealServer, command},
    states::assert_has_lines,
};

/// The slot of the key `c`. `a` has 15495, and `b` has 3300.
const SLOT_OF_C: u16 = 7365;

/// A node of both clusters.
struct Node {
    real: RealServer,
    model: Server,
    session: Session,
    now: Timestamp,
}

impl Node {
    fn start() -> Node {
        let mut real = RealServer::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-announce-ip",
            "127.0.0.1",
            "--repl-diskless-sync-delay",
            "0",
        ]);
        let mut model = Server::new(address(&real), 0);
        let session = model.connect();
        let now = real.now();
        Node { real, model, session, now }
    }

    /// The reply of the model to a command, which must be that of the real node.
    fn execute(&mut self, words: &[&str]) {
        let expected = self.real.execute(words);
        let found = self.model(words);
        assert_eq!(
            found.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{words:?}"
        );
    }

    fn model(&mut self, words: &[&str]) -> Vec<u8> {
        let reply = self.model.handle(self.now, &mut self.session, &command(words));
        self.session.encode(&reply)
    }

    fn view(&mut self) -> &mut ClusterView {
        self.model.cluster.as_mut().unwrap()
    }

    fn id(&mut self) -> String {
        let reply = String::from_utf8(self.real.execute(&["CLUSTER", "MYID"])).unwrap();
        reply.lines().nth(1).unwrap().to_owned()
    }

    /// A new connection to both.
    fn reconnect(&mut self) {
        self.real.reconnect();
        self.session = self.model.connect();
    }
}

fn address(real: &RealServer) -> Address {
    Address::new("127.0.0.1", real.port)
}

/// Two primaries, and a replica of the first one.
fn cluster() -> [Node; 3] {
    let mut nodes = [Node::start(), Node::start(), Node::start()];
    let [first, second, replica] = &mut nodes;
    let port = first.real.port.to_string();
    first.real.execute(&["CLUSTER", "ADDSLOTSRANGE", "0", "8000"]);
    second.real.execute(&["CLUSTER", "ADDSLOTSRANGE", "8001", "16383"]);
    second.real.execute(&["CLUSTER", "MEET", "127.0.0.1", &port]);
    replica.real.execute(&["CLUSTER", "MEET", "127.0.0.1", &port]);
    for node in [&mut *first, second, replica] {
        node.real.until(&["CLUSTER", "INFO"], "cluster_known_nodes:3");
        node.real.until(&["CLUSTER", "INFO"], "cluster_state:ok");
    }
    let id = first.id();
    replica.real.execute(&["CLUSTER", "REPLICATE", &id]);
    replica.real.until(&["INFO", "replication"], "master_link_status:up");
    let replica_port = format!(":{}\r\n", replica.real.port);
    first.real.until(&["CLUSTER", "SLOTS"], &replica_port);
    second.real.until(&["CLUSTER", "SLOTS"], &replica_port);

    let [one, other, copy] = [&*first, second, replica].map(|node| address(&node.real));
    let ranges = vec![
        SlotRange { slots: 0..=8000, primary: one.clone(), replicas: vec![copy] },
        SlotRange { slots: 8001..=16_383, primary: other, replicas: Vec::new() },
    ];
    for node in &mut nodes {
        let ranges = ranges.clone();
        node.model.cluster = Some(ClusterView { is_ok: true, ranges, ..ClusterView::default() });
    }
    let [first, _, replica] = &mut nodes;
    let resync = first.model.resync(replica.model.position());
    replica.model.follow(one);
    replica.model.accept(resync);
    nodes
}

#[test]
fn slots_are_served_moved_and_read_as_in_redis() {
    let [mut first, mut second, mut replica] = cluster();
    for words in [&["SET", "b", "1"][..], &["SET", "a", "1"], &["SET", "c", "1"]] {
        first.execute(words);
        second.execute(words);
    }
    reports_are_alike(&mut first);
    refusals_are_alike(&mut first);

    let position = replica.model.position().offset;
    let effects: Vec<_> = first.model.effects_after(position).cloned().collect();
    effects.iter().for_each(|effect| replica.model.apply(effect).unwrap());
    replica.real.until(&["DBSIZE"], ":2");
    let get = ["EVAL", "return redis.call('GET', KEYS[1])", "1", "b"];
    let set = ["EVAL", "return redis.call('SET', KEYS[1], '2')", "1", "b"];
    replica.execute(&["GET", "b"]);
    replica.execute(&get);
    replica.execute(&["READONLY"]);
    for words in [&["GET", "b"][..], &["GET", "a"], &["SET", "b", "2"], &get, &set] {
        replica.execute(words);
    }
    slot_is_moved_alike(&mut first, &mut second);
    first.execute(&["SET", "c", "2"]);
    keys_are_moved_alike(&mut first, &mut second);
    slot_is_missing_alike(&mut first);
}

fn reports_are_alike(node: &mut Node) {
    let expected = node.real.execute(&["CLUSTER", "INFO"]);
    let text = String::from_utf8(expected.clone()).unwrap();
    let epoch = text.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    node.view().epoch = epoch.unwrap().parse().unwrap();
    assert_has_lines(&expected, &node.model(&["CLUSTER", "INFO"]));
    // Each node has an ID of its own.
    let without_ids = |slots: &[u8]| {
        let text = String::from_utf8_lossy(slots).into_owned();
        text.lines().filter(|line| line.len() != 40).collect::<Vec<_>>().join("\n")
    };
    let found = node.model(&["CLUSTER", "SLOTS"]);
    let expected = node.real.execute(&["CLUSTER", "SLOTS"]);
    assert_eq!(without_ids(&found), without_ids(&expected));
}

fn refusals_are_alike(node: &mut Node) {
    for words in [
        &["GET", "{b}"][..],
        &["DEL", "b", "{b}1", "1{b}2{a}"],
        &["DEL", "b", "c"],
        &["DEL", "b", "a"],
        &["DEL", "a", "b"],
        &["GET", "{}b"],
        &["GET", "{b"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "b"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "2", "b", "c"],
        &["EVAL", "return redis.call('GET', 'a')", "1", "b"],
        &["EVAL", "return 1", "0"],
        &["EVAL", "return 1", "x"],
        &["SET", "b", "1"],
        &["ASKING"],
        &["CLUSTER", "TYPO"],
        &["CLUSTER"],
    ] {
        node.execute(words);
    }
}

/// The slot of `c` goes from the first node to the second.
fn slot_is_moved_alike(first: &mut Node, second: &mut Node) {
    let (from, to) = (first.id(), second.id());
    let slot = SLOT_OF_C.to_string();
    second.real.execute(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    first.real.execute(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    let target = address(&second.real);
    first.view().migrating.insert(SLOT_OF_C, target);
    second.view().importing.insert(SLOT_OF_C);
    for words in [
        &["GET", "c"][..],
        &["GET", "{c}2"],
        &["SET", "{c}2", "1"],
        &["DEL", "c", "{c}2"],
        &["DEL", "{c}3", "{c}2"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "{c}2"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "2", "{c}2", "c"],
    ] {
        first.execute(words);
        second.execute(words);
        second.execute(&["ASKING"]);
        second.execute(words);
    }
    second.reconnect();
    for words in [&["ASKING"][..], &["GET", "{c}2"], &["GET", "{c}2"]] {
        second.execute(words);
    }
}

/// The keys in the slot of `c` go with it.
fn keys_are_moved_alike(first: &mut Node, second: &mut Node) {
    let port = second.real.port.to_string();
    for key in first.model.keys_in_slot(SLOT_OF_C) {
        let name = String::from_utf8(key.clone()).unwrap();
        let moved = first.real.execute(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]);
        assert_eq!(moved, b"+OK\r\n", "{name}");
        first.model.move_key(&key, &mut second.model);
    }
    assert_eq!(first.model.keys_in_slot(SLOT_OF_C), Vec::<Vec<u8>>::new());
    for words in [&["GET", "c"][..], &["DEL", "c", "{c}2"]] {
        first.execute(words);
        second.execute(words);
        second.execute(&["ASKING"]);
        second.execute(words);
    }
}

/// Nobody has the slot of `b` any more.
fn slot_is_missing_alike(node: &mut Node) {
    node.real.execute(&["CLUSTER", "DELSLOTS", "3300"]);
    node.real.until(&["CLUSTER", "INFO"], "cluster_state:fail");
    let view = node.view();
    view.is_ok = false;
    let rest = SlotRange { slots: 3301..=8000, ..view.ranges[0].clone() };
    view.ranges[0].slots = 0..=3299;
    view.ranges.insert(1, rest);
    let on_c = "return redis.call('GET', 'c')";
    for words in [&["GET", "b"][..], &["GET", "c"], &["EVAL", on_c, "0"], &["PING"]] {
        node.execute(words);
    }
    reports_are_alike(node);
}
