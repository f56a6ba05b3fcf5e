//! Who may pass a route.

use crate::{draft::EVERYBODY, flow::Flow};

/// Who may pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guard {
    /// The issuers of which a good token is needed: names, and what their tokens have as `iss`.
    pub(crate) issuers: Vec<(String, String)>,
    /// Whether a request without a token passes as well.
    pub(crate) is_optional: bool,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) cors: Option<Flow>,
}

impl Guard {
    /// Nobody.
    pub(crate) fn closed() -> Self {
        let deny = EVERYBODY.map(str::to_owned).into();
        Guard { deny, ..Guard::default() }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.deny.iter().any(|own| own == "0.0.0.0/0")
    }

    /// The route with it.
    pub(crate) fn on(&self, route: Flow) -> Flow {
        let names = Flow::list(self.issuers.iter().map(|(name, _)| name.clone()));
        let auth = match (self.issuers.is_empty(), self.is_optional) {
            (true, _) => "none".into(),
            (false, true) => Flow::fields([("optional", names)]),
            (false, false) => Flow::fields([("required", names)]),
        };
        route
            .with("auth", auth)
            .with_list("allow", self.allow.iter().cloned())
            .with_list("deny", self.deny.iter().cloned())
            .with_some("cors", self.cors.clone())
    }
}

/// Issuers of tokens, as the policy has them.
#[derive(Debug, Default)]
pub(crate) struct Issuers(Vec<(String, Flow)>);

impl Issuers {
    /// The name of an issuer with these fields, which is added if it is not there.
    pub(crate) fn name(&mut self, written: &str, fields: Flow) -> String {
        if let Some((name, _)) = self.0.iter().find(|(_, own)| *own == fields) {
            return name.clone();
        }
        let is_taken = |name: &str| self.0.iter().any(|(own, _)| own == name);
        let numbered = (2..).map(|number| format!("{written}-{number}"));
        let mut names = std::iter::once(written.to_owned()).chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap_or_default();
        self.0.push((name.clone(), fields));
        name
    }

    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// The section of the policy. Callers are named by `sub`, and by their addresses.
    pub(crate) fn section(&self) -> Option<Flow> {
        let issuer = |(name, fields): &(String, Flow)| match fields {
            Flow::Fields(fields) => {
                let mut all = vec![("name".to_owned(), Flow::from(name.clone()))];
                all.extend(fields.iter().cloned());
                Flow::Fields(all)
            }
            other => other.clone(),
        };
        let caller =
            |name: &str, key: &str| Flow::fields([("name", name.into()), ("key", key.into())]);
        (!self.0.is_empty()).then(|| {
            Flow::fields([
                ("jwt", Flow::List(self.0.iter().map(issuer).collect())),
                (
                    "callers",
                    Flow::List(vec![caller("user", "jwt.sub"), caller("anonymous", "client.ip")]),
                ),
            ])
        })
    }
}
