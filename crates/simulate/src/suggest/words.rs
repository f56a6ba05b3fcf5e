//! Names and texts, so that YAML reads what was meant and policies take it.

use tollgate_yaml::literal;

use crate::paths::Template;

/// The name of the limit of all requests.
pub(super) const CORE: &str = "core";

/// Words that programs which read YAML take for something else than text.
const NO_TEXT: [&str; 12] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];

/// Ends of the names of a limit's windows, which other limits cannot have.
const WINDOWS: [&str; 3] = ["-second", "-minute", "-hour"];

/// The longest name of a limit that is made here. Policies allow more.
const LONGEST_NAME: usize = 40;

/// Whether policies take a text for the name of a limit, a tier or a kind of caller.
pub(super) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Whether a tier can be called so. Tollgate's own logs say `default` where a policy has no tiers.
pub(super) fn is_tier(text: &str) -> bool {
    is_name(text) && text != "default"
}

/// A name as YAML has it: in quotes, if it could be taken for something else.
pub(super) fn yaml_name(name: &str) -> String {
    let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_text = !NO_TEXT.iter().any(|word| word.eq_ignore_ascii_case(name));
    if is_word && is_text && is_name(name) { name.to_owned() } else { literal(name) }
}

/// A text that a comment can have: without ends of lines, and what YAML forbids.
pub(super) fn one_line(text: &str) -> String {
    let is_forbidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_forbidden(c) { ' ' } else { c }).collect()
}

/// A name for a limit: the words of its route that do not vary.
pub(super) fn name_of(template: &Template, taken: &[String]) -> String {
    let is_said = |word: &&String| !matches!(word.as_str(), "api" | "v1" | "v2" | "v3");
    let words: Vec<String> = template
        .words
        .iter()
        .filter(is_said)
        .map(|word| {
            let kept = word.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
            kept.collect::<String>().to_ascii_lowercase().trim_matches('-').to_owned()
        })
        .filter(|word| !word.is_empty())
        .collect();
    let mut name = words.join("-");
    name.truncate(LONGEST_NAME);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name = if name.is_empty() { "root".to_owned() } else { format!("route-{name}") };
    }
    let is_taken = |name: &str| taken.iter().any(|other| collide(name, other));
    // Of `/items` and `/items/{a}`, the second is about one of the first.
    if is_taken(&name) && template.pattern.ends_with('}') && !is_taken(&format!("{name}-one")) {
        name += "-one";
    }
    let mut number = 1;
    let base = name.clone();
    while is_taken(&name) {
        number += 1;
        name = format!("{base}-{number}");
    }
    name
}

/// Whether two limits cannot have these names, because one is also that of a window of the other.
fn collide(one: &str, other: &str) -> bool {
    let is_window_of = |window: &str, limit: &str| {
        window.strip_prefix(limit).is_some_and(|end| WINDOWS.contains(&end))
    };
    one == other || is_window_of(one, other) || is_window_of(other, one)
}
