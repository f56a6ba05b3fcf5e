//! Columns for a terminal of a known width.

use std::io::{self, Write};

/// The most columns of a line. Wider ones wrap on many terminals, and a wrapped table is no table.
pub(super) const WIDTH: usize = 100;

/// The least that is left of a column that gives way.
const LEAST: usize = 8;

/// A column: its head, and how its cells stand.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) stands: Stands,
}

/// How the cells of a column stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    /// On the left.
    Left,
    /// On the left, and cut if the line is too long: names, whose beginning tells enough.
    GivesWay,
    /// On the right: numbers.
    Right,
}

/// The width of a table as it is, without giving way.
pub(super) fn least_width(columns: &[Column], rows: &[Vec<String>]) -> usize {
    let widths = widths(columns, rows);
    let least = columns.iter().zip(&widths).map(|(column, width)| match column.stands {
        Stands::GivesWay => (*width).min(LEAST),
        Stands::Left | Stands::Right => *width,
    });
    least.sum::<usize>() + 2 * columns.len()
}

/// Writes a head and rows, indented by two. Each column is as wide as its longest cell, but for
/// those that give way.
pub(super) fn write(
    output: &mut dyn Write,
    columns: &[Column],
    rows: &[Vec<String>],
) -> io::Result<()> {
    let mut widths = widths(columns, rows);
    while widths.iter().sum::<usize>() + 2 * columns.len() > WIDTH {
        let gives_way = |(column, width): &(&Column, &mut usize)| {
            column.stands == Stands::GivesWay && **width > LEAST
        };
        let widest = columns.iter().zip(&mut widths).filter(gives_way).max_by_key(|own| *own.1);
        let Some((_, width)) = widest else { break };
        *width -= 1;
    }
    line(output, columns, &widths, columns.iter().map(|column| column.head))?;
    for row in rows {
        line(output, columns, &widths, row.iter().map(String::as_str))?;
    }
    Ok(())
}

fn widths(columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|own| own.head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    widths
}

fn line<'c>(
    output: &mut dyn Write,
    columns: &[Column],
    widths: &[usize],
    cells: impl Iterator<Item = &'c str>,
) -> io::Result<()> {
    let mut text = String::new();
    for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
        let cell = cut(cell, *width);
        match column.stands {
            Stands::Left | Stands::GivesWay => text += &format!("  {cell:width$}"),
            Stands::Right => text += &format!("  {cell:>width$}"),
        }
    }
    writeln!(output, "{}", text.trim_end())
}

fn cut(cell: &str, width: usize) -> String {
    match cell.chars().count() > width {
        true => cell.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => cell.to_owned(),
    }
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

    const COLUMNS: [Column; 2] = [
        Column { head: "name", stands: Stands::GivesWay },
        Column { head: "n", stands: Stands::Right },
    ];

    fn written(name: &str) -> String {
        let rows = [vec![name.to_owned(), "12".to_owned()], vec!["é".to_owned(), "3".to_owned()]];
        let mut output = Vec::new();
        write(&mut output, &COLUMNS, &rows).unwrap();
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
