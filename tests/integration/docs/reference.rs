//! The reference tables in docs/: each field of both schemas is in one, with its default.
//!
//! A table is a part of the reference if it has a column `default`. The first cell of its head
//! names the section by its path: `policy` and `settings` for the files themselves,
//! `limits.<name>.refund` for a map's value, `routes[].match` for a list's item. Several sections
//! may share a table. The first cell of a row names fields of the section or, if the head names
//! none, fields by their whole paths.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tollgate_policy as policy;
use tollgate_settings as settings;

use super::Page;

/// An object of a schema.
#[derive(Default)]
struct Section {
    /// All paths that lead to it.
    paths: BTreeSet<String>,
    fields: BTreeMap<String, Field>,
}

struct Field {
    is_required: bool,
    /// The default that the description names, if it is one word.
    default: Option<String>,
    /// The ranges that the description names, as in "100ms to 1h".
    ranges: Vec<String>,
    /// The keywords that it takes.
    keywords: Vec<String>,
}

/// A row of a table: one field.
struct Row {
    /// The page, and the number of the line.
    place: String,
    section: String,
    field: String,
    default: String,
    meaning: String,
}

impl Section {
    /// Whether it is at this path, and has this field.
    fn has(&self, path: &str, field: &str) -> bool {
        self.paths.contains(path) && self.fields.contains_key(field)
    }
}

/// The sections of both files, each under the name of its definition, or its path if it has none.
fn sections() -> BTreeMap<String, Section> {
    let mut sections = BTreeMap::new();
    for (file, schema) in [("policy", policy::schema()), ("settings", settings::schema())] {
        let schema = serde_json::to_value(schema).unwrap();
        let mut walk = Walk { file, root: &schema, found: BTreeMap::new() };
        walk.visit(&schema, file, file);
        sections.extend(walk.found);
    }
    sections
}

/// A way through a schema that collects its sections.
struct Walk<'s> {
    file: &'s str,
    root: &'s Value,
    found: BTreeMap<String, Section>,
}

impl Walk<'_> {
    /// Collects the sections below `schema`, which has this name, and this path in the file.
    fn visit(&mut self, schema: &Value, name: &str, path: &str) {
        if let Some(reference) = schema["$ref"].as_str() {
            let definition = reference.strip_prefix("#/$defs/").unwrap();
            let name = format!("{}: {definition}", self.file);
            let root = self.root;
            self.visit(&root["$defs"][definition], &name, path);
        }
        for kind in ["anyOf", "oneOf", "allOf"] {
            for alternative in schema[kind].as_array().into_iter().flatten() {
                self.visit(alternative, name, path);
            }
        }
        if schema["items"].is_object() {
            self.visit(&schema["items"], name, &format!("{path}[]"));
        }
        if schema["additionalProperties"].is_object() {
            let value = &schema["additionalProperties"];
            self.visit(value, name, &format!("{path}.<name>"));
        }
        let Some(properties) = schema["properties"].as_object() else { return };
        let mut fields = BTreeMap::new();
        for (field, property) in properties {
            let is_required = schema["required"]
                .as_array()
                .is_some_and(|required| required.contains(&Value::from(field.as_str())));
            let description = property["description"].as_str().unwrap_or_default();
            let default = default_in(description);
            let ranges = ranges_in(description);
            let keywords = self.keywords_of(property);
            let known = Field { is_required, default, ranges, keywords };
            fields.insert(field.clone(), known);
        }
        let section = self.found.entry(name.to_owned()).or_default();
        section.paths.insert(path.to_owned());
        section.fields.extend(fields);
        for (field, property) in properties {
            let path = if path == self.file { field.clone() } else { format!("{path}.{field}") };
            self.visit(property, &path, &path);
        }
    }

    /// The keywords that a field takes, by itself or as items of a list.
    fn keywords_of(&self, property: &Value) -> Vec<String> {
        let own = property["enum"].as_array().into_iter().flatten();
        let mut keywords: Vec<String> = own.filter_map(Value::as_str).map(str::to_owned).collect();
        let mut inner: Vec<&Value> = property["anyOf"].as_array().into_iter().flatten().collect();
        inner.extend(property.get("items"));
        if let Some(reference) = property["$ref"].as_str() {
            inner.push(&self.root["$defs"][reference.strip_prefix("#/$defs/").unwrap()]);
        }
        keywords.extend(inner.into_iter().flat_map(|inner| self.keywords_of(inner)));
        keywords
    }
}

/// The default in a description, as in "Default: 30s.", if it is one word.
fn default_in(description: &str) -> Option<String> {
    let (_, rest) = description.split_once("Default: ")?;
    let end = rest.find(". ").into_iter().chain(rest.find([',', ';']));
    let default = rest.get(..end.min().unwrap_or(rest.len()))?.trim_end_matches('.');
    let default = bare(default);
    (!default.contains(' ')).then_some(default)
}

