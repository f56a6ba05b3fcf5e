//! What programs and Envoy ask at the listeners of workers, which is no request to be judged.

use std::rc::Rc;

use http::{HeaderValue, Request, Response, StatusCode, header};
use tollgate_gate::Gate;
use tollgate_response::{Body, GrpcCode, call_error, is_grpc_call, problem};
use tollgate_settings::AskProtocol;
use tollgate_upstream::{
    ClientBody,
    downstream::{NotGood, Peer},
};
use tollgate_wire::forward_auth::Asker;

use super::{
    calls::Operation,
    envoy::{RemoteCall, answer_remote},
    programs::answer_program,
};

/// What a program reads that asks where nothing is.
const NOWHERE: &str = "Nothing is at this path. Programs ask with POST at /v1/charge, /v1/settle, \
                       /v1/release and /v1/reset, and with GET at /v1/standing; proxies at \
                       /decide/forward and /decide/nginx. Envoy (gRPC, and POST /json) asks at a \
                       listener with `protocol: grpc`, clients of Redis at one with \
                       `protocol: redis`.";

/// A question that a request of HTTP asks.
pub(crate) enum Question {
    /// A program calls.
    Program(Operation),
    /// Envoy calls by gRPC.
    Remote(RemoteCall),
    /// There is nothing at this path of a listener for HTTP.
    Nowhere,
}

impl Question {
    /// What a request to this path asks of a listener; none: it is a request as any other.
    pub(crate) fn of(path: &str, peer: &Peer) -> Option<Question> {
        let asked = peer.listener.asked.as_ref()?;
        let may_call = asked.programs.contains(peer.address);
        if let Some(program) = Operation::of(path).filter(|_| may_call) {
            return Some(Question::Program(program));
        }
        let may_ask = asked.askers.contains(peer.address);
        let is_nowhere = asked.protocol == AskProtocol::Http
            && may_ask
            && ![Asker::Forward, Asker::Nginx].iter().any(|asker| asker.path() == path);
        match is_nowhere {
            true => Some(Question::Nowhere),
            false => RemoteCall::of(path, asked.protocol).map(Question::Remote),
        }
    }

    /// Answers.
    pub(crate) async fn answer(
        self,
        gate: &Rc<Gate>,
        request: Request<ClientBody>,
        peer: &Peer,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if let Err(error) = peer.certificate(gate.shared().clock.now()) {
            return refused(error, is_grpc_call(&parts));
        }
        match self {
            Question::Program(operation) => {
                answer_program(gate, operation, &parts, body, peer).await
            }
            Question::Nowhere => problem(StatusCode::NOT_FOUND, NOWHERE),
            Question::Remote(call) => answer_remote(gate, call, &parts, body, peer).await,
        }
    }
}

/// The answer to a proxy or program whose certificate is no longer good. In HTTP/1.1 the connection
/// ends with it, as one of a client does.
fn refused(error: NotGood, is_call: bool) -> Response<Body> {
    let message = error.to_string();
    if is_call {
        return call_error(GrpcCode::PermissionDenied, &message);
    }
    let mut response = problem(StatusCode::FORBIDDEN, &message);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
