//! How an input is cut, for readers that get it in pieces.

/// Pieces of these lengths, and the rest.
pub fn cut<'s>(mut rest: &'s [u8], lengths: &[u8]) -> Vec<&'s [u8]> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, after) = rest.split_at(usize::from(*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}
