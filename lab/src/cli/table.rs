/// Formats rows as lines in which each column is as wide as its widest cell.
pub(super) fn lines<const N: usize>(rows: &[[String; N]], indent: &str) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect::<Vec<_>>();
        format!("{indent}{}", cells.join("  ")).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell() {
        let rows = [["a", "b", ""], ["long", "", "c"]].map(|row| row.map(str::to_owned));
        assert_eq!(lines(&rows, " "), " a     b\n long     c\n");
    }
}
