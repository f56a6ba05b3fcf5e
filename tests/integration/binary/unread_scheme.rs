//! What is logged of clients that show something by a scheme which the policy does not list.

use super::{Folder, Running, text};
use crate::support::{Client, Upstream, get};

#[test]
fn each_scheme_that_is_not_listed_is_warned_of_once_without_the_value() {
    let upstream = Upstream::start();
    let folder = Folder::before(&upstream);
    let listeners = "listeners: [{ address: 127.0.0.1:0 }]";
    folder.write("tollgate.yaml", &format!("version: 1\n{listeners}\nworkers: 2\n"));
    let (running, address) = Running::serve(&folder);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    for number in 0..20 {
        for client in &mut clients {
            for value in [
                "token s3cret-of-mine".to_owned(),
                "Basic czNjcmV0".into(),
                "s3cret-of-mine".into(),
                format!("s3cret-{number} x"),
            ] {
                client.send(&get("/").field("authorization", &value)).assert_status(401);
            }
        }
    }
    drop(clients);
    running.signal("TERM");
    let output = running.finish();
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("s3cret") && !stderr.contains("czNjcmV0"), "{stderr}");
    let mut warnings: Vec<&str> = stderr.lines().filter(|line| line.contains("a scheme")).collect();
    warnings.sort_by_key(|line| line.find("scheme=").map(|at| &line[at..]));
    assert_eq!(warnings.len(), 3, "{stderr}");
    for (line, scheme) in
        warnings.iter().zip(["\"Basic\"", "\"one that is not known\"", "\"token\""])
    {
        for part in ["WARN", "policy=api", "identity.token.schemes", &format!("scheme={scheme}")] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}
