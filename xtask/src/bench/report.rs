//! The report: a text table per group with figures and goals, and the same as JSON.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::machine::Machine;
use super::statistics::{Spread, format_number};
use crate::command::Failure;

/// The result of one group.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    /// Header of the baseline column.
    pub(crate) baseline: &'static str,
    /// Header of the column that compares nexus3 with the baseline, such as a ratio.
    pub(crate) comparison: &'static str,
    pub(crate) rows: Vec<Row>,
    /// Explanations of the figures.
    pub(crate) notes: Vec<String>,
}

/// One measured quantity, optionally with a baseline and a goal.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    baseline: Option<Spread>,
    measured: Spread,
    comparison: Option<Spread>,
    goal: Option<Goal>,
}

/// A bound on the median.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
    /// Bounds the comparison with the baseline instead of the figure itself.
    ComparisonBelow(f64),
    ComparisonAtMost(f64),
    ComparisonAtLeast(f64),
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, measured: Spread) -> Self {
        Self { name: name.into(), unit, baseline: None, measured, comparison: None, goal: None }
    }

    pub(crate) fn baseline(self, baseline: Spread) -> Self {
        Self { baseline: Some(baseline), ..self }
    }

    pub(crate) fn comparison(self, comparison: Spread) -> Self {
        Self { comparison: Some(comparison), ..self }
    }

    pub(crate) fn goal(self, goal: Goal) -> Self {
        Self { goal: Some(goal), ..self }
    }

    /// Whether the goal is met; none without a goal.
    fn is_met(&self) -> Option<bool> {
        let comparison = self.comparison.map_or(f64::NAN, |spread| spread.median);
        // NaN means not measured; it meets no goal.
        Some(match self.goal? {
            Goal::Below(bound) => self.measured.median < bound,
            Goal::AtMost(bound) => self.measured.median <= bound,
            Goal::AtLeast(bound) => self.measured.median >= bound,
            Goal::ComparisonBelow(bound) => comparison < bound,
            Goal::ComparisonAtMost(bound) => comparison <= bound,
            Goal::ComparisonAtLeast(bound) => comparison >= bound,
        })
    }

    fn cells(&self, comparison_name: &str) -> [String; 7] {
        let goal = match self.goal {
            None => String::new(),
            Some(Goal::Below(bound)) => format!("< {bound}"),
            Some(Goal::AtMost(bound)) => format!("<= {bound}"),
            Some(Goal::AtLeast(bound)) => format!(">= {bound}"),
            Some(Goal::ComparisonBelow(bound)) => format!("{comparison_name} < {bound}"),
            Some(Goal::ComparisonAtMost(bound)) => format!("{comparison_name} <= {bound}"),
            Some(Goal::ComparisonAtLeast(bound)) => format!("{comparison_name} >= {bound}"),
        };
        let met = match self.is_met() {
            None => "",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        let cell = |spread: Option<Spread>| spread.map(|spread| spread.to_string()).unwrap_or_default();
        [
            self.name.clone(),
            self.unit.to_owned(),
            cell(self.baseline),
            self.measured.to_string(),
            cell(self.comparison),
            goal,
            met.to_owned(),
        ]
    }

    fn json(&self, table: &Table) -> Value {
        json!({
            "measure": self.name,
            "unit": self.unit,
            "baseline": self.baseline.map(Spread::json),
            "nexus3": self.measured.json(),
            "comparison": self.comparison.map(Spread::json),
            "goal": self.goal.map(|_| self.cells(table.comparison)[5].clone()),
            "met": self.is_met(),
        })
    }
}

impl Spread {
    fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

impl Display for Spread {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}", format_number(self.median))?;
        // A single value has no range.
        if self.min < self.max {
            write!(out, " ({}..{})", format_number(self.min), format_number(self.max))
        } else {
            Ok(())
        }
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let head =
            ["measure", "unit", self.baseline, "nexus3", self.comparison, "goal", "met"].map(str::to_owned);
        let mut lines = vec![head];
        lines.extend(self.rows.iter().map(|row| row.cells(self.comparison)));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..7).map(width).collect();
        write!(out, "{}", self.title)?;
        for line in &lines {
            // Empty columns are left out.
            let filled = line.iter().zip(&widths).filter(|(_, width)| **width > 0);
            let cells: Vec<String> = filled.map(|(cell, width)| format!("{cell:width$}")).collect();
            write!(out, "\n  {}", cells.join("  ").trim_end())?;
        }
        self.notes.iter().try_for_each(|note| write!(out, "\n  note: {note}"))
    }
}

