//! Manifests of Kubernetes: the objects in files, and configurations that ConfigMaps hold.

use std::rc::Rc;

use tollgate_yaml::{Document, Node, Problem, Span, Value};

use crate::{Input, Problems, problem_of_all};

/// An object of Kubernetes, or a document that is none: its kind is empty then.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// What it is written in: for places, and to decode parts of the node.
    pub(crate) document: Rc<Document>,
    /// As written, with its group: `networking.k8s.io/v1`.
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty if it is not said, which stands for `default`.
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// All of it.
    pub(crate) node: Node,
}

impl Resource {
    /// What is at a path of fields: `["spec", "rules"]`.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(&self.node, |node, name| field(node, name))
    }

    /// Where something is: `site.yaml:12:5`.
    pub(crate) fn place(&self, span: impl Into<Span>) -> String {
        self.document.problem(span.into(), "", "").place()
    }
}

/// All objects in the files: documents of a stream, and items of lists.
///
/// # Errors
/// What is wrong with the YAML, of all documents.
pub(crate) fn resources(inputs: &[Input]) -> Result<Vec<Resource>, Problems> {
    let (mut resources, mut problems) = (Vec::new(), Vec::new());
    for Input { name, text } in inputs {
        for part in parts(text) {
            match Document::parse(name, &part) {
                Ok(document) => {
                    let document = Rc::new(document);
                    collect(&document, document.root(), &mut resources);
                }
                Err(problem) if part.contains("{{") => problems.push(problem.saying(
                    "a template is no manifest",
                    "give what it makes, such as by `helm template`, or what the cluster has",
                )),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if problems.is_empty() { Ok(resources) } else { Err(problems) }
}

/// Adds the object at a node, or those that it lists. The depth of a document is bounded.
fn collect(document: &Rc<Document>, node: &Node, resources: &mut Vec<Resource>) {
    let text = |node: Option<&Node>| text(node?).map(str::to_owned);
    let kind = text(field(node, "kind")).unwrap_or_default();
    match field(node, "items").map(|items| &items.value) {
        Some(Value::Sequence(items)) if kind.ends_with("List") => {
            items.iter().for_each(|item| collect(document, item, resources));
        }
        _ => {
            let metadata = field(node, "metadata");
            let own = |name| text(metadata.and_then(|metadata| field(metadata, name)));
            resources.push(Resource {
                api_version: text(field(node, "apiVersion")).unwrap_or_default(),
                kind,
                namespace: own("namespace").unwrap_or_default(),
                name: own("name").unwrap_or_default(),
                node: node.clone(),
                document: Rc::clone(document),
            });
        }
    }
}

/// The field of a mapping.
pub(crate) fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Mapping(fields) = &node.value else { return None };
    fields.iter().find(|(key, _)| key.value == name).map(|(_, node)| node)
}

/// The text of a node, if it is one.
pub(crate) fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A scalar as it is written; of a text without its quotes.
pub(crate) fn scalar<'d>(document: &'d Document, node: &'d Node) -> Option<&'d str> {
    match &node.value {
        Value::String(text) => Some(text),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => Some(document.source(node.span)),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// The items of a list, if it is one.
pub(crate) fn items(node: Option<&Node>) -> &[Node] {
    match node.map(|node| &node.value) {
        Some(Value::Sequence(items)) => items,
        _ => &[],
    }
}

/// A namespace as the cluster has it.
pub(crate) fn namespace_of(written: &str) -> &str {
    if written.is_empty() { "default" } else { written }
}

/// All configurations in files: their documents, and the texts of ConfigMaps.
///
/// # Errors
/// What is wrong with the YAML, and that nothing in it holds a configuration.
pub(super) fn documents(inputs: &[Input]) -> Result<Vec<Rc<Document>>, Problems> {
    let mut found = Vec::new();
    // ConfigMaps of something else are often in the same file, too.
    let mut others = Vec::new();
    for resource in resources(inputs)? {
        match resource.kind.as_str() {
            "ConfigMap" => found.extend(configurations(&resource, &mut others)?),
            "" => found.push(resource.document),
            // Others are often in the same file.
            _ => {}
        }
    }
    if found.is_empty() && !others.is_empty() {
        return Err(others);
    }
    if found.is_empty() {
        let message = "it holds neither descriptors nor a ConfigMap with some";
        let help = "give the file that has the descriptors";
        return Err(vec![problem_of_all(inputs, message, help)]);
    }
    Ok(found)
}

/// The documents of a stream that hold something, each at the line where it is in the file.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for (at, line) in text.lines().enumerate() {
        let is_empty = |rest: &str| rest.is_empty() || rest.starts_with('#');
        let is_mark = line.strip_prefix("---").is_some_and(|rest| is_empty(rest.trim_start()));
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
    map: &Resource,
    others: &mut Vec<Problem>,
) -> Result<Vec<Rc<Document>>, Vec<Problem>> {
    let mut found = Vec::new();
    if let Some(Value::Mapping(texts)) = map.at(&["data"]).map(|data| &data.value) {
        for (name, node) in texts {
            let Some(text) = text(node) else { continue };
            // Other texts of a ConfigMap need not be YAML.
            if text.lines().any(|line| line.starts_with("domain:")) {
                let name = format!("{}, data.{}", map.document.name(), name.value);
                let document = Document::parse(&name, text).map_err(|problem| vec![problem])?;
                found.push(Rc::new(document));
            }
        }
    }
    if found.is_empty() {
        let message = "no text below `data` of this ConfigMap has a `domain`";
        let help = "give the file that has the descriptors";
        others.push(map.document.problem(map.node.span, message, help));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str = "domain: a\ndescriptors: []\n";

    fn names(text: &str) -> Result<Vec<String>, Vec<Problem>> {
        let documents = documents(&[Input { name: "f.yaml".to_owned(), text: text.to_owned() }])?;
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

    #[test]
    fn objects_are_found_in_streams_and_lists() {
        let item = "{ apiVersion: v1, kind: A, metadata: { name: a, namespace: n } }";
        let text = format!(
            "--- # Source: a\n{item}\n---\nkind: List\nitems:\n- {item}\n- kind: AList\n  items: \
             [{item}]\n---\na: b\n"
        );
        let all = resources(&[Input { name: "f.yaml".to_owned(), text }]).unwrap();
        let places: Vec<String> = all.iter().map(|own| own.place(&own.node)).collect();
        assert_eq!(places, ["f.yaml:2:1", "f.yaml:6:3", "f.yaml:8:11", "f.yaml:10:1"]);
        for own in all.iter().take(3) {
            assert_eq!(
                [&own.api_version, &own.kind, &own.namespace, &own.name],
                ["v1", "A", "n", "a"]
            );
        }
        assert_eq!(all[3].kind, "");
    }

    #[test]
    fn all_that_is_no_yaml_is_named_and_templates_are_named_as_such() {
        let text = "a: [\n---\nb: {{ .Values.b }}: c\n".to_owned();
        let problems = resources(&[Input { name: "f.yaml".to_owned(), text }]).unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[1].message().contains("template"), "{}", problems[1]);
    }
}
