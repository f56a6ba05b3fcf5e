//! What keys and tokens of some issuers have and the specifications forbid.

use tollgate_keyword::keywords;

keywords! {
    /// A deviation from the specifications. Each is refused unless the policy names it for an
    /// issuer, and none makes a wrong signature good.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Deviation {
        /// Members of a JWK with padding, which RFC 7515 section 2 leaves out.
        JwksPadding = "jwks_padding",
        /// Members of a JWK in standard base64 (`+` and `/`). Padding needs its own name.
        JwksBase64 = "jwks_base64",
        /// A JWK with the `use` of SPIFFE, `jwt-svid`.
        SpiffeUse = "spiffe_use",
        /// Parts of a token with padding, as load balancers of AWS write them.
        TokenPadding = "token_padding",
    }
}
