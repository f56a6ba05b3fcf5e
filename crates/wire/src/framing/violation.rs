//! Why a request is refused for its framing, and how that is answered.

/// Why a request is refused. RFC 9112 unless another is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Both ways to say a length (6.1: "ought to be handled as an error").
    #[error("transfer-encoding together with content-length")]
    TwoLengths,
    /// HTTP/1.0 has no transfer codings; a relay that sends one did not understand it (6.1).
    #[error("transfer-encoding in HTTP/1.0")]
    CodingInHttp10,
    /// A list over several fields is legal, and read differently everywhere.
    #[error("more than one transfer-encoding field")]
    RepeatedCoding,
    /// `chunked` is not the last coding, or not once, or has parameters (6.3, 7.1).
    #[error("transfer-encoding does not end in exactly one chunked")]
    NotChunked,
    /// `chunked` is the last coding, after one that is not implemented here (6.1).
    #[error("transfer coding other than chunked")]
    UnknownCoding,
    /// Several lengths that are not the same digits (6.3).
    #[error("content-length fields that differ")]
    RepeatedLength,
    /// Not one plain decimal number that fits 63 bits (RFC 9110 8.6).
    #[error("content-length is not a number")]
    BadLength,
    /// A line that begins with whitespace: a folded field (5.2), or a space before the first (2.2).
    #[error("folded field")]
    FoldedField,
    /// `name : value` (5.1).
    #[error("whitespace between field name and colon")]
    SpaceBeforeColon,
    /// `: value`.
    #[error("empty field name")]
    EmptyFieldName,
    /// A field line without a colon.
    #[error("field without a colon")]
    NoColon,
    /// A name that is no token (5, RFC 9110 5.6.2).
    #[error("malformed field name")]
    BadFieldName,
    /// A value that begins or ends with whitespace, in HTTP/2 (RFC 9113 8.2.1).
    #[error("whitespace around a value")]
    PaddedValue,
    /// A control in a value (RFC 9110 5.5).
    #[error("control byte in a field value")]
    BadFieldValue,
    /// A NUL in a line.
    #[error("nul byte")]
    Nul,
    /// A carriage return that ends no line (2.2).
    #[error("bare carriage return")]
    BareCr,
    /// A line feed without its carriage return, which 2.2 lets a recipient take or leave.
    #[error("bare line feed")]
    BareLf,
    /// Not exactly `method SP target SP HTTP/1.1`, or `1.0` (3).
    #[error("malformed request line")]
    BadRequestLine,
    /// A byte that no target holds raw (3.2): a fragment, a backslash, a control, non-ASCII.
    #[error("raw byte {0:#04x} in the request target")]
    TargetByte(u8),
    /// A target of no known form (3.2).
    #[error("malformed request target")]
    BadTarget,
    /// More empty lines before a request line than anyone sends by mistake.
    #[error("too many empty lines before a request")]
    LeadingLines,
    /// See `HeadLimits::target_bytes`.
    #[error("request target too long")]
    TargetTooLong,
    /// See `HeadLimits::head_bytes`.
    #[error("head too large")]
    HeadTooLarge,
    /// See `HeadLimits::fields`.
    #[error("too many fields")]
    TooManyFields,
    /// See `HeadLimits::field_bytes`.
    #[error("field too large")]
    FieldTooLarge,
    /// Not 1 to 16 hexadecimal digits, then the line's end or a `;` (7.1).
    #[error("malformed chunk size")]
    BadChunkSize,
    /// More chunk extensions than anyone needs (7.1.1 asks for a limit).
    #[error("chunk extensions too large")]
    ExtensionsTooLarge,
    /// Chunk data that goes on past its size (7.1).
    #[error("chunk longer than its size")]
    BadChunkEnd,
    /// Asked about a request of which no complete head was read: hyper sees other messages than
    /// we do, so none can be trusted.
    #[error("request out of step with the connection")]
    OutOfStep,
}

/// The kinds of [`Violation`] that get different responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViolationKind {
    /// Malformed or ambiguous.
    Malformed,
    /// The request target is longer than allowed.
    TargetTooLong,
    /// The head, its number of fields or one field is larger than allowed.
    HeadTooLarge,
    /// Well-formed, but with a transfer coding that is not implemented.
    UnknownCoding,
}

impl Violation {
    /// How this is answered.
    pub fn kind(&self) -> ViolationKind {
        match self {
            Self::UnknownCoding => ViolationKind::UnknownCoding,
            Self::TargetTooLong => ViolationKind::TargetTooLong,
            Self::HeadTooLarge | Self::TooManyFields | Self::FieldTooLarge => {
                ViolationKind::HeadTooLarge
            }
            Self::TwoLengths
            | Self::CodingInHttp10
            | Self::RepeatedCoding
            | Self::NotChunked
            | Self::RepeatedLength
            | Self::BadLength
            | Self::FoldedField
            | Self::SpaceBeforeColon
            | Self::EmptyFieldName
            | Self::NoColon
            | Self::BadFieldName
            | Self::PaddedValue
            | Self::BadFieldValue
            | Self::BadTarget
            | Self::Nul
            | Self::BareCr
            | Self::BareLf
            | Self::BadRequestLine
            | Self::TargetByte(_)
            | Self::LeadingLines
            | Self::BadChunkSize
            | Self::ExtensionsTooLarge
            | Self::BadChunkEnd
            | Self::OutOfStep => ViolationKind::Malformed,
        }
    }
}
