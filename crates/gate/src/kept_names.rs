//! The names of counters that the response may charge more, when the head of the request has gone.

use tollgate_policy::KeyPart;

use super::tally::{DecidedCharge, Tally};

/// Writes the name of the counter of a charge whose limit counts by anything else than one caller
/// or address. It is called only for names that enter a sketch.
pub(super) type NameCounter<'c> = dyn Fn(&DecidedCharge<'_, '_>, &mut String) + 'c;

/// Such names, by the position of the limit.
#[derive(Default)]
pub(super) struct KeptNames(Vec<(usize, String)>);

impl KeptNames {
    /// Those of a request whose head is still here.
    pub(super) fn of(tally: &Tally<'_>, name: &NameCounter<'_>) -> KeptNames {
        let mut kept = Vec::new();
        for own in tally.all() {
            let limit = own.planned.limit;
            let is_kept = own.planned.cost.from_response_header.is_some()
                && !matches!(limit.per.parts.as_slice(), [KeyPart::Caller | KeyPart::ClientIp])
                && kept.last().is_none_or(|(last, _)| *last != limit.position);
            if is_kept {
                let mut text = String::new();
                name(&own, &mut text);
                kept.push((limit.position, text));
            }
        }
        KeptNames(kept)
    }

    /// Writes the name of the counter of a charge.
    pub(super) fn write(&self, own: &DecidedCharge<'_, '_>, to: &mut String) {
        let mut its = self.0.iter().filter(|(limit, _)| *limit == own.planned.limit.position);
        its.next().iter().for_each(|(_, name)| to.push_str(name));
    }
}
