//! A table for a terminal of a known width.

use std::io::{self, Write};

use crate::report::{
    safe,
    tables::{Kind, Table},
};

/// The most columns of a line. Wider ones wrap on many terminals, and a wrapped table is no table.
pub(super) const WIDTH: usize = 100;

/// The least that is left of a column of names.
const LEAST: usize = 8;

/// Between two columns, and before the first.
const GAP: usize = 2;

/// A column with its head.
struct Column<'t> {
    kind: Kind,
    cells: Vec<&'t str>,
    width: usize,
}

impl Column<'_> {
    fn is_name(&self) -> bool {
        self.kind == Kind::Name
    }

    /// The width that it needs: the beginning of a name tells enough.
    fn least(&self) -> usize {
        GAP + if self.is_name() { self.width.min(LEAST) } else { self.width }
    }
}

/// Writes a head and rows, indented. Each column is as wide as its longest cell, but for names,
/// which are cut where there is no room. What does not fit then comes in a further table with these
/// names.
pub(super) fn write(output: &mut dyn Write, table: &Table) -> io::Result<()> {
    let columns = columns(table);
    let (names, mut rest) =
        columns.split_at(columns.iter().take_while(|own| own.is_name()).count());
    let room = WIDTH - names.iter().map(Column::least).sum::<usize>();
    loop {
        let mut width = 0;
        let fits = |column: &&Column<'_>| {
            width += column.least();
            width <= room
        };
        let (part, next) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        write_part(output, &names.iter().chain(part).collect::<Vec<_>>())?;
        if next.is_empty() {
            break;
        }
        rest = next;
        writeln!(output)?;
    }
    table.more().map_or(Ok(()), |more| wrapped(output, "  ", &more))
}

fn columns(table: &Table) -> Vec<Column<'_>> {
    let columns = table.columns.iter().enumerate().map(|(at, column)| {
        let cells = table.rows.iter().filter_map(|row| row.get(at)).map(String::as_str);
        let cells: Vec<&str> = std::iter::once(column.head).chain(cells).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or_default();
        Column { kind: column.kind, cells, width }
    });
    columns.collect()
}

fn write_part(output: &mut dyn Write, columns: &[&Column<'_>]) -> io::Result<()> {
    let mut widths: Vec<usize> = columns.iter().map(|column| column.width).collect();
    while widths.iter().sum::<usize>() + GAP * columns.len() > WIDTH {
        let names = columns.iter().zip(&mut widths).filter(|(column, _)| column.is_name());
        let widest = names.map(|(_, width)| width).filter(|width| **width > LEAST).max();
        let Some(width) = widest else { break };
        *width -= 1;
    }
    let lines = columns.first().map_or(0, |column| column.cells.len());
    for at in 0..lines {
        let mut line = String::new();
        for (column, width) in columns.iter().zip(&widths) {
            let cell = column.cells.get(at).map(|cell| safe::at_most(cell, *width));
            let cell = cell.unwrap_or_default();
            line += &match column.kind {
                Kind::Name | Kind::Word | Kind::Time | Kind::Strong => format!("  {cell:width$}"),
                Kind::Number => format!("  {cell:>width$}"),
            };
        }
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Writes words in lines of at most [`WIDTH`], the first one after `first` and the others indented
/// as far. A word that is longer than a line is broken.
pub(super) fn wrapped(output: &mut dyn Write, first: &str, text: &str) -> io::Result<()> {
    let indent = first.chars().count();
    let mut line = String::new();
    let mut lead = first.to_owned();
    let room = WIDTH.saturating_sub(indent).max(1);
    for word in text.split_whitespace().flat_map(|word| pieces(word, room)) {
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > room {
            writeln!(output, "{lead}{line}")?;
            lead = " ".repeat(indent);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    writeln!(output, "{lead}{line}")
}

fn pieces(word: &str, most: usize) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    chars.chunks(most).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tables;

    fn written(name: &str) -> String {
        let columns = [("name", Kind::Name), ("n", Kind::Number)];
        let columns = columns.map(|(head, kind)| tables::Column { head, kind });
        let rows = [vec![name.to_owned(), "12".to_owned()], vec!["é".to_owned(), "3".to_owned()]];
        let table = Table {
            caption: String::new(),
            columns: columns.into(),
            rows: rows.into(),
            left_out: 0,
        };
        let mut output = Vec::new();
        write(&mut output, &table).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn numbers_stand_on_the_right() {
        assert_eq!(written("core"), "  name   n\n  core  12\n  é      3\n");
    }

    #[test]
    fn names_give_way() {
        let text = written(&"x".repeat(500));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("…  12"), "{text}");
    }

    #[test]
    fn sentences_are_wrapped() {
        let mut output = Vec::new();
        wrapped(&mut output, "  - ", &"word ".repeat(50)).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH && line.len() > 5));
        assert_eq!(text.lines().count(), 3);
    }
}
