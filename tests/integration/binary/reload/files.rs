//! Each way of changing a file, with real files. Each is done twice: a watch that is lost with the
//! first change does not see the second.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::symlink,
    path::Path,
};

use super::{EVENTS, ON_REQUEST, POLL, Served, folder, with_limit};
use crate::support::{Upstream, eventually};

/// A way of changing the policy of a folder.
struct Way {
    name: &'static str,
    /// What has to be there before the program starts.
    prepare: fn(&Path),
    /// The folder, how often it was changed, and what is to be in the file.
    change: fn(&Path, usize, &str),
}

const FILE: &str = "policies/api.yaml";

const WAYS: &[Way] = &[
    Way {
        name: "written in place",
        prepare: |_| {},
        change: |f, _, text| write(&f.join(FILE), text),
    },
    Way {
        name: "written in place, in pieces",
        prepare: |_| {},
        change: |f, _, text| {
            let mut file = File::create(f.join(FILE)).unwrap();
            for piece in text.as_bytes().chunks(40) {
                file.write_all(piece).unwrap();
            }
        },
    },
    Way {
        name: "written beside and renamed",
        prepare: |_| {},
        change: |f, _, text| {
            write(&f.join("policies/.api.yaml.new"), text);
            fs::rename(f.join("policies/.api.yaml.new"), f.join(FILE)).unwrap();
        },
    },
    Way {
        name: "old file moved away first",
        prepare: |_| {},
        change: |f, _, text| {
            fs::rename(f.join(FILE), f.join("policies/api.yaml~")).unwrap();
            write(&f.join(FILE), text);
            fs::remove_file(f.join("policies/api.yaml~")).unwrap();
        },
    },
    Way {
        name: "deleted and created",
        prepare: |_| {},
        change: |f, _, text| {
            fs::remove_file(f.join(FILE)).unwrap();
            write(&f.join(FILE), text);
        },
    },
    Way {
        name: "mounted ConfigMap",
        prepare: |f| {
            fs::rename(f.join("policies"), f.join("..0")).unwrap();
            fs::create_dir(f.join("policies")).unwrap();
            fs::rename(f.join("..0"), f.join("policies/..0")).unwrap();
            symlink("..0", f.join("policies/..data")).unwrap();
            symlink("..data/api.yaml", f.join(FILE)).unwrap();
        },
        change: |f, count, text| {
            let old = format!("policies/..{}", count - 1);
            let new = format!("..{count}");
            fs::create_dir(f.join("policies").join(&new)).unwrap();
            write(&f.join("policies").join(&new).join("api.yaml"), text);
            symlink(&new, f.join("policies/..data_tmp")).unwrap();
            fs::rename(f.join("policies/..data_tmp"), f.join("policies/..data")).unwrap();
            fs::remove_dir_all(f.join(old)).unwrap();
        },
    },
    Way {
        name: "folder by a link, which leads to another then",
        prepare: |f| {
            fs::rename(f.join("policies"), f.join("release-0")).unwrap();
            symlink("release-0", f.join("policies")).unwrap();
        },
        change: |f, count, text| {
            let new = format!("release-{count}");
            fs::create_dir(f.join(&new)).unwrap();
            write(&f.join(&new).join("api.yaml"), text);
            symlink(&new, f.join("link")).unwrap();
            fs::rename(f.join("link"), f.join("policies")).unwrap();
        },
    },
    Way {
        name: "folder moved away, and another put in its place",
        prepare: |_| {},
        change: |f, count, text| {
            fs::create_dir(f.join("next")).unwrap();
            write(&f.join("next/api.yaml"), text);
            fs::rename(f.join("policies"), f.join(format!("old-{count}"))).unwrap();
            fs::rename(f.join("next"), f.join("policies")).unwrap();
        },
    },
    Way {
        name: "file by a link, which stays",
        prepare: |f| {
            fs::create_dir(f.join("elsewhere")).unwrap();
            fs::rename(f.join(FILE), f.join("elsewhere/real")).unwrap();
            symlink("../elsewhere/real", f.join(FILE)).unwrap();
        },
        change: |f, _, text| {
            write(&f.join("elsewhere/new"), text);
            fs::rename(f.join("elsewhere/new"), f.join("elsewhere/real")).unwrap();
        },
    },
    Way {
        // What a bind mount of a single file does: the file is there under another name in another
        // folder, where nothing else ever happens.
        name: "written in place under another name",
        prepare: |f| {
            fs::create_dir(f.join("host")).unwrap();
            fs::hard_link(f.join(FILE), f.join("host/api.yaml")).unwrap();
        },
        change: |f, _, text| write(&f.join("host/api.yaml"), text),
    },
];

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
}

