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

    /// Had the transaction ended when the snapshot was taken?
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.in_progress.binary_search(&xid).is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn a_snapshot_sees_what_had_ended_when_it_was_taken() {
        let snapshot = Snapshot::parse("10:20:10,14,15").expect("valid");
        assert!(snapshot.sees(9) && snapshot.sees(11) && snapshot.sees(19));
        assert!(!snapshot.sees(10) && !snapshot.sees(15) && !snapshot.sees(20));
    }
}
