//! The summary's table of sites.

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    cells: Vec<(String, String)>,
    pub site: String,
}

/// The width of a cell, with the space before it.
const WIDTH: usize = 12;

impl Row {
    /// Returns a cell as it is printed; nothing if the table has no such column.
    pub fn cell(&self, column: &str) -> &str {
        let mut cells = self.cells.iter();
        cells
            .find(|(title, _)| title == column)
            .map_or("", |(_, cell)| cell)
    }

    /// Returns a number of bytes or blocks; 0 for none.
    pub fn number(&self, column: &str) -> f64 {
        let cell = self.cell(column).replace(',', "");
        let (number, unit) = cell.split_once(' ').unwrap_or((&cell, "B"));
        let unit = match unit {
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => 1.0,
        };
        number.parse::<f64>().unwrap_or(0.0) * unit
    }
}

/// Returns the rows of the first table in a text, without the row of errors; nothing if it has no table.
pub fn rows(text: &str) -> Vec<Row> {
    let Some((_, table)) = text.split_once("\nmemory by site, ") else {
        return Vec::new();
    };
    let mut lines = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with(' '));
    let Some(titles) = lines.next() else {
        return Vec::new();
    };
    let cells = |line: &str| -> (Vec<String>, String) {
        let characters: Vec<char> = line.chars().collect();
        let count = titles.trim_end_matches("site").trim_end().len() / WIDTH;
        let part = |from: usize, to: usize| characters[from..to].iter().collect::<String>();
        let cells = (0..count).map(|at| part(at * WIDTH, (at + 1) * WIDTH).trim().to_owned());
        (
            cells.collect(),
            part(count * WIDTH, characters.len()).trim().to_owned(),
        )
    };
    let (titles_of_columns, _) = cells(titles);
    let rows = lines.map(|line| {
        let (values, site) = cells(line);
        Row {
            cells: titles_of_columns.iter().cloned().zip(values).collect(),
            site,
        }
    });
    rows.filter(|row| row.site != "95 % confidence").collect()
}

/// Returns the row of a site that begins with a function and is called by another one.
pub fn row(text: &str, functions: &str) -> Row {
    let mut rows = rows(text).into_iter();
    let found = rows.find(|row| without_positions(&row.site).starts_with(functions));
    found.unwrap_or_else(|| panic!("{functions} in {text}"))
}

/// Returns a site without its source positions.
pub fn without_positions(site: &str) -> String {
    let mut parts = site.split(" (");
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let rest = part.split_once(')').map_or("", |(_, rest)| rest);
        plain.push_str(rest);
    }
    plain
}
