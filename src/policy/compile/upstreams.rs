//! Upstreams: one server each, and how long it may take.

use std::{num::NonZeroU32, time::Duration};

use http::{HeaderValue, Uri};

use super::Compiler;
use crate::{
    policy::{Server, Upstream, file::RawUpstream},
    yaml::Spanned,
};

impl Compiler<'_> {
    pub(super) fn upstream(
        &mut self,
        name: &Spanned<String>,
        raw: &RawUpstream,
    ) -> Option<Upstream> {
        let [server] = raw.servers.value.as_slice() else {
            let (message, help) = match raw.servers.value.is_empty() {
                true => ("an upstream needs a server", "write `servers: [http://127.0.0.1:9000]`"),
                false => ("several servers an upstream are not supported yet", "write one server"),
            };
            self.refuse(raw.servers.span, message, help);
            return None;
        };
        let server = self.server(server);
        let connect_timeout = self.duration(raw.connect_timeout.as_ref(), Duration::from_secs(2));
        let response_timeout =
            self.duration(raw.response_timeout.as_ref(), Duration::from_secs(60));
        let idle_timeout = self.duration(raw.idle_timeout.as_ref(), Duration::from_secs(60));
        Some(Upstream {
            connect_timeout: connect_timeout?,
            response_timeout: response_timeout?,
            idle_timeout: idle_timeout?,
            ..Upstream::new(&name.value, vec![server?])
        })
    }

    fn server(&mut self, raw: &Spanned<String>) -> Option<Server> {
        const HELP: &str = "write `http://host:port`";
        let refuse =
            |compiler: &mut Self, message: String| compiler.refuse(raw.span, message, HELP);
        if raw.value.starts_with("https://") {
            refuse(self, "https to an upstream is not supported yet".into());
            return None;
        }
        let uri = match raw.value.parse::<Uri>() {
            Ok(uri) if uri.scheme_str() == Some("http") => uri,
            _ => {
                refuse(self, format!("`{}` is not the address of a server", raw.value));
                return None;
            }
        };
        let authority = uri.authority()?;
        let is_bare = raw.value.ends_with(authority.as_str());
        if authority.as_str().contains('@') || !is_bare {
            refuse(self, "a server is a host and a port, nothing more".into());
            return None;
        }
        Some(Server {
            weight: NonZeroU32::MIN,
            authority: HeaderValue::from_str(authority.as_str()).ok()?,
            host: authority.host().trim_matches(['[', ']']).into(),
            port: authority.port_u16().unwrap_or(80),
        })
    }
}
