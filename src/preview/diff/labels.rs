//! What those are called to whom a change is: the widest words that say no more than is true.

use super::seats::{Family, Seat};
use crate::identity::Tiers;

/// Who sits there: by either version of IP, and by one of them only.
pub(super) fn labels(tiers: [&Tiers; 2], all: &[Seat<'_>], seats: &[Seat<'_>]) -> Vec<String> {
    let of = |seats: &[Seat<'_>], family| -> Vec<Place> {
        let own = seats.iter().filter(|seat| seat.family == family);
        own.map(|seat| Place::of(tiers, seat)).collect()
    };
    let all = of(all, Family::V4);
    let [v4, v6] = [Family::V4, Family::V6].map(|family| of(seats, family));
    let (both, only_v4): (Vec<Place>, Vec<Place>) =
        v4.iter().cloned().partition(|place| v6.contains(place));
    let only_v6: Vec<Place> = v6.into_iter().filter(|place| !v4.contains(place)).collect();
    let over = |places: &[Place], version: &str| -> Vec<String> {
        let labels = place_labels(&all, places).into_iter();
        labels.map(|label| format!("{label} over {version}")).collect()
    };
    let one_version = [over(&only_v4, "IPv4"), over(&only_v6, "IPv6")].concat();
    [place_labels(&all, &both), one_version].concat()
}

/// A seat, whatever version of IP its callers come by.
#[derive(Clone, PartialEq)]
struct Place {
    tier: String,
    kind: String,
    source: String,
}

impl Place {
    fn of(tiers: [&Tiers; 2], seat: &Seat<'_>) -> Place {
        let (kind, source) = (seat.named.kind(), seat.named.source.label());
        Place { tier: tier_label(tiers, seat), kind, source }
    }
}

/// `everybody`, tiers, kinds of callers of a tier, or those of a kind that show a certain token: the
/// widest that says no more than is true.
fn place_labels(all: &[Place], places: &[Place]) -> Vec<String> {
    let has_all = |is_it: &dyn Fn(&Place) -> bool| {
        all.iter().filter(|place| is_it(place)).all(|place| places.contains(place))
    };
    if !places.is_empty() && has_all(&|_| true) {
        return vec!["everybody".into()];
    }
    let label = |own: &Place| {
        let Place { tier, kind, source } = own;
        let whose = match has_all(&|place| place.tier == *tier && place.kind == *kind) {
            true => kind.clone(),
            false => format!("{kind} {source}"),
        };
        match tier.as_str() {
            _ if has_all(&|place| place.tier == *tier) => tier.clone(),
            "default" => whose,
            _ => format!("{tier} ({whose})"),
        }
    };
    unique(places.iter().map(label))
}

/// The tier of those who sit there.
pub(super) fn tier_label(tiers: [&Tiers; 2], seat: &Seat<'_>) -> String {
    let name = |tiers: &Tiers, at| tiers.get(at).map_or(String::new(), |t| t.name.to_string());
    let [old, new] = tiers;
    let (before, after) = (name(old, seat.tier_before), name(new, seat.tier_after));
    match before == after {
        true => before,
        false => format!("{before}, now {after}"),
    }
}

/// Words, each once.
pub(super) fn unique(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}
