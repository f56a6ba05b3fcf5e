//! What `--column` says: which column or field has what.

/// What a column can have, and the names by which it is found without a mapping. The first name is
/// the one that is used here; a mapping may use any of them.
pub(super) const KNOWN: [&[&str]; 20] = [
    &["time", "timestamp", "start", "start_time", "datetime"],
    &["end", "end_time"],
    &["date"],
    &["duration", "request_time", "seconds"],
    &["duration_ms", "total_ms", "milliseconds"],
    CLIENT,
    METHOD,
    HOST,
    TARGET,
    QUERY,
    REQUEST,
    STATUS,
    USER_AGENT,
    REFERER,
    &["caller"],
    &["tier", "plan"],
    &["denied"],
    COST,
    REQUEST_BYTES,
    RESPONSE_BYTES,
];
pub(super) const CLIENT: &[&str] =
    &["client", "ip", "client_ip", "remote_addr", "remote_ip", "address"];
pub(super) const METHOD: &[&str] = &["method", "request_method", "verb"];
pub(super) const HOST: &[&str] = &["host", "authority", "domain"];
pub(super) const TARGET: &[&str] = &["target", "path", "url", "uri", "request_uri"];
pub(super) const QUERY: &[&str] = &["query", "args", "query_string"];
pub(super) const REQUEST: &[&str] = &["request", "request_line"];
pub(super) const STATUS: &[&str] = &["status", "status_code", "code"];
pub(super) const USER_AGENT: &[&str] = &["user_agent", "agent"];
pub(super) const REFERER: &[&str] = &["referer", "referrer"];
pub(super) const COST: &[&str] = &["cost"];
pub(super) const REQUEST_BYTES: &[&str] = &["request_bytes", "bytes_in", "bytes_received"];
pub(super) const RESPONSE_BYTES: &[&str] =
    &["response_bytes", "bytes_out", "bytes_sent", "body_bytes_sent", "bytes"];

/// Which column or field has what, by the first name of [`KNOWN`].
#[derive(Clone, Default)]
pub(super) struct Columns(Vec<(&'static str, String)>);

impl Columns {
    /// Takes pairs of what and the name of a column.
    ///
    /// # Errors
    /// The first that no column can have.
    pub(super) fn new(pairs: &[(String, String)]) -> Result<Columns, &str> {
        let known = |what: &str| KNOWN.iter().find(|names| names.contains(&what))?.first().copied();
        pairs
            .iter()
            .map(|(what, name)| Ok((known(what).ok_or(what.as_str())?, name.clone())))
            .collect::<Result<_, _>>()
            .map(Columns)
    }

    /// The column that has this.
    pub(super) fn get(&self, what: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == what).map(|(_, name)| name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(what, name)| (*what, name.as_str()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
