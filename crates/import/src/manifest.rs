//! The documents of a file: configurations, or manifests of Kubernetes that hold some.

use tollgate_yaml::{Document, Entries, Node, Problem, Spanned, Value};

/// The fields of a mapping.
type Fields = [(Spanned<String>, Node)];

/// All configurations in a file: its documents, and the texts of ConfigMaps and of lists of them.
///
/// # Errors
/// What is wrong with the YAML, and that nothing in it holds a configuration.
pub(super) fn documents(name: &str, text: &str) -> Result<Vec<Document>, Vec<Problem>> {
    let mut found = Vec::new();
    // ConfigMaps of something else are often in the same file, too.
    let mut others = Vec::new();
    for part in parts(text) {
        let document = Document::parse(name, &part).map_err(|problem| vec![problem])?;
        let root: Entries<Node> = document.decode(&[], &mut Vec::new()).unwrap_or_default();
        match kind(&root) {
            Some("ConfigMap") => {
                found.extend(configurations(&document, &root, &mut others)?);
            }
            Some("List" | "ConfigMapList") => {
                let Some(Value::Sequence(items)) = field(&root, "items") else { continue };
                for item in items {
                    let Value::Mapping(item) = &item.value else { continue };
                    if kind(item) == Some("ConfigMap") {
                        found.extend(configurations(&document, item, &mut others)?);
                    }
                }
            }
            // Others are often in the same file.
            Some(_) => {}
            None => found.push(document),
        }
    }
    if found.is_empty() && !others.is_empty() {
        return Err(others);
    }
    if found.is_empty() {
        let message = "it holds neither descriptors nor a ConfigMap with some";
        let help = "give the file that has the descriptors";
        return Err(vec![Problem::whole_file(name, message, help)]);
    }
    Ok(found)
}

/// The documents of a stream that hold something, each at the line where it is in the file.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for (at, line) in text.lines().enumerate() {
        let is_mark = line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty());
        if is_mark {
            parts.push("\n".repeat(at + 1));
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    let is_said = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let has_more = parts.len() > 1;
    parts.retain(|part| !has_more || part.lines().any(is_said));
    parts
}

/// The configurations that a ConfigMap holds: texts that begin a line with `domain`. If there are
/// none, that is added to `others`.
fn configurations(
    document: &Document,
    map: &Fields,
    others: &mut Vec<Problem>,
) -> Result<Vec<Document>, Vec<Problem>> {
    let mut found = Vec::new();
    let data = field(map, "data");
    if let Some(Value::Mapping(texts)) = data {
        for (name, node) in texts {
            let Value::String(text) = &node.value else { continue };
            // Other texts of a ConfigMap need not be YAML.
            if text.lines().any(|line| line.starts_with("domain:")) {
                let name = format!("{}, data.{}", document.name(), name.value);
                found.push(Document::parse(&name, text).map_err(|problem| vec![problem])?);
            }
        }
    }
    if found.is_empty() {
        let span = map.first().map(|(key, _)| key.into()).unwrap_or_default();
        let message = "no text below `data` of this ConfigMap has a `domain`";
        let help = "give the file that has the descriptors";
        others.push(document.problem(span, message, help));
    }
    Ok(found)
}

fn field<'f>(fields: &'f Fields, name: &str) -> Option<&'f Value> {
    fields.iter().find(|(key, _)| key.value == name).map(|(_, node)| &node.value)
}

fn kind(fields: &Fields) -> Option<&str> {
    match field(fields, "kind")? {
        Value::String(kind) => Some(kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str = "domain: a\ndescriptors: []\n";

    fn names(text: &str) -> Result<Vec<String>, Vec<Problem>> {
        let documents = documents("f.yaml", text)?;
        Ok(documents.iter().map(|document| document.name().to_owned()).collect())
    }

    #[test]
    fn configurations_are_found_in_manifests() {
        let map = "kind: ConfigMap\ndata:\n  a.yaml: |\n    domain: a\n  readme: text\n";
        let other = "kind: ConfigMap\ndata: { a: b }\n";
        let other_item = "- kind: ConfigMap\n- kind: ConfigMap\n  data: { a: b }";
        let item = format!("- {}", map.replace('\n', "\n  "));
        for (text, expected) in [
            (CONFIGURATION.to_owned(), &["f.yaml"][..]),
            (format!("---\n{CONFIGURATION}---\n# Nothing.\n"), &["f.yaml"]),
            (format!("{CONFIGURATION}---\n{map}"), &["f.yaml", "f.yaml, data.a.yaml"]),
            (format!("kind: List\nitems:\n{item}\n"), &["f.yaml, data.a.yaml"]),
            (format!("{map}---\nkind: Deployment\nspec: {{}}\n"), &["f.yaml, data.a.yaml"]),
            (format!("kind: Service\n---\n{map}---\n{other}"), &["f.yaml, data.a.yaml"]),
            (format!("kind: List\nitems:\n{other_item}\n{item}\n"), &["f.yaml, data.a.yaml"]),
        ] {
            assert_eq!(names(&text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn problems_name_the_line_of_the_file() {
        let problems = names(&format!("{CONFIGURATION}---\ndomain: [\n")).unwrap_err();
        assert!(problems[0].place().starts_with("f.yaml:4"), "{}", problems[0].place());
        for nothing in ["kind: Deployment\n", "kind: List\nitems: []\n"] {
            assert!(names(nothing).unwrap_err()[0].message().contains("neither descriptors"));
        }
        let problems = names("kind: ConfigMap\ndata: { a: b }\n").unwrap_err();
        assert_eq!(problems[0].place(), "f.yaml:1:1");
        assert!(problems[0].message().contains("`domain`"));
    }
}
