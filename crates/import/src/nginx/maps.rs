//! `map` and `geo`: which requests a key made by them is empty for, and so not counted.

use std::{collections::BTreeMap, net::IpAddr, str::FromStr};

use ipnet::IpNet;

use super::{
    directive::Directive,
    keys::{Condition, Key, Piece, base, pieces},
};

/// The variables that `map` and `geo` make.
#[derive(Debug, Default)]
pub(super) struct Maps<'c>(BTreeMap<&'c str, &'c Directive>);

impl<'c> Maps<'c> {
    pub(super) fn new(http: &'c [Directive]) -> Self {
        let maps = http.iter().filter(|directive| matches!(directive.name.as_str(), "map" | "geo"));
        Maps(maps.filter_map(|map| Some((map.args.last()?.strip_prefix('$')?, map))).collect())
    }

    pub(super) fn find(&self, name: &str) -> Option<&'c Directive> {
        self.0.get(name).copied()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The key that is written so.
    ///
    /// # Errors
    /// Why it cannot be carried over.
    pub(super) fn key(&self, text: &str) -> Result<Key, String> {
        let mut pieces = pieces(text);
        if let [Piece::Variable(name)] = &pieces[..]
            && let Some(map) = self.find(name)
        {
            return self.key_by(map);
        }
        let before = pieces.len();
        pieces.retain(|piece| !self.makes(piece));
        if pieces.len() == before {
            return base(&pieces);
        }
        // Without a part, more requests share a counter.
        let key = base(&pieces).ok().filter(|key| {
            key.per.iter().all(|per| per.on_missing != Some("skip")) && key.is_of_a_client()
        });
        let why = "a map makes a part of its key, and the rest does not tell clients apart";
        let mut key = key.ok_or(why)?;
        key.notes.push(
            "a part of the key that a map makes has no counterpart: one counter for all its \
             values, which is stricter"
                .to_owned(),
        );
        Ok(key)
    }

    fn makes(&self, piece: &Piece) -> bool {
        matches!(piece, Piece::Variable(name) if self.find(name).is_some())
    }

    /// The key that a map makes.
    fn key_by(&self, map: &Directive) -> Result<Key, String> {
        let entries = entries(map)?;
        let mut key = self.joined(&entries)?;
        let default = entries.iter().find(|(pattern, _)| *pattern == "default");
        if default.is_some() && entries.iter().all(|(_, value)| !value.is_empty()) {
            return Ok(key);
        }
        let is_by_address =
            key.per.iter().all(|per| per.parts.iter().any(|part| part == "client.ip"));
        let by_default = default.is_some_and(|(_, value)| !value.is_empty());
        match self.condition(map, &entries, by_default) {
            Some(Condition::Networks { .. }) if !is_by_address && !by_default => {
                Err("its map counts some networks alone, by a key without the address".to_owned())
            }
            Some(condition)
                if is_by_address || !matches!(condition, Condition::Networks { .. }) =>
            {
                let is_for_get = |methods: &[String]| methods.iter().any(|method| method == "GET");
                if matches!(&condition, Condition::Methods(methods) if is_for_get(methods)) {
                    key.notes.push("HEAD is counted with GET".to_owned());
                }
                Ok(Key { condition, ..key })
            }
            _ if by_default => {
                key.notes.push(format!(
                    "the exemptions that `map … ${}` makes have no counterpart: those are counted \
                     as well, which is stricter",
                    name(map)
                ));
                Ok(key)
            }
            _ => Err(format!(
                "`map … ${}` selects requests in a way that has no counterpart, and to count all \
                 would refuse others",
                name(map)
            )),
        }
    }

