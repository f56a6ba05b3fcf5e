//! Responses to calls of gRPC that this proxy serves itself.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};

use super::{
    body::Body,
    grpc::{APPLICATION_GRPC, GRPC_STATUS, GrpcCode, write_code},
};

/// The response with a message, which is in its frame.
pub fn call_response(message: Bytes) -> Response<Body> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS.clone(), HeaderValue::from_static("0"));
    let mut response = Response::new(Body::call(message, trailers));
    response.headers_mut().insert(header::CONTENT_TYPE, APPLICATION_GRPC.clone());
    response
}

/// The response without a message.
pub fn call_error(code: GrpcCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    write_code(code, message, response.headers_mut());
    response
}
