//! Statuses: what a response does to what its request was charged.

use tollgate_yaml::{Check, Node, Spanned, Value};

use super::Compiler;
use crate::{
    Refund, Statuses,
    file::{RawLimit, RawRefund, RefundedCallers},
};

const HELP: &str = "write 100 to 599, or a class such as 5xx";
const NOT_MODIFIED: u16 = 304;

impl Compiler<'_> {
    /// What is given back. Nothing by default where responses decide what is counted in the first
    /// place, and where nothing is counted, as for requests at once.
    pub(super) fn refund(&mut self, raw: &RawLimit) -> Option<Refund> {
        let none = Refund {
            everybody: Statuses::default(),
            authenticated: Statuses::default(),
            at_most: None,
        };
        let only_authenticated = Statuses::default().with(NOT_MODIFIED);
        match &raw.refund {
            None if raw.count_when.is_some() || raw.concurrent.is_some() => Some(none),
            None => Some(Refund { authenticated: only_authenticated, ..none }),
            Some(refund) => {
                if raw.count_when.is_some() {
                    self.refuse(
                        refund.span,
                        "`refund` beside `count_when`",
                        "remove it; what `count_when` does not name is never counted",
                    );
                }
                self.written_refund(&refund.value)
            }
        }
    }

    fn written_refund(&mut self, raw: &RawRefund) -> Option<Refund> {
        let statuses = match &raw.status {
            None => Some(vec![NOT_MODIFIED]),
            Some(nodes) => self.statuses(nodes),
        };
        let callers = match &raw.callers {
            None => None,
            Some(callers) => Some(self.keyword(callers)?),
        };
        let needs_token = |status: u16| match callers {
            Some(RefundedCallers::Authenticated) => true,
            Some(RefundedCallers::All) => false,
            None => status == NOT_MODIFIED,
        };
        let (authenticated, everybody): (Vec<u16>, Vec<u16>) =
            statuses?.into_iter().partition(|status| needs_token(*status));
        let at_most = match &raw.at_most {
            None => None,
            Some(share) => Some(self.percentage(share)?),
        };
        Some(Refund { everybody: set(everybody), authenticated: set(authenticated), at_most })
    }

    /// `50%`.
    fn percentage(&mut self, share: &Spanned<String>) -> Option<u8> {
        let digits = share.value.strip_suffix('%').map(str::trim_end);
        let percent = digits.and_then(|digits| digits.parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        if percent.is_none() {
            let message = format!("`{}` is no share of a limit", share.value);
            self.note(share.span, message, "write 1% to 100%");
        }
        percent
    }

    /// The statuses of `count_when`; none in it: all count.
    pub(super) fn count_when(&mut self, raw: &RawLimit) -> Option<Option<Statuses>> {
        let Some(count_when) = &raw.count_when else { return Some(None) };
        let status = &count_when.value.status;
        if status.value.is_empty() {
            self.refuse(status.span, "a limit that counts nothing", HELP);
        }
        self.status_set(&status.value).map(Some)
    }

    /// Statuses of a list, which may be empty.
    pub(super) fn status_set(&mut self, nodes: &[Node]) -> Option<Statuses> {
        self.statuses(nodes).map(set)
    }

    fn statuses(&mut self, nodes: &[Node]) -> Option<Vec<u16>> {
        let each: Vec<Option<Vec<u16>>> = nodes.iter().map(|node| self.status(node)).collect();
        let statuses: Vec<u16> = each.into_iter().collect::<Option<Vec<_>>>()?.concat();
        Some(statuses)
    }

    fn status(&mut self, node: &Node) -> Option<Vec<u16>> {
        let shown = match &node.value {
            Value::Integer(status @ 100..=599) => return Some(vec![*status as u16]),
            Value::Integer(number) => number.to_string(),
            Value::String(text) => match text.as_bytes() {
                [class @ b'1'..=b'5', b'x', b'x'] => {
                    let first = u16::from(class - b'0') * 100;
                    return Some((first..first + 100).collect());
                }
                _ => text.clone(),
            },
            other => other.kind().to_owned(),
        };
        self.note(node.span, format!("`{shown}` is not a status"), HELP);
        None
    }
}

fn set(statuses: Vec<u16>) -> Statuses {
    statuses.into_iter().fold(Statuses::default(), Statuses::with)
}
