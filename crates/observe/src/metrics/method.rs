//! Methods as labels.

use http::Method;

/// A method as metrics have it. Clients can make methods up, so unusual ones are one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MethodLabel(u8);

/// The names, by position. The last one stands for all other methods, as OpenTelemetry's semantic
/// conventions name them (`http.request.method`).
const NAMES: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "_OTHER"];

impl MethodLabel {
    /// `GET`.
    pub const GET: MethodLabel = MethodLabel(0);

    /// All other methods.
    pub const OTHER: MethodLabel = MethodLabel(NAMES.len() as u8 - 1);

    /// The label of a method.
    pub fn of(method: &Method) -> MethodLabel {
        let position = NAMES.iter().position(|name| *name == method.as_str());
        position.map_or(MethodLabel::OTHER, |position| MethodLabel(position as u8))
    }

    /// Its position among all labels, for [`MethodLabel::at`].
    pub(super) fn position(self) -> u8 {
        self.0
    }

    /// The label at this position.
    pub(super) fn at(position: u8) -> MethodLabel {
        MethodLabel(position).min(MethodLabel::OTHER)
    }

    /// The text of the label.
    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.0)).copied().unwrap_or("_OTHER")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_methods_are_one_label() {
        for method in ["GET", "PATCH", "TRACE"] {
            assert_eq!(MethodLabel::of(&method.parse().unwrap()).name(), method);
        }
        for method in ["get", "BREW", "PROPFIND", "_OTHER"] {
            assert_eq!(MethodLabel::of(&method.parse().unwrap()).name(), "_OTHER", "{method}");
        }
    }
}
