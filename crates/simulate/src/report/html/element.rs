//! The parts of which the page is made. What they are given is HTML already, but for captions.

use crate::report::{
    safe,
    tables::{Column, Kind, Table},
};

/// Appends a table in a region that scrolls by itself, also by keyboard, where the screen is
/// narrower than the table.
pub(super) fn scrolling(page: &mut String, own: &Table) {
    let label = safe::html(&own.caption);
    *page +=
        &format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\">\n");
    table(page, own);
    *page += "</div>\n";
    if let Some(more) = own.more() {
        hint(page, &more);
    }
}

/// Appends a table. Cells and rows have no end tags: HTML needs none there, and of a page of a
/// hundred limits they would be a tenth.
pub(super) fn table(page: &mut String, table: &Table) {
    let (classes, caption) = (classes(&table.columns), safe::html(&table.caption));
    *page += &format!("<table class=\"{classes}\"><caption>{caption}</caption><thead><tr>");
    for Column { head, kind: _ } in &table.columns {
        let (first, rest) = head.split_at(head.len().min(1));
        *page += &format!("<th scope=\"col\">{}{rest}</th>", first.to_ascii_uppercase());
    }
    *page += "</tr></thead><tbody>\n";
    for row in &table.rows {
        *page += "<tr>";
        for (at, (column, cell)) in table.columns.iter().zip(row).enumerate() {
            *page += if at == 0 { "<th scope=\"row\">" } else { "<td>" };
            let cell = sentence(cell);
            *page += &match column.kind {
                Kind::Strong if !cell.is_empty() => format!("<b>{cell}</b>"),
                Kind::Name | Kind::Word | Kind::Time | Kind::Number | Kind::Strong => cell,
            };
        }
        page.push('\n');
    }
    *page += "</tbody></table>\n";
}

/// A class for each column that is not of numbers: the style sheet places columns by these, since
/// a class on each cell would be a tenth of the page.
fn classes(columns: &[Column]) -> String {
    let mut classes = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        match column.kind {
            Kind::Name | Kind::Word => classes.push(format!("t{}", at + 1)),
            Kind::Time => classes.push(format!("w{}", at + 1)),
            Kind::Number | Kind::Strong => {}
        }
    }
    classes.join(" ")
}

/// A sentence: escaped, and its percent signs stay beside their numbers.
pub(super) fn sentence(text: &str) -> String {
    safe::html(text).replace(" %", "\u{a0}%")
}

/// A paragraph.
pub(super) fn paragraph(page: &mut String, text: &str) {
    *page += &format!("<p>{}</p>\n", sentence(text));
}

/// A paragraph in the tone of an explanation.
pub(super) fn hint(page: &mut String, text: &str) {
    *page += &format!("<p class=\"hint\">{}</p>\n", sentence(text));
}
