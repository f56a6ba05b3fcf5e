//! How many tokens a language model has used, as its vendor's responses say.
//!
//! The vendors count differently. OpenAI and Gemini include the tokens that came from a cache in
//! the prompt, Anthropic leaves them out. Gemini's thoughts come on top of what it answers, the
//! reasoning of the others is a part of it. Here every token is counted once, by its kind.

use std::{mem, sync::LazyLock};

use tollgate_keyword::keywords;

use crate::{
    json::{Amount, Found},
    path::{Path, Paths},
};

/// Whose fields are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// Whichever are there.
    Auto,
    /// Chat Completions, Completions, Responses and Embeddings.
    OpenAi,
    /// Messages.
    Anthropic,
    /// `generateContent` and `streamGenerateContent`.
    Gemini,
}

keywords! {
    Vendor { Auto = "auto", OpenAi = "openai", Anthropic = "anthropic", Gemini = "gemini" }
}

/// Tokens of a response, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Of the prompt, but for those from a cache or into one.
    pub input: u64,
    /// Of the prompt, read from a cache.
    pub cached: u64,
    /// Of the prompt, written into a cache.
    pub cache_write: u64,
    /// What the model made, with its reasoning.
    pub output: u64,
}

/// Collects what a response says of its tokens. Numbers in a stream are totals so far: a later one
/// replaces an earlier one, and one that is not there replaces nothing.
#[derive(Clone, Debug, Default)]
pub struct TokenCounts {
    counts: [Option<u64>; FIELDS],
    /// Whether something is told.
    has_counts: bool,
    /// Whether one of them is no number of tokens, so that the others say too little.
    is_unfit: bool,
    /// Bytes of what the model has made, in the parts of a stream.
    pub delta_bytes: u64,
}

/// A number that a vendor tells.
#[derive(Clone, Copy)]
enum Field {
    /// OpenAI, Chat Completions: cached ones included.
    Prompt,
    Completion,
    PromptCached,
    PromptCacheWrite,
    /// OpenAI, Responses: cached ones included; Anthropic: without them.
    Input,
    Output,
    InputCached,
    InputCacheWrite,
    /// Anthropic.
    CacheRead,
    CacheCreation,
    /// Gemini.
    GeminiPrompt,
    Candidates,
    Thoughts,
    ToolUsePrompt,
    CachedContent,
    /// No number: a part of what the model makes, in a stream.
    Delta,
}

/// How many kinds of numbers there are.
const FIELDS: usize = Field::Delta as usize;

/// Where vendors tell their numbers. Of a stream that is one array, its elements are documents.
const OPENAI: &[(&str, Field)] = &[
    ("usage.prompt_tokens", Field::Prompt),
    ("usage.completion_tokens", Field::Completion),
    ("usage.prompt_tokens_details.cached_tokens", Field::PromptCached),
    ("usage.prompt_tokens_details.cache_write_tokens", Field::PromptCacheWrite),
    ("usage.input_tokens", Field::Input),
    ("usage.output_tokens", Field::Output),
    ("usage.input_tokens_details.cached_tokens", Field::InputCached),
    ("usage.input_tokens_details.cache_write_tokens", Field::InputCacheWrite),
    ("response.usage.input_tokens", Field::Input),
    ("response.usage.output_tokens", Field::Output),
    ("response.usage.input_tokens_details.cached_tokens", Field::InputCached),
    ("response.usage.input_tokens_details.cache_write_tokens", Field::InputCacheWrite),
    ("choices[].delta.content", Field::Delta),
    ("choices[].delta.refusal", Field::Delta),
    ("choices[].delta.reasoning_content", Field::Delta),
    ("choices[].delta.tool_calls[].function.arguments", Field::Delta),
    ("choices[].text", Field::Delta),
    ("delta", Field::Delta),
];
const ANTHROPIC: &[(&str, Field)] = &[
    ("usage.input_tokens", Field::Input),
    ("usage.output_tokens", Field::Output),
    ("usage.cache_read_input_tokens", Field::CacheRead),
    ("usage.cache_creation_input_tokens", Field::CacheCreation),
    ("message.usage.input_tokens", Field::Input),
    ("message.usage.output_tokens", Field::Output),
    ("message.usage.cache_read_input_tokens", Field::CacheRead),
    ("message.usage.cache_creation_input_tokens", Field::CacheCreation),
    ("delta.text", Field::Delta),
    ("delta.thinking", Field::Delta),
    ("delta.partial_json", Field::Delta),
];
const GEMINI: &[(&str, Field)] = &[
    ("usageMetadata.promptTokenCount", Field::GeminiPrompt),
    ("usageMetadata.candidatesTokenCount", Field::Candidates),
    ("usageMetadata.responseTokenCount", Field::Candidates),
    ("usageMetadata.thoughtsTokenCount", Field::Thoughts),
    ("usageMetadata.toolUsePromptTokenCount", Field::ToolUsePrompt),
    ("usageMetadata.cachedContentTokenCount", Field::CachedContent),
    ("candidates[].content.parts[].text", Field::Delta),
];

/// What is looked for of a vendor: paths, and the field that each leads to.
struct Form {
    paths: Paths,
    fields: Vec<Field>,
}

