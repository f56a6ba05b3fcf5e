//! What programs and Envoy ask at the listeners of workers, which is no request to be judged.

use http::{HeaderValue, Request, Response, StatusCode, header};
use tollgate_gate::Gate;
use tollgate_response::{Body, GrpcCode, call_error, is_grpc_call, problem};
use tollgate_upstream::{
    ClientBody,
    downstream::{NotGood, Peer},
};

use super::{
    calls::Operation,
    envoy::{RemoteCall, answer_remote},
    programs::answer_program,
};

/// A question that a request of HTTP asks.
pub(crate) enum Question {
    /// A program calls.
    Program(Operation),
    /// Envoy calls by gRPC.
    Remote(RemoteCall),
}

impl Question {
    /// What a request to this path asks of a listener; none: it is a request as any other.
    pub(crate) fn of(path: &str, peer: &Peer) -> Option<Question> {
        let asked = peer.listener.asked.as_ref()?;
        let program = Operation::of(path).filter(|_| asked.askers.contains(peer.address));
        program
            .map(Question::Program)
            .or_else(|| RemoteCall::of(path, asked.protocol).map(Question::Remote))
    }

    /// Answers.
    pub(crate) async fn answer(
        self,
        gate: &Gate,
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
