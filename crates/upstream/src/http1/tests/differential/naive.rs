//! A naive reading of a response, as lenient as can be: it finds what makes a difference.

/// What a response is made of.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) interims: Vec<Head>,
    /// The last head, also if it is not complete.
    pub(super) head: Head,
    pub(super) is_complete: bool,
    /// Up to the end of the last head.
    pub(super) has_bare_line_feed: bool,
    body: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) is_http10: bool,
    pub(super) bytes: usize,
    /// Names in small letters.
    fields: Vec<(String, String)>,
}

/// What is wrong with a chunked body, the first thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    SpaceAfterSize,
    ManyDigits,
    ControlInExtension,
    BareLineFeedInTrailers,
}

impl Reading {
    pub(super) fn of(bytes: &[u8]) -> Reading {
        let mut reading = Reading::default();
        let mut lines = Lines(bytes);
        let mut head: Option<Head> = None;
        while let Some((line, is_bare)) = lines.next_line() {
            reading.has_bare_line_feed |= is_bare;
            match &mut head {
                None if line.is_empty() => {}
                None => head = Some(Head::of(&line)),
                Some(_) if line.is_empty() => {
                    let whole = head.take().unwrap_or_default();
                    if matches!(whole.status, 100 | 102..=199) {
                        reading.interims.push(whole);
                    } else {
                        reading.head = whole;
                        reading.is_complete = true;
                        reading.body = lines.0.to_vec();
                        return reading;
                    }
                }
                Some(head) => head.push(&line),
            }
        }
        reading.head = head.unwrap_or_default();
        reading
    }

    /// The first flaw of its chunks, if it is chunked.
    pub(super) fn flaw(&self) -> Option<Flaw> {
        let mut rest = Lines(&self.body);
        if self.head.values("transfer-encoding").is_empty() {
            return None;
        }
        loop {
            let (line, _) = rest.next_line()?;
            let digits = line.bytes().take_while(u8::is_ascii_hexdigit).count();
            let (size, extension) = line.split_at(digits);
            if !extension.is_empty() && extension.trim_matches([' ', '\t']).is_empty() {
                return Some(Flaw::SpaceAfterSize);
            }
            if digits > 16 {
                return Some(Flaw::ManyDigits);
            }
            if extension.chars().any(|it| it.is_ascii_control() && it != '\t') {
                return Some(Flaw::ControlInExtension);
            }
            let size = usize::from_str_radix(size, 16).ok()?;
            if size == 0 {
                break;
            }
            rest.0 = rest.0.get(size.checked_add(2)?..)?;
        }
        while let Some((line, is_bare)) = rest.next_line() {
            if is_bare {
                return Some(Flaw::BareLineFeedInTrailers);
            }
            if line.is_empty() {
                break;
            }
        }
        None
    }
}

impl Head {
    fn of(line: &str) -> Head {
        let mut words = line.split(' ');
        let is_http10 = words.next() == Some("HTTP/1.0");
        let status = words.next().and_then(|status| status.parse().ok()).unwrap_or_default();
        Head { status, is_http10, bytes: line.len() + 2, fields: Vec::new() }
    }

    fn push(&mut self, line: &str) {
        self.bytes += line.len() + 2;
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        self.fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }

    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter(|(other, _)| other == name);
        fields.map(|(_, value)| value.as_str()).collect()
    }

    /// What Content-Length says, each.
    pub(super) fn lengths(&self) -> Vec<&str> {
        let values = self.values("content-length").into_iter();
        values.flat_map(|value| value.split(',').map(str::trim)).collect()
    }
}

/// Lines that are left.
struct Lines<'b>(&'b [u8]);

impl Lines<'_> {
    /// The next line without its end, a byte a character; and whether it ends in a bare line feed.
    fn next_line(&mut self) -> Option<(String, bool)> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = (&self.0[..end], &self.0[end + 1..]);
        self.0 = rest;
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        let is_bare = text.len() == line.len();
        Some((text.iter().map(|byte| char::from(*byte)).collect(), is_bare))
    }
}