fn follow(ways: &[Way], reload: &str) {
    let upstream = Upstream::start();
    for Way { name, prepare, change } in ways {
        let folder = folder(&upstream, reload);
        prepare(folder.path());
        let served = Served::from(folder);
        let policy = served.policy();
        assert_eq!(served.limit(), 1000, "{name}");
        for count in 1..=3 {
            let limit = 1000 + count as u64;
            change(served.folder.path(), count, &with_limit(&policy, limit));
            served.wait_for_limit(limit, &format!("{name}, change {count}"));
        }
    }
}

#[test]
fn system_tells_of_each_way_to_change_a_file() {
    follow(WAYS, EVENTS);
}

#[test]
fn polling_sees_each_way_to_change_a_file() {
    follow(WAYS, POLL);
}

#[test]
fn policy_may_be_a_single_file() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, EVENTS);
    let settings = fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
    folder.write("tollgate.yaml", &format!("{settings}policies: {FILE}\n"));
    let served = Served::from(folder);
    served.folder.write(FILE, &with_limit(&served.policy(), 7000));
    served.wait_for_limit(7000, "the single file is followed");
}

#[test]
fn policies_come_and_go() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, EVENTS);
    let other = with_limit(&served.policy(), 5).replacen(
        "version: 1\n",
        "version: 1\nhosts: [other.example.com]\n",
        1,
    );
    let policies = |served: &Served| served.status()["policies"].as_array().unwrap().len();
    served.folder.write("policies/other.yaml", &other);
    eventually("the new policy is there", || (policies(&served) == 2).then_some(()));
    fs::remove_file(served.folder.path().join("policies/other.yaml")).unwrap();
    eventually("it is gone", || (policies(&served) == 1).then_some(()));
    assert_eq!(served.limit(), 1000);
}

#[test]
fn same_content_again_is_no_change() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, EVENTS);
    let policy = served.policy();
    for _ in 0..20 {
        served.folder.write("policies/.new", &policy);
        let folder = served.folder.path();
        fs::rename(folder.join("policies/.new"), folder.join(FILE)).unwrap();
        served.folder.write("unrelated", "to the configuration");
    }
    served.folder.write("policies/.new", &with_limit(&policy, 2000));
    let folder = served.folder.path();
    fs::rename(folder.join("policies/.new"), folder.join(FILE)).unwrap();
    served.wait_for_limit(2000, "the change at the end is seen");
    assert_eq!(served.generation(), 2);
}

#[test]
fn signal_has_everything_read() {
    let upstream = Upstream::start();
    let mut served = Served::start(&upstream, ON_REQUEST);
    served.running.signal("HUP");
    let line = served.running.wait_for_event("configuration reloaded");
    assert!(line.contains("generation=2"), "{line}");
    served.folder.write(FILE, &with_limit(&served.policy(), 2000));
    assert_eq!(served.limit(), 1000, "files are read only on request");
    served.running.signal("HUP");
    served.running.wait_for_event("configuration reloaded");
    assert_eq!(served.limit(), 2000);
}

#[test]
fn post_to_reload_is_answered_when_the_reload_is_done() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    for round in 1..=3 {
        served.folder.write(FILE, &with_limit(&served.policy(), 1000 + round));
        let done = served.reload();
        done.assert_status(200);
        assert_eq!(done.json()["generation"], 1 + round);
        assert_eq!(served.limit(), 1000 + round, "no waiting: it is done");
    }
    let admin = served.admin.to_string();
    let output = served.folder.run(&["reload", "--admin", &admin]);
    super::super::assert_exit(&output, 0);
    let printed = super::super::text(&output.stdout);
    assert_eq!(printed, "reloaded: generation 5 is in force\n");
}
