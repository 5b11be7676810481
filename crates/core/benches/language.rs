//! What routing pays per event: reading the captured row, evaluating a filter, finding the patterns of a topic.

use automation_core::cron::Cron;
use automation_core::expr::{Budget, Expr, Scope};
use automation_core::template::SqlTemplate;
use automation_core::topic::TopicIndex;
use automation_core::value::{Image, Timestamp, Unreadable, Value};
use criterion::{Criterion, criterion_group, criterion_main};
use std::borrow::Cow;
use std::hint::black_box;

const FILTER: &str = "new.status becomes 'paid' and new.total > 100";
const OLD: &str = r#"{"id": 1, "status": "new", "total": 250.00, "priority": null, "customer": "c-17", "at": "2026-01-05T10:00:00+00:00"}"#;
const CHANGED: &str = r#"{"status": "new"}"#;
const NEW: &str = r#"{"id": 1, "status": "paid", "total": 250.00, "priority": null, "customer": "c-17", "at": "2026-01-05T10:00:00+00:00"}"#;

/// Two rows, already read.
struct Rows {
    old: Value,
    new: Value,
}

impl Scope for Rows {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        Ok(match name {
            "new" => Some(&self.new),
            "old" => Some(&self.old),
            _ => None,
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp(1_767_607_200_000_000)
    }
}

/// As the router sees an update: the new row as text, of the old one only what changed.
struct Captured<'a> {
    changed: Image<'a>,
    new: Image<'a>,
}

impl Scope for Captured<'_> {
    fn root(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        if name == "new" { self.new.whole().map(Some) } else { Ok(None) }
    }

    fn member(&self, root: &str, name: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        Ok(match root {
            "new" => Some(self.new.member(name)?.unwrap_or_default()),
            "old" => match self.changed.member(name)? {
                Some(value) => Some(value),
                None => Some(self.new.member(name)?.unwrap_or_default()),
            },
            _ => None,
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp(1_767_607_200_000_000)
    }
}

fn filters(c: &mut Criterion) {
    let expr = Expr::parse(FILTER).expect("the filter parses");
    let rows = Rows { old: Value::from_json(OLD).expect("JSON"), new: Value::from_json(NEW).expect("JSON") };
    c.bench_function("filter on parsed rows", |b| {
        b.iter(|| expr.holds(black_box(&rows), &mut Budget::default()));
    });
    c.bench_function("filter from captured rows", |b| {
        b.iter(|| {
            let (changed, new) = (Image::new(Some(black_box(CHANGED))), Image::new(Some(black_box(NEW))));
            expr.holds(&Captured { changed, new }, &mut Budget::default())
        });
    });
    c.bench_function("filter from captured rows, both read whole", |b| {
        b.iter(|| {
            let old = Value::from_json(black_box(OLD)).unwrap_or_default();
            let new = Value::from_json(black_box(NEW)).unwrap_or_default();
            expr.holds(&Rows { old, new }, &mut Budget::default())
        });
    });
    c.bench_function("read one captured row", |b| b.iter(|| Value::from_json(black_box(NEW))));
    c.bench_function("write one row", |b| b.iter(|| black_box(&rows.new).to_json()));
    c.bench_function("parse the filter", |b| b.iter(|| Expr::parse(black_box(FILTER))));
    c.bench_function("parse a statement", |b| {
        b.iter(|| SqlTemplate::parse(black_box("UPDATE orders SET priority = 'high' WHERE id = {{ new.id }}")));
    });
    for text in [
        "new.total * 1.19 + 5 > 100.50",
        "lower(new.status) in ['paid', 'done']",
        "older_than(new.at, 15 minutes)",
        "matches(new.customer, '^c-[0-9]+$')",
    ] {
        let expr = Expr::parse(text).expect("it parses");
        c.bench_function(text, |b| b.iter(|| expr.holds(black_box(&rows), &mut Budget::default())));
    }
}

fn topics(c: &mut Criterion) {
    let mut index = TopicIndex::new();
    for i in 0..100_000_u32 {
        match i % 10 {
            0 => index.insert(&format!("kind{i}.*"), i),
            1 => index.insert(&format!("kind{i}.#"), i),
            2 => index.insert(&format!("v1:kind{i}:*.created"), i),
            _ => index.insert(&format!("kind{i}.created"), i),
        }
    }
    c.bench_function("one topic against 100k patterns", |b| {
        b.iter(|| index.matches(black_box("kind70005.created")).len());
    });
    c.bench_function("one topic against 100k patterns, no match", |b| {
        b.iter(|| index.matches(black_box("other.created")).len());
    });
}

fn schedules(c: &mut Criterion) {
    let cron = Cron::parse("30 2 * * mon-fri").expect("it parses");
    let now = Timestamp(1_767_607_200_000_000);
    c.bench_function("next firing in a zone", |b| {
        b.iter(|| cron.next_after(black_box(now), chrono_tz::Tz::Europe__Berlin));
    });
}

criterion_group!(benches, filters, topics, schedules);
criterion_main!(benches);
