//! What is known of a client's connection, for the rooms that serve its requests.
//!
//! The server opens and closes connections, and fills this in; the gate, the upstream and the
//! bodies of responses read it. So nothing of what serves a request has to know the server.

mod admission;
mod client_chain;
mod cut_off;
mod faults;
mod handshakes;
mod in_flight;
mod interim;
mod pace;
mod peer;
mod writing;

pub use self::{
    admission::{Admission, ConnectionPermit, NotAdmitted, client_number},
    client_chain::ClientChain,
    cut_off::CutOff,
    faults::{Fault, Faults},
    handshakes::{Handshake, HandshakeFailure, Handshakes},
    in_flight::InFlight,
    interim::{Interim, InterimEdits},
    pace::{PART_BYTES, Pace},
    peer::{Misdirected, NotGood, Peer},
    writing::Writing,
};
