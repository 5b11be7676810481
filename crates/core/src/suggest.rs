//! "Did you mean": the nearest of a set of names.

/// The candidate nearest to `name`, if near enough to be a slip of the finger.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = match name.chars().count() {
        0 | 1 => return None,
        2..=4 => 1,
        5..=8 => 2,
        9..=64 => 3,
        _ => return None,
    };
    candidates
        .into_iter()
        .filter(|candidate| *candidate != name && candidate.len() <= 64)
        .map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edit distance in which swapping two neighbours counts once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let words = ["becomes", "between", "status", "total"];
        assert_eq!(nearest("becoms", words), Some("becomes"));
        assert_eq!(nearest("statsu", words), Some("status"));
        assert_eq!(nearest("Total", words), Some("total"));
        assert_eq!(nearest("zzz", words), None);
        assert_eq!(nearest("", words), None);
    }
}
