//! Columns for people.

use std::io::{self, Write};

/// Writes a head and rows. Each column is as wide as its longest cell.
pub(super) fn write<const COLUMNS: usize>(
    output: &mut dyn Write,
    head: &[String; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> io::Result<()> {
    let all: Vec<[String; COLUMNS]> = std::iter::once(head.clone()).chain(rows).collect();
    let mut widths = [0; COLUMNS];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in &all {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut text = Vec::new();
        let row = |cells: [&str; 2]| cells.map(String::from);
        write(&mut text, &row(["a", "b"]), [row(["é1", ""]), row(["2", "long"])].into_iter())
            .unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "a   b\né1\n2   long\n");
    }
}
