//! How the servers of an upstream read paths: by a framework, and what is said beside it.

use tollgate_keyword::Keyword;
use tollgate_yaml::{Check, Choice, Node, Spanned, Value, suggest};

use super::Compiler;
use crate::{
    Framework, PathReading,
    file::{LATER, RawUpstreamPaths},
};

impl Compiler<'_> {
    /// An inner none: nobody says.
    pub(super) fn path_reading(&mut self, node: Option<&Node>) -> Option<Option<PathReading>> {
        let Some(node) = node else { return Some(None) };
        if let Value::Mapping(_) = node.value {
            let raw: RawUpstreamPaths = self.decode(node, LATER)?;
            return self.section_of_paths(&raw).map(Some);
        }
        let word = match &node.value {
            Value::String(word) => word.as_str(),
            other => other.kind(),
        };
        let framework = Framework::from_keyword(word);
        if framework.is_none() {
            let known = Framework::KEYWORDS.iter().map(|(word, _)| *word);
            let help = suggest(word, known.clone()).map_or_else(
                || format!("write one of {}", known.collect::<Vec<_>>().join(", ")),
                |word| format!("did you mean `{word}`?"),
            );
            self.note(node.span, format!("`{word}` is not a framework that is known"), help);
        }
        Some(Some(PathReading::of(framework?)))
    }

    fn section_of_paths(&mut self, raw: &RawUpstreamPaths) -> Option<PathReading> {
        let RawUpstreamPaths { framework, case, trailing_slash, matrix_params, suffix, path_info } =
            raw;
        let usual = match framework {
            None => Some(PathReading::default()),
            Some(framework) => self.keyword(framework).map(PathReading::of),
        };
        let usual_reading = usual.unwrap_or_default();
        let case = self.keyword_or(case.as_ref(), usual_reading.case);
        let trailing_slash = self.keyword_or(trailing_slash.as_ref(), usual_reading.trailing_slash);
        let matrix_params = self.keyword_or(matrix_params.as_ref(), usual_reading.matrix_params);
        let suffix = self.keyword_or(suffix.as_ref(), usual_reading.suffix);
        let path_info = self.keyword_or(path_info.as_ref(), usual_reading.path_info);
        Some(PathReading {
            framework: usual?.framework,
            case: case?,
            trailing_slash: trailing_slash?,
            matrix_params: matrix_params?,
            suffix: suffix?,
            path_info: path_info?,
        })
    }

    fn keyword_or<T: Keyword>(
        &mut self,
        raw: Option<&Spanned<Choice<T>>>,
        default: T,
    ) -> Option<T> {
        raw.map_or(Some(default), |raw| self.keyword(raw))
    }
}
