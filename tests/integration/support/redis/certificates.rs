//! Certificates for a server and a client on loopback, of an authority that no other test trusts.

use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A folder with `ca.pem`, `server.pem`, `server.key`, `client.pem` and `client.key`.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates { folder };
        certificates.make("ca", &["-subj", "/CN=test authority"]);
        let signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext"];
        let is_leaf = "basicConstraints=critical,CA:FALSE";
        for (name, subject) in [("server", "/CN=server"), ("client", "/CN=client")] {
            let names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"];
            certificates
                .make(name, &[&["-subj", subject], &signed[..], &[is_leaf], &names].concat());
        }
        certificates
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn make(&self, name: &str, arguments: &[&str]) {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("the tests need openssl: {error}"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}
