//! A table, written to pages, Markdown, CSV and LaTeX. Must not depend on: the
//! meaning of its cells.

use std::fmt::Write as _;

use super::text::escape;

/// A table of texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// The name of its file.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>, head: &[&str]) -> Self {
        Table {
            name: name.into(),
            title: title.into(),
            head: head.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table without empty columns.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let has = |at: usize| self.rows.iter().any(|row| row[at] != "–");
        let kept: Vec<bool> = (0..self.head.len()).map(|at| at == 0 || has(at)).collect();
        let keep = |cells: &mut Vec<String>| {
            let mut columns = kept.iter();
            cells.retain(|_| columns.next().copied().unwrap_or(true));
        };
        keep(&mut self.head);
        self.rows.iter_mut().for_each(keep);
        self
    }

    /// The table without its title. Verdicts are coloured.
    pub(crate) fn html(&self) -> String {
        let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
        for name in &self.head {
            let _ = write!(html, "<th>{}</th>", escape(name));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for cell in row {
                let class = match cell.split(' ').next() {
                    Some("DIFFERS") => " class=\"bad\"",
                    Some("holds" | "equal") => " class=\"good\"",
                    _ => "",
                };
                let _ = write!(html, "<td{class}>{}</td>", escape(cell));
            }
            html.push_str("</tr>");
        }
        html + "</tbody></table></div>"
    }

    /// Text for a terminal: the title, then aligned columns, numbers to the right.
    /// At most `rows_max` rows are shown.
    pub(crate) fn plain(&self, rows_max: usize) -> String {
        let rows = &self.rows[..self.rows.len().min(rows_max)];
        let columns: Vec<(usize, bool)> = (0..self.head.len())
            .map(|at| {
                let cells = rows.iter().map(|row| row[at].as_str());
                let width = cells.clone().chain([self.head[at].as_str()]);
                let width = width.map(|cell| cell.chars().count()).max();
                (width.unwrap_or(0), cells.clone().all(is_number))
            })
            .collect();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&columns);
            let cells = cells.map(|(cell, &(width, is_number))| match is_number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            format!("  {}", cells.collect::<Vec<_>>().join("  "))
                .trim_end()
                .to_owned()
                + "\n"
        };
        let mut text = format!("{}\n{}", self.title, line(&self.head));
        rows.iter().for_each(|row| text += &line(row));
        if rows.len() < self.rows.len() {
            let left = self.rows.len() - rows.len();
            let _ = writeln!(text, "  and {left} more, in the report");
        }
        text
    }

    /// A pipe table under a heading.
    pub(crate) fn markdown(&self) -> String {
        let cell = |text: &String| text.replace('|', "\\|").replace('\n', " ");
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(cell).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = format!("### {}\n\n{}", self.title, line(&self.head));
        let rules = (0..self.head.len()).map(|at| if at == 0 { "---" } else { "---:" });
        let _ = writeln!(text, "|{}|", rules.collect::<Vec<_>>().join("|"));
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }

    /// CSV as in RFC 4180.
    pub(crate) fn csv(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| csv_field(cell)).collect();
            cells.join(",") + "\r\n"
        };
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.head) + &rows
    }

    /// A `table` with rules of the package `booktabs`.
    pub(crate) fn latex(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| latex_text(cell)).collect();
            cells.join(" & ") + " \\\\\n"
        };
        let columns = "r".repeat(self.head.len().saturating_sub(1));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!(
            "% needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\label{{tab:{}}}\n\
             \\begin{{tabular}}{{l{columns}}}\n\\toprule\n{}\\midrule\n{rows}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n",
            latex_text(&self.title),
            self.name,
            line(&self.head)
        )
    }
}

/// True if a cell shows a number, with or without a unit, or is empty.
fn is_number(cell: &str) -> bool {
    let unsigned = cell.trim_start_matches(['+', '-', '−']);
    unsigned.starts_with(|first: char| first.is_ascii_digit()) || matches!(cell, "" | "–")
}

/// A field of a CSV file, quoted if necessary.
pub(crate) fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn latex_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                safe.push('\\');
                safe.push(character);
            }
            '~' => safe.push_str("\\textasciitilde{}"),
            '^' => safe.push_str("\\textasciicircum{}"),
            '\\' => safe.push_str("\\textbackslash{}"),
            '<' => safe.push_str("\\textless{}"),
            '>' => safe.push_str("\\textgreater{}"),
            'µ' => safe.push_str("\\textmu{}"),
            '×' => safe.push_str("$\\times$"),
            '÷' => safe.push_str("$\\div$"),
            '–' => safe.push_str("--"),
            other => safe.push(other),
        }
    }
    safe
}
