//! Which members of a JSON document are wanted: paths such as `usage.total_tokens` or `[-1].cost`.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::members::reads_alike;

/// A way from the root of a document to one of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// As it is written in a policy.
    text: Box<str>,
    /// Never empty.
    steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// To the member of an object with this name.
    Member(Box<str>),
    /// To the element of an array at this index.
    Element(u32),
    /// To the last element of an array.
    Last,
    /// To each element of an array: `[]`.
    Each,
}

/// Why a text is no path.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PathError {
    /// It is empty, or a name in it is.
    #[error("a name is missing in it")]
    NoName,
    /// Brackets hold something else than an index.
    #[error("`[{0}]` is neither an index, such as `[0]`, nor the last element, `[-1]`")]
    Index(String),
    /// A bracket has no other, or something else than `.` or `[` follows it.
    #[error("its brackets are not closed, or no `.` follows them")]
    Brackets,
    /// A name is too long to be looked for.
    #[error("a name in it has more than {MAX_NAME} bytes")]
    LongName,
    /// There are more paths and steps than a reader can look for at once.
    #[error("there are too many steps: {MAX_NODES} at most, of all paths together")]
    TooMany,
}

/// The longest name of a member that can be looked for, in bytes.
pub(crate) const MAX_NAME: usize = 128;

/// How many shapes of names are told apart.
const SHAPES: usize = 64;

/// The most places that paths may lead through, the root being one.
const MAX_NODES: usize = u128::BITS as usize;

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            let name_bytes = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(name_bytes);
            match name.len() {
                // A document may be an array itself.
                0 if steps.is_empty() && after.starts_with('[') => {}
                0 => return Err(PathError::NoName),
                1..=MAX_NAME => steps.push(Step::Member(name.into())),
                _ => return Err(PathError::LongName),
            }
            rest = after;
            while let Some(inside) = rest.strip_prefix('[') {
                let (index, after) = inside.split_once(']').ok_or(PathError::Brackets)?;
                steps.push(match index {
                    "" => Step::Each,
                    "-1" => Step::Last,
                    _ => match index.parse() {
                        Ok(at) if !index.starts_with('+') => Step::Element(at),
                        _ => return Err(PathError::Index(index.to_owned())),
                    },
                });
                rest = after;
            }
            match rest.strip_prefix('.') {
                Some(after) => rest = after,
                None if rest.is_empty() => return Ok(Path { text: text.into(), steps }),
                None => return Err(PathError::Brackets),
            }
        }
    }
}

impl Path {
    /// Whether it leads to one value at most.
    pub fn is_of_one_value(&self) -> bool {
        !self.steps.contains(&Step::Each)
    }

    /// As it is written in a policy.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// As it is written in a policy.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One after another.
impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, path) in self.names.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{path}")?;
        }
        Ok(())
    }
}

/// Places in a document, one bit each. The root is the lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(u128);

/// Several paths, for a reader that looks for all of them at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// As they are written.
    names: Vec<Path>,
    places: Vec<Place>,
    /// Those of members by the shape of their names: most names need no other look.
    by_shape: [Places; SHAPES],
    /// Those at which a path ends.
    ended: Places,
}

/// None.
impl Default for Paths {
    fn default() -> Self {
        let root = Place { step: None, children: Places::NONE, ends: Vec::new() };
        let by_shape = [Places::NONE; SHAPES];
        Paths { names: Vec::new(), places: vec![root], by_shape, ended: Places::NONE }
    }
}

/// A place that paths lead to or through.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The last step to it; none: it is the root.
    step: Option<Step>,
    /// The places that are one step further.
    children: Places,
    /// The numbers of the paths that end here: their positions among all paths.
    ends: Vec<usize>,
}

impl Places {
    /// The root alone.
    pub(crate) const ROOT: Places = Places(1);
    /// None at all.
    pub(crate) const NONE: Places = Places(0);

    fn at(position: usize) -> Places {
        Places(1 << position)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn with(self, other: Places) -> Places {
        Places(self.0 | other.0)
    }

    fn both(self, other: Places) -> Places {
        Places(self.0 & other.0)
    }

    fn without(self, other: Places) -> Places {
        Places(self.0 & !other.0)
    }

    pub(crate) fn overlaps(self, other: Places) -> bool {
        self.0 & other.0 != 0
    }

    fn positions(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let position = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(position)
        })
    }
}

impl Paths {
    /// These paths. Each has its position as its number.
    ///
    /// # Errors
    /// [`PathError::TooMany`].
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<Paths, PathError> {
        let mut all = Paths::default();
        for (number, path) in paths.into_iter().enumerate() {
            all.names.push(path.clone());
            let mut at = 0;
            for step in &path.steps {
                at = match all.child(at, step) {
                    Some(child) => child,
                    None => all.add_child(at, step)?,
                };
            }
            if let Some(place) = all.places.get_mut(at) {
                place.ends.push(number);
                all.ended = all.ended.with(Places::at(at));
            }
        }
        Ok(all)
    }

