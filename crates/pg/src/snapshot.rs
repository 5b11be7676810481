//! pg_snapshot as a value: which transactions are visible.

/// xmin:xmax:xip_list, the text form of pg_snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub xmin: u64,
    pub xmax: u64,
    /// In progress when the snapshot was taken; sorted.
    pub in_progress: Vec<u64>,
}

impl Snapshot {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax = parts.next()?.parse().ok()?;
        let list = parts.next().unwrap_or_default();
        let in_progress =
            list.split(',').filter(|xid| !xid.is_empty()).map(|xid| xid.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(Snapshot { xmin, xmax, in_progress })
    }

    /// In Postgres' own notation.
    pub fn to_text(&self) -> String {
        let list: Vec<String> = self.in_progress.iter().map(u64::to_string).collect();
        format!("{}:{}:{}", self.xmin, self.xmax, list.join(","))
    }

    /// The snapshot of the current statement.
    pub fn of_statement() -> Option<Self> {
        // SAFETY: a built-in function without arguments; its result is laid out as pg_snapshot is: length, count (both
        // four bytes), xmin, xmax, list.
        unsafe {
            let datum = pgrx::direct_function_call_as_datum(pgrx::pg_sys::pg_current_snapshot, &[])?;
            let words = datum.cast_mut_ptr::<u64>();
            let count = *words.cast::<u32>().add(1) as usize;
            let in_progress = std::slice::from_raw_parts(words.add(3), count).to_vec();
            let snapshot = Snapshot { xmin: *words.add(1), xmax: *words.add(2), in_progress };
            pgrx::pg_sys::pfree(words.cast());
            Some(snapshot)
        }
    }

    /// Counts a transaction among those in progress, if the snapshot would otherwise see it. 0 is none.
    pub fn add_in_progress(&mut self, xid: u64) {
        if xid != 0
            && self.sees(xid)
            && let Err(place) = self.in_progress.binary_search(&xid)
        {
            self.in_progress.insert(place, xid);
            self.xmin = self.xmin.min(xid);
        }
    }

    /// Had the transaction ended when the snapshot was taken?
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.in_progress.binary_search(&xid).is_err())
    }
}

/// Id of the current transaction, 0 if it has none yet.
pub fn own_transaction() -> u64 {
    // SAFETY: reads state of the current transaction.
    unsafe { super::raw::unguarded::GetTopFullTransactionIdIfAny().value }
}

/// Id of the current transaction, which gets one if it has none yet.
pub fn assigned_transaction() -> u64 {
    match own_transaction() {
        // SAFETY: inside a transaction.
        0 => unsafe { pgrx::pg_sys::GetTopFullTransactionId().value },
        xid => xid,
    }
}

/// Does every statement of this transaction see the snapshot of the first one?
pub fn is_fixed() -> bool {
    // SAFETY: reads the current transaction's isolation level.
    unsafe { pgrx::pg_sys::XactIsoLevel >= pgrx::pg_sys::XACT_REPEATABLE_READ as i32 }
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn a_snapshot_sees_what_had_ended_when_it_was_taken() {
        let snapshot = Snapshot::parse("10:20:10,14,15").expect("valid");
        assert!(snapshot.sees(9) && snapshot.sees(11) && snapshot.sees(19));
        assert!(!snapshot.sees(10) && !snapshot.sees(15) && !snapshot.sees(20));
        assert_eq!(snapshot.to_text(), "10:20:10,14,15");
    }

    #[test]
    fn the_transaction_that_takes_a_snapshot_is_still_open() {
        let mut snapshot = Snapshot::parse("10:20:14").expect("valid");
        for xid in [0, 12, 14, 25, 8] {
            snapshot.add_in_progress(xid);
        }
        assert_eq!(snapshot.in_progress, [8, 12, 14]);
        assert!(!snapshot.sees(12) && !snapshot.sees(8) && snapshot.sees(9) && snapshot.sees(11));
    }
}
