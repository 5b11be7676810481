//! Statistics of the partitioned tables, which autovacuum never gathers: when are they to be gathered anew?
//!
//! The planner knows the rows of a partitioned table, which are those of its partitions, but nothing of its columns: it
//! takes each value to occur in one row of 200, and expects thousands of rows where there is one.

/// A table with fewer rows is read as quickly with any estimate of the planner.
const FEW: i64 = 1_000;

/// Are statistics of a partitioned table to be gathered? `known`: how many rows the table had when statistics were last
/// gathered, None if they never were; `rows`: how many its partitions have now. Twice or half as many rows are reason
/// enough.
pub fn are_due(known: Option<i64>, rows: i64) -> bool {
    let enough = rows.max(known.unwrap_or(0)) >= FEW;
    enough && known.is_none_or(|known| rows / 2 > known || rows < known / 2)
}

#[cfg(test)]
mod tests {
    use super::are_due;

    #[test]
    fn a_table_that_was_never_looked_at_is_due_once_it_has_rows() {
        assert!(!are_due(None, 0) && !are_due(None, 999));
        assert!(are_due(None, 1_000));
    }

    #[test]
    fn growth_and_retention_by_a_factor_of_two_are_enough() {
        for (known, rows, due) in [
            (10_000, 10_000, false),
            (10_000, 20_001, false),
            (10_000, 20_002, true),
            (10_000, 5_000, false),
            (10_000, 4_999, true),
            (10_000, 0, true),
            (100, 900, false),
        ] {
            assert_eq!(are_due(Some(known), rows), due, "{known} then {rows} now");
        }
    }

    #[test]
    fn a_steady_log_is_looked_at_a_few_times_in_its_life() {
        let (mut known, mut gathered) = (None, 0);
        for hour in 1..=24 * 365 {
            // a hundred thousand a day, kept for seven days
            let rows = (hour * 100_000 / 24).min(700_000);
            if are_due(known, rows) {
                known = Some(rows);
                gathered += 1;
            }
        }
        assert!(gathered < 10, "{gathered} times in a year");
    }
}