    /// The same, where the document may also be an array: each of its elements is taken for one.
    #[must_use]
    pub(crate) fn or_in_array(mut self) -> Paths {
        if let Ok(each) = self.add_child(0, &Step::Each) {
            let own = Places::at(each);
            if let Some(children) = self.places.first().map(|root| root.children)
                && let Some(place) = self.places.get_mut(each)
            {
                place.children = children.without(own);
            }
        }
        self
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// The path of this number.
    pub fn get(&self, number: usize) -> Option<&Path> {
        self.names.get(number)
    }

    fn child(&self, parent: usize, step: &Step) -> Option<usize> {
        let children = self.places.get(parent)?.children;
        let is_it = |child: &usize| self.step(*child) == Some(step);
        children.positions().find(is_it)
    }

    fn add_child(&mut self, parent: usize, step: &Step) -> Result<usize, PathError> {
        let child = self.places.len();
        if child == MAX_NODES {
            return Err(PathError::TooMany);
        }
        let (children, ends) = (Places::NONE, Vec::new());
        self.places.push(Place { step: Some(step.clone()), children, ends });
        if let Some(place) = self.places.get_mut(parent) {
            place.children = place.children.with(Places::at(child));
        }
        if let Step::Member(name) = step
            && let Some(alike) = self.by_shape.get_mut(shape(name.as_bytes()))
        {
            *alike = alike.with(Places::at(child));
        }
        Ok(child)
    }

    fn step(&self, position: usize) -> Option<&Step> {
        self.places.get(position)?.step.as_ref()
    }

    /// The places one step further than these.
    pub(crate) fn children(&self, of: Places) -> Places {
        let own = of.positions().filter_map(|position| self.places.get(position));
        own.fold(Places::NONE, |all, place| all.with(place.children))
    }

    /// Those of these places for whose last step `is_next` holds.
    fn next(&self, children: Places, is_next: impl Fn(&Step) -> bool) -> Places {
        let children = children.positions();
        let next = children.filter(|child| self.step(*child).is_some_and(&is_next));
        next.fold(Places::NONE, |all, child| all.with(Places::at(child)))
    }

    /// Which of an object's children are the member of this name.
    pub(crate) fn member(&self, children: Places, name: &[u8]) -> Places {
        let alike =
            self.by_shape.get(shape(name)).map_or(Places::NONE, |alike| alike.both(children));
        if alike.is_empty() {
            return Places::NONE;
        }
        self.next(alike, |step| matches!(step, Step::Member(own) if own.as_bytes() == name))
    }

    /// Which of an object's children some reader takes this name for.
    pub(crate) fn members_alike(&self, children: Places, name: &[u8]) -> Places {
        let Ok(name) = std::str::from_utf8(name) else { return Places::NONE };
        self.next(children, |step| matches!(step, Step::Member(own) if reads_alike(name, own)))
    }

    /// Which of an array's children are the element at this index.
    pub(crate) fn element(&self, children: Places, index: u32) -> Places {
        self.next(children, |step| match step {
            Step::Element(own) => *own == index,
            Step::Last | Step::Each => true,
            Step::Member(_) => false,
        })
    }

    /// Which of an array's children are its last element.
    pub(crate) fn last(&self, children: Places) -> Places {
        self.next(children, |step| *step == Step::Last)
    }

    /// The numbers of the paths that lead to these places or through them.
    pub(crate) fn through(&self, at: Places) -> impl Iterator<Item = usize> {
        let (mut all, mut newest) = (at, at);
        while !newest.is_empty() {
            newest = self.children(newest);
            all = all.with(newest);
        }
        self.ends(all)
    }

    /// The numbers of the paths that end at these places.
    pub(crate) fn ends(&self, at: Places) -> impl Iterator<Item = usize> {
        let places = at.both(self.ended).positions();
        let places = places.filter_map(|position| self.places.get(position));
        places.flat_map(|place| place.ends.iter().copied())
    }

    /// Whether one of the paths ends at one of these places.
    pub(crate) fn has_end(&self, at: Places) -> bool {
        self.ended.overlaps(at)
    }
}

/// The shape of a name: its length and its last byte, in which names differ as a rule.
fn shape(name: &[u8]) -> usize {
    (name.len() + usize::from(name.last().copied().unwrap_or_default())) % SHAPES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Path, PathError> {
        text.parse()
    }

    #[test]
    fn paths_are_written_as_they_are_read() {
        for text in ["usage", "usage.total_tokens", "[0].a", "[-1].usage.x", "a[2][-1].b", "a[].b"]
        {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_path_is_refused_with_the_reason() {
        assert_eq!(parse(""), Err(PathError::NoName));
        assert_eq!(parse("a..b"), Err(PathError::NoName));
        assert_eq!(parse("a."), Err(PathError::NoName));
        assert_eq!(parse("a[0"), Err(PathError::Brackets));
        assert_eq!(parse("a]"), Err(PathError::Brackets));
        assert_eq!(parse("a[0]b"), Err(PathError::Brackets));
        assert_eq!(parse("a[-2]"), Err(PathError::Index("-2".to_owned())));
        assert_eq!(parse("a[+1]"), Err(PathError::Index("+1".to_owned())));
        assert_eq!(parse(&"a".repeat(MAX_NAME + 1)), Err(PathError::LongName));
    }

    #[test]
    fn paths_share_the_places_that_they_have_in_common() {
        let paths = ["a.b", "a.c", "a.b"].map(|text| parse(text).unwrap());
        let paths = Paths::new(&paths).unwrap();
        let a = paths.member(paths.children(Places::ROOT), b"a");
        assert!(!a.is_empty() && !paths.has_end(a));
        let children = paths.children(a);
        let b: Vec<usize> = paths.ends(paths.member(children, b"b")).collect();
        assert_eq!(b, [0, 2]);
        assert!(paths.member(children, b"d").is_empty());
    }

    #[test]
    fn more_steps_than_can_be_looked_for_are_refused() {
        let paths: Vec<Path> = (0..MAX_NODES).map(|at| parse(&format!("m{at}")).unwrap()).collect();
        assert!(Paths::new(&paths[1..]).is_ok());
        assert_eq!(Paths::new(&paths), Err(PathError::TooMany));
    }
}