    /// The keys that the values of a map are, as one.
    fn joined(&self, entries: &[(&str, &str)]) -> Result<Key, String> {
        let mut keys: Vec<Key> = Vec::new();
        for (_, value) in entries.iter().filter(|(_, value)| !value.is_empty()) {
            let pieces = pieces(value);
            if pieces.iter().any(|piece| self.makes(piece)) {
                return Err("maps within maps cannot be followed".to_owned());
            }
            let key = base(&pieces)?;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let Some(mut joined) = keys.pop() else {
            return Err("its key is always empty, so it counts nothing".to_owned());
        };
        if keys.is_empty() {
            return Ok(joined);
        }
        // Each request is counted by one of them there, and by all of them here.
        if !keys.iter().chain([&joined]).all(Key::is_of_a_client) {
            return Err("its map chooses between keys that no single limit has".to_owned());
        }
        joined.notes.push(
            "counts by each of the keys of the map, and not by one of them: stricter".to_owned(),
        );
        joined.per.extend(keys.into_iter().flat_map(|key| key.per));
        Ok(joined)
    }

    fn condition(
        &self,
        map: &Directive,
        entries: &[(&str, &str)],
        by_default: bool,
    ) -> Option<Condition> {
        if map.name == "geo" {
            let (networks, default) = geo(map)?;
            let networks =
                networks.into_iter().map(|(network, value)| (network, !value.is_empty())).collect();
            return Some(Condition::Networks { networks, others: !default.is_empty() });
        }
        let source = map.arg(0).trim_start_matches('$').trim_matches(['{', '}']);
        let is_counted = |text: &str| {
            let found = entries.iter().find(|(pattern, _)| pattern.eq_ignore_ascii_case(text));
            found.map_or(by_default, |(_, value)| !value.is_empty())
        };
        let has_patterns = entries.iter().any(|(pattern, _)| pattern.starts_with(['~', '*']));
        match source {
            _ if has_patterns || !map.arg(0).starts_with('$') => None,
            "request_method" => {
                let of = |counted: bool| -> Vec<String> {
                    let of = entries.iter().filter(|(pattern, value)| {
                        *pattern != "default" && value.is_empty() != counted
                    });
                    of.map(|(method, _)| method.to_ascii_uppercase()).collect()
                };
                let mut exempt = of(false);
                // A route for GET takes HEAD as well.
                if !exempt.iter().any(|method| method == "HEAD") {
                    exempt.retain(|method| method != "GET");
                }
                Some(match by_default {
                    false => Condition::Methods(of(true)),
                    true if exempt.is_empty() => return None,
                    true => Condition::NotMethods(exempt),
                })
            }
            "remote_addr" => {
                let networks = entries.iter().filter(|(pattern, _)| *pattern != "default");
                let networks =
                    networks.map(|(pattern, value)| Some((network(pattern)?, !value.is_empty())));
                Some(Condition::Networks {
                    networks: networks.collect::<Option<_>>()?,
                    others: by_default,
                })
            }
            name => {
                let geo_of = self.find(name).filter(|map| map.name == "geo")?;
                let (networks, default) = geo(geo_of)?;
                let networks = networks
                    .into_iter()
                    .map(|(network, value)| (network, is_counted(value)))
                    .collect();
                Some(Condition::Networks { networks, others: is_counted(default) })
            }
        }
    }
}

fn name(map: &Directive) -> &str {
    map.args.last().map_or("", |name| name.trim_start_matches('$'))
}

/// Patterns and values.
fn entries(map: &Directive) -> Result<Vec<(&str, &str)>, String> {
    let mut entries = Vec::new();
    for entry in map.inner() {
        match entry.name.as_str() {
            "volatile" | "hostnames" | "ranges" | "proxy" | "proxy_recursive" | "delete" => {}
            "include" => return Err(format!("a file of `${}` is not given", name(map))),
            pattern => entries.push((
                pattern
                    .strip_prefix('\\')
                    .filter(|rest| {
                        matches!(*rest, "default" | "hostnames" | "include" | "volatile")
                    })
                    .unwrap_or(pattern),
                entry.arg(0),
            )),
        }
    }
    Ok(entries)
}

/// Networks and their values, the most specific one first, and the value of all others. None: it is
/// not by the client's address, or not by networks.
fn geo(map: &Directive) -> Option<(Vec<(IpNet, &str)>, &str)> {
    let is_by_address =
        map.args.len() < 2 || matches!(map.arg(0), "$remote_addr" | "$realip_remote_addr");
    let is_plain = map
        .inner()
        .iter()
        .all(|entry| !matches!(entry.name.as_str(), "ranges" | "proxy" | "delete"));
    if !is_by_address || !is_plain {
        return None;
    }
    let (mut networks, mut default) = (Vec::new(), "");
    for (pattern, value) in entries(map).ok()? {
        match pattern {
            "default" => default = value,
            _ => networks.push((network(pattern)?, value)),
        }
    }
    networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
    Some((networks, default))
}

/// An address or a network.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let network =
        IpNet::from_str(text).ok().or_else(|| IpAddr::from_str(text).ok().map(IpNet::from))?;
    Some(tollgate_yaml::canonical_network(network).trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<Key, String> {
        let input = crate::Input { name: "f".into(), text: text.into() };
        let all =
            super::super::tree::read(&[input], &mut crate::report::Report::default()).unwrap();
        let maps = Maps::new(&all);
        maps.key("$k")
    }

    #[test]
    fn the_most_specific_network_decides_whatever_the_order() {
        let text = "geo $l { default 1; 10.0.0.0/8 0; 10.1.0.0/16 1; }
            map $l $k { 0 ''; 1 $binary_remote_addr; }";
        let networks = [("10.1.0.0/16", true), ("10.0.0.0/8", false)];
        let networks = networks.map(|(text, counted)| (text.parse().unwrap(), counted)).into();
        assert_eq!(key(text).unwrap().condition, Condition::Networks { networks, others: true });
    }

    #[test]
    fn a_map_without_default_counts_what_it_lists() {
        let of = |text: &str| key(text).map(|key| (key.condition, key.notes.len()));
        let post = vec!["POST".to_owned()];
        for (text, expected) in [
            (
                "map $request_method $k { post $remote_addr; }",
                Ok((Condition::Methods(post.clone()), 0)),
            ),
            (
                "map $request_method $k { default $remote_addr; POST ''; }",
                Ok((Condition::NotMethods(post), 0)),
            ),
            // HEAD is counted there, and a route for GET takes it.
            ("map $request_method $k { default $remote_addr; GET ''; }", Ok((Condition::All, 1))),
            ("map $http_user_agent $k { default $remote_addr; ~bot ''; }", Ok((Condition::All, 1))),
            (
                "map $http_x_key $k { default $http_x_key; '' $remote_addr; }",
                Ok((Condition::All, 1)),
            ),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        for text in [
            "map $http_user_agent $k { default ''; ~bot $remote_addr; }",
            "map $http_user_agent $k { ~bot 1; }",
            "map $cookie_a $k { default $remote_addr; x 1; }",
            "map $a $b { default 1; } map $x $k { default $b; }",
            "geo $k { 10.0.0.0/8 1; }",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