fn ranges_in(description: &str) -> Vec<String> {
    let description = bare(description);
    let words: Vec<&str> = description.split(' ').collect();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    words
        .windows(3)
        .filter(|words| words[1] == "to" && is_number(words[0]) && is_number(words[2]))
        .map(|words| format!("{} to {}", words[0], words[2].trim_end_matches(['.', ',', ';', ':'])))
        .collect()
}

/// A value without the marks around it: quotes, brackets, and those of Markdown.
fn bare(text: &str) -> String {
    text.replace(['`', '"', '[', ']'], "")
}

/// What is in backquotes.
fn codes(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// All rows of the reference tables of a page.
fn rows(page: &Page) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut table: Option<(Vec<String>, usize)> = None;
    let mut lines = page.text.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let Some(cells) = cells(line) else {
            table = None;
            continue;
        };
        if lines.peek().is_some_and(|(next, _)| next.starts_with("| ---")) {
            let column = cells.iter().position(|cell| *cell == "default");
            table = column.map(|column| (codes(cells[0]), column));
            lines.next();
            continue;
        }
        let Some((sections, column)) = &table else { continue };
        for code in codes(cells[0]) {
            let places = match code.rsplit_once('.') {
                Some((section, field)) if sections.is_empty() => {
                    vec![(section.to_owned(), field.to_owned())]
                }
                _ => sections.iter().map(|section| (section.clone(), code.clone())).collect(),
            };
            for (section, field) in places {
                rows.push(Row {
                    place: format!("{}:{number}", page.path),
                    section,
                    field,
                    default: cells[*column].to_owned(),
                    meaning: cells.last().unwrap().to_string(),
                });
            }
        }
    }
    rows
}

#[test]
fn every_field_is_in_one_row_and_every_row_is_a_field() {
    let sections = sections();
    let rows: Vec<Row> = Page::all().iter().flat_map(rows).collect();
    let mut found: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for Row { place, section: path, field, meaning, .. } in &rows {
        let known: Vec<_> =
            sections.iter().filter(|(_, section)| section.has(path, field)).collect();
        let [(name, _)] = known[..] else {
            panic!("{place}: `{field}` is a field of {} sections `{path}`", known.len());
        };
        assert!(!meaning.is_empty(), "{place}: `{path}`: `{field}` has no meaning");
        let other = found.insert((name, field), place);
        assert!(other.is_none_or(|other| other == place), "{place}: `{field}` is at {other:?} too");
    }
    let missing: Vec<String> = sections
        .iter()
        .flat_map(|(name, section)| section.fields.keys().map(move |field| (name, section, field)))
        .filter(|(name, _, field)| !found.contains_key(&(name.as_str(), field.as_str())))
        .map(|(_, section, field)| format!("`{field}` of {:?}", section.paths))
        .collect();
    assert!(found.len() > 200, "both schemas");
    assert!(missing.is_empty(), "no table in docs/ has\n{}", missing.join("\n"));
}

#[test]
fn defaults_and_ranges_in_tables_are_those_of_the_schemas() {
    let sections = sections();
    let mut compared = 0;
    for row in Page::all().iter().flat_map(rows) {
        let Row { place, section, field, default, meaning } = &row;
        let at = format!("{place}: `{section}`: `{field}`");
        let known = sections.values().find(|known| known.has(section, field));
        let Some(Field { is_required, default: expected, ranges, .. }) =
            known.and_then(|section| section.fields.get(field))
        else {
            continue;
        };
        assert!(!is_required || default.starts_with("required"), "{at} is required: {default}");
        for range in ranges {
            assert!(bare(meaning).contains(range), "{at} is {range}: {meaning}");
        }
        compared += ranges.len();
        let Some(expected) = expected else { continue };
        let written = bare(default);
        let mut words = written.split([' ', ',', ';']);
        assert!(words.any(|word| word == expected), "{at} is {expected} by default: {default}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} defaults and ranges");
}

#[test]
fn keywords_of_a_field_are_on_its_page() {
    let sections = sections();
    let mut found = 0;
    for page in Page::all() {
        let codes: String = codes(&page.text).join(" ");
        let words: BTreeSet<&str> =
            codes.split(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).collect();
        for Row { place, section, field, .. } in rows(&page) {
            let known = sections.values().find(|known| known.has(&section, &field));
            let field = known.and_then(|section| section.fields.get_key_value(&field));
            let Some((field, Field { keywords, .. })) = field else { continue };
            for keyword in keywords {
                assert!(words.contains(keyword.as_str()), "{place}: `{field}` takes `{keyword}`");
                found += 1;
            }
        }
    }
    assert!(found > 50, "{found} keywords");
}
