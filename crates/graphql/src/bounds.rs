//! How long and how deep requests may be. Those that people and tools write are far below.

/// The most requests of a batch.
pub(crate) const MAX_BATCH: usize = 100;

/// The longest document, in bytes. The parser's errors may repeat a token once a level.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// The most tokens of a document, spaces and comments included. Apollo's router takes 15,000.
pub(crate) const MAX_TOKENS: usize = 50_000;

/// The most selection sets within each other, those of fragments included, and the most values
/// within a set. The introspection that tools ask for has 15.
pub(crate) const MAX_DEPTH: usize = 64;
