//! The parts of which the page is made. What they are given is HTML already, but for captions.

use std::fmt::Write as _;

use crate::report::safe;

/// A table: what a screen reader calls it, its head, and rows whose first cell names the row.
pub(super) struct Table<'t> {
    pub(super) caption: &'t str,
    pub(super) class: &'t str,
    pub(super) head: &'t [Head],
}

/// The head of a column.
pub(super) enum Head {
    /// Of text, on the left.
    Text(&'static str),
    /// Of times, on the left and each in one line.
    Time(&'static str),
    /// Of numbers, on the right.
    Number(&'static str),
}

/// A row of a table.
pub(super) struct Row {
    /// Of the row; empty for most.
    pub(super) class: &'static str,
    pub(super) cells: Vec<String>,
}

impl From<Vec<String>> for Row {
    fn from(cells: Vec<String>) -> Self {
        Self { class: "", cells }
    }
}

impl Table<'_> {
    /// Appends the table in a region that scrolls by itself, also by keyboard, where the screen is
    /// narrower than the table.
    pub(super) fn write_scrolling(&self, page: &mut String, rows: impl Iterator<Item = Row>) {
        let label = safe::html(self.caption);
        *page += &format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\">\n"
        );
        self.write(page, rows);
        *page += "</div>\n";
    }

    /// Appends the table. Cells and rows have no end tags: HTML needs none there, and of a page of a
    /// hundred limits they would be a tenth.
    pub(super) fn write(&self, page: &mut String, rows: impl Iterator<Item = Row>) {
        let caption = safe::html(self.caption);
        let class = attribute("class", &self.classes());
        *page += &format!("<table{class}><caption>{caption}</caption><thead><tr>");
        for Head::Text(text) | Head::Time(text) | Head::Number(text) in self.head {
            *page += &format!("<th scope=\"col\">{text}</th>");
        }
        *page += "</tr></thead><tbody>\n";
        for row in rows {
            *page += &format!("<tr{}>", attribute("class", row.class));
            for (at, cell) in row.cells.iter().enumerate() {
                let _ = match at {
                    0 => write!(page, "<th scope=\"row\">{cell}"),
                    _ => write!(page, "<td>{cell}"),
                };
            }
            page.push('\n');
        }
        *page += "</tbody></table>\n";
    }

    /// The table's own class, and one for each column that is not of numbers: the style sheet
    /// places columns by these, since a class on each cell would be a tenth of the page.
    fn classes(&self) -> String {
        let mut classes = self.class.to_owned();
        for (at, head) in self.head.iter().enumerate() {
            let kind = match head {
                Head::Text(_) => 't',
                Head::Time(_) => 'w',
                Head::Number(_) => continue,
            };
            let _ = write!(classes, " {kind}{}", at + 1);
        }
        classes.trim_start().to_owned()
    }
}

fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{value}\"") }
}

/// A sentence: escaped, and its percent signs stay beside their numbers.
pub(super) fn sentence(text: &str) -> String {
    safe::html(text).replace(" %", "\u{a0}%")
}

/// A paragraph in the tone of an explanation.
pub(super) fn hint(page: &mut String, text: &str) {
    *page += &format!("<p class=\"hint\">{}</p>\n", sentence(text));
}

/// A name as a cell.
pub(super) fn name(text: &str) -> String {
    safe::html(&safe::name(text))
}