/// The results of all groups, and the machine they were measured on.
pub(crate) struct Report {
    machine: Machine,
    tables: Vec<(&'static str, Table)>,
    load_at_end: String,
}

impl Report {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, tables: Vec::new(), load_at_end: String::new() }
    }

    pub(crate) fn add(&mut self, group: &'static str, table: Table) {
        self.tables.push((group, table));
    }

    pub(crate) fn set_final_load(&mut self, load: String) {
        self.load_at_end = load;
    }

    pub(crate) fn header(&self) -> String {
        let Machine { cores, cpu, kernel, load } = &self.machine;
        format!(
            "machine: {cores} cores of {cpu}, Linux {kernel}, load average {load}\nfigures: median (min..max)"
        )
    }

    pub(crate) fn footer(&self) -> String {
        let met: Vec<bool> =
            self.tables.iter().flat_map(|(_, table)| &table.rows).filter_map(Row::is_met).collect();
        let count = met.iter().filter(|met| **met).count();
        format!("{count} of {} goals met; load average at the end {}", met.len(), self.load_at_end)
    }

    pub(crate) fn write_json(&self, path: &Path) -> Result<(), Failure> {
        let text = format!("{:#}\n", self.json());
        fs::write(path, text).map_err(|cause| Failure::Failed(format!("{}: {cause}", path.display())))
    }

    fn json(&self) -> Value {
        let Machine { cores, cpu, kernel, load } = &self.machine;
        let groups = self.tables.iter().map(|(name, table)| {
            json!({
                "name": name,
                "title": table.title,
                "baseline": table.baseline,
                "comparison": table.comparison,
                "notes": table.notes,
                "rows": table.rows.iter().map(|row| row.json(table)).collect::<Vec<_>>(),
            })
        });
        json!({
            "machine": {
                "cores": cores,
                "cpu": cpu,
                "kernel": kernel,
                "load_average": load,
                "load_average_at_end": self.load_at_end,
            },
            "groups": groups.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let spread = |median: f64| Spread { median, min: median - 1.0, max: median + 1.0 };
        Table {
            title: "rpc: calls",
            baseline: "floor",
            comparison: "ratio",
            rows: vec![
                Row::new("rate", "1/s", spread(20.0))
                    .baseline(spread(40.0))
                    .comparison(Spread::from_values([0.5]))
                    .goal(Goal::ComparisonAtLeast(0.7)),
                Row::new("CPU", "us", spread(12.0)).goal(Goal::AtMost(12.0)),
                Row::new("p50", "us", spread(30.0)),
            ],
            notes: vec!["shared cores".to_owned()],
        }
    }

    #[test]
    fn table_shows_figures_goals_and_notes() {
        let expected = "rpc: calls\n  \
            measure  unit  floor               nexus3              ratio  goal          met\n  \
            rate     1/s   40.0 (39.0..41.0)   20.0 (19.0..21.0)   0.50   ratio >= 0.7  NO\n  \
            CPU      us                        12.0 (11.0..13.0)          <= 12         yes\n  \
            p50      us                        30.0 (29.0..31.0)\n  \
            note: shared cores";
        let normalize = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(normalize(&table().to_string()), normalize(expected));
    }

    #[test]
    fn missing_figure_meets_no_goal() {
        let missing = Spread::from_values([]);
        for goal in [
            Goal::Below(1.0),
            Goal::AtMost(1.0),
            Goal::AtLeast(1.0),
            Goal::ComparisonBelow(1.0),
            Goal::ComparisonAtMost(1.0),
            Goal::ComparisonAtLeast(1.0),
        ] {
            assert_eq!(Row::new("x", "ms", missing).goal(goal).is_met(), Some(false), "{goal:?}");
        }
        assert_eq!(Row::new("x", "ms", missing).is_met(), None);
    }

    #[test]
    fn report_counts_goals_and_has_the_same_figures_as_json() {
        let machine =
            Machine { cores: 2, cpu: "a CPU".to_owned(), kernel: "6".to_owned(), load: "0 0 0".to_owned() };
        let mut report = Report::new(machine);
        report.add("rpc", table());
        report.set_final_load("1 0 0".to_owned());
        assert_eq!(report.footer(), "1 of 2 goals met; load average at the end 1 0 0");
        let json = report.json();
        assert_eq!(json["machine"]["load_average_at_end"], "1 0 0");
        let row = &json["groups"][0]["rows"][0];
        assert_eq!(row["goal"], "ratio >= 0.7");
        assert_eq!(row["met"], false);
        assert_eq!(row["baseline"]["max"], 41.0);
    }
}
