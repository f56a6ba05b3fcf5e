//! The one test binary: what only a whole proxy can show.