static OPENAI_FORM: LazyLock<Form> = LazyLock::new(|| Form::of(&[OPENAI]));
static ANTHROPIC_FORM: LazyLock<Form> = LazyLock::new(|| Form::of(&[ANTHROPIC]));
static GEMINI_FORM: LazyLock<Form> = LazyLock::new(|| Form::of(&[GEMINI]));
static AUTO_FORM: LazyLock<Form> = LazyLock::new(|| Form::of(&[OPENAI, ANTHROPIC, GEMINI]));

impl Form {
    fn of(vendors: &[&[(&str, Field)]]) -> Form {
        let all = vendors.iter().copied().flatten();
        let mut listed: Vec<(Path, Field)> = Vec::new();
        for (text, field) in all {
            // A test parses them all.
            let Ok(path) = text.parse::<Path>() else { continue };
            // Vendors that call it alike.
            if !listed.iter().any(|(other, _)| *other == path) {
                listed.push((path, *field));
            }
        }
        let fields = listed.iter().map(|(_, field)| *field).collect();
        // A stream may be one array of documents.
        let paths = Paths::new(listed.iter().map(|(path, _)| path)).unwrap_or_default();
        Form { paths: paths.or_in_array(), fields }
    }
}

impl Vendor {
    fn form(self) -> &'static Form {
        match self {
            Vendor::Auto => &AUTO_FORM,
            Vendor::OpenAi => &OPENAI_FORM,
            Vendor::Anthropic => &ANTHROPIC_FORM,
            Vendor::Gemini => &GEMINI_FORM,
        }
    }

    /// Where its numbers are.
    pub(crate) fn paths(self) -> &'static Paths {
        &self.form().paths
    }
}

impl TokenCounts {
    /// Notes what there is at the path of this number among [`Vendor::paths`].
    pub(crate) fn note(&mut self, vendor: Vendor, path: usize, value: Found<'_>) {
        let Some(field) = vendor.form().fields.get(path) else { return };
        match (field, value) {
            (Field::Delta, Found::Text(text)) => self.delta_bytes += text.bytes,
            (Field::Delta, _) => {}
            (field, Found::Number(number)) => {
                self.has_counts = true;
                match (self.counts.get_mut(*field as usize), Amount::parse(number)) {
                    (Some(slot), Some(amount)) => *slot = Some(amount.units),
                    _ => self.is_unfit = true,
                }
            }
            (_, Found::Null) => {}
            (_, Found::Bool(_) | Found::Text(_) | Found::Container) => {
                (self.has_counts, self.is_unfit) = (true, true);
            }
        }
    }

    /// Adds what a later document says, and takes it out of there.
    pub(crate) fn take_from(&mut self, later: &mut TokenCounts) {
        self.delta_bytes = self.delta_bytes.saturating_add(mem::take(&mut later.delta_bytes));
        // Of most parts of a stream only their text counts.
        if !mem::take(&mut later.has_counts) {
            return;
        }
        self.has_counts = true;
        self.is_unfit |= mem::take(&mut later.is_unfit);
        for (count, later) in self.counts.iter_mut().zip(&mut later.counts) {
            *count = later.take().or(*count);
        }
    }

    fn count(&self, field: Field) -> Option<u64> {
        self.counts.get(field as usize).copied().flatten()
    }

    /// The tokens, each counted once; none: the response did not say, or said what is no number.
    ///
    /// Where it says so in two vendors' fields, as some gateways do, OpenAI's count: they are the
    /// ones that such gateways imitate.
    pub fn tokens(&self) -> Option<Tokens> {
        if self.is_unfit {
            return None;
        }
        let of = |field| self.count(field).unwrap_or(0);
        let has = |fields: [Field; 2]| fields.iter().any(|field| self.count(*field).is_some());
        let including = |prompt: u64, cached: u64, cache_write: u64, output: u64| Tokens {
            input: prompt.saturating_sub(cached).saturating_sub(cache_write),
            cached,
            cache_write,
            output,
        };
        if has([Field::Prompt, Field::Completion]) {
            let (cached, write) = (of(Field::PromptCached), of(Field::PromptCacheWrite));
            return Some(including(of(Field::Prompt), cached, write, of(Field::Completion)));
        }
        if has([Field::Input, Field::Output]) {
            if has([Field::InputCached, Field::InputCacheWrite]) {
                let (cached, write) = (of(Field::InputCached), of(Field::InputCacheWrite));
                return Some(including(of(Field::Input), cached, write, of(Field::Output)));
            }
            return Some(Tokens {
                input: of(Field::Input),
                cached: of(Field::CacheRead),
                cache_write: of(Field::CacheCreation),
                output: of(Field::Output),
            });
        }
        if has([Field::GeminiPrompt, Field::Candidates]) {
            let prompt = of(Field::GeminiPrompt).saturating_add(of(Field::ToolUsePrompt));
            let output = of(Field::Candidates).saturating_add(of(Field::Thoughts));
            return Some(including(prompt, of(Field::CachedContent), 0, output));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_of_all_vendors_are_looked_for() {
        for (vendors, form) in [
            (vec![OPENAI, ANTHROPIC, GEMINI], &AUTO_FORM),
            (vec![OPENAI], &OPENAI_FORM),
            (vec![ANTHROPIC], &ANTHROPIC_FORM),
            (vec![GEMINI], &GEMINI_FORM),
        ] {
            let all: std::collections::BTreeSet<&str> =
                vendors.iter().flat_map(|paths| paths.iter().map(|(text, _)| *text)).collect();
            assert_eq!(form.fields.len(), all.len());
            assert_ne!(form.paths, Paths::default());
        }
    }
}
