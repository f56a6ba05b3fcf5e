//! How long and how deep requests may be. Those that people and tools write are far below.

/// The most requests of a batch.
pub(crate) const MAX_BATCH: usize = 100;

/// The longest document, in bytes. The parser's errors may repeat a token once a level.
pub(crate) const MAX_BYTES: usize = 128 * 1024;

/// The most tokens of the documents in one body, spaces and comments included: about 10 ms.
/// Apollo's router takes 15,000.
pub(crate) const MAX_TOKENS: usize = 20_000;

/// The most selection sets within each other, those of fragments included, and the most values
/// within a set. The introspection that tools ask for has 15.
pub(crate) const MAX_DEPTH: usize = 64;
