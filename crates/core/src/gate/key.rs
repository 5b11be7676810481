//! The keys under which occurrences are counted or held, and by which equal events are found. Never one key for all:
//! events that cannot be told apart by expression are told apart by entity, or else by topic; and tenants are always
//! apart.

use crate::expr::{Budget, Expr, Scope};
use crate::value::Value;

/// Longest key kept as it is; longer ones are cut, with their length and hash at the end.
const LONGEST: usize = 200;

/// The key that an event has by itself: its entity, or its topic if it is about none.
pub fn context(tenant: Option<&str>, kind: Option<&str>, entity: Option<&str>, topic: &str) -> String {
    match (kind, entity) {
        (Some(kind), Some(entity)) => join(tenant, "entity", &format!("{}:{entity}", escaped(kind, ':'))),
        _ => join(tenant, "topic", topic),
    }
}

/// The partition of a window: the value of `per`, or the event's own key if that is empty or cannot be worked out.
pub fn partition(
    per: Option<&Expr>,
    scope: &dyn Scope,
    budget: &mut Budget,
    tenant: Option<&str>,
    context: &str,
) -> String {
    let value = per.and_then(|per| per.eval(scope, budget).ok());
    match value.as_ref().and_then(text) {
        Some(text) => join(tenant, "per", &text),
        None => context.to_owned(),
    }
}

/// The key by which equal events are found; `None` if there is nothing to compare, and then no event is a duplicate.
pub fn dedup(key: &Expr, scope: &dyn Scope, budget: &mut Budget, tenant: Option<&str>) -> Option<String> {
    key.eval(scope, budget).ok().as_ref().and_then(text).map(|text| join(tenant, "key", &text))
}

/// The key under which runs of an automation exclude each other: the value of its `key`, or the entity; `None` if
/// neither is there, and then the runs are all alike.
pub fn run(
    key: Option<&Expr>,
    scope: &dyn Scope,
    budget: &mut Budget,
    tenant: Option<&str>,
    entity: Option<(&str, &str)>,
) -> Option<String> {
    let value = key.and_then(|key| key.eval(scope, budget).ok());
    match (value.as_ref().and_then(text), entity) {
        (Some(text), _) => Some(join(tenant, "key", &text)),
        (None, Some((kind, id))) => Some(context(tenant, Some(kind), Some(id), "")),
        (None, None) => None,
    }
}

/// The text of a value that is worth comparing: `1` and `1.0` are the same.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::Number(number) => number.trimmed().to_string(),
        other => other.to_text()?,
    };
    (!text.trim().is_empty()).then_some(text)
}

fn join(tenant: Option<&str>, sort: &str, rest: &str) -> String {
    let key = match tenant {
        Some(tenant) => format!("{}/{sort} {rest}", escaped(tenant, '/')),
        None => format!("{sort} {rest}"),
    };
    if key.len() <= LONGEST {
        return key;
    }
    let cut = (0..=LONGEST - 40).rev().find(|at| key.is_char_boundary(*at)).unwrap_or_default();
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    format!("{}…{}:{hash:016x}", &key[..cut], key.len())
}

/// A part that cannot be mistaken for more than one part.
fn escaped(part: &str, separator: char) -> String {
    part.replace('\\', "\\\\").replace(separator, &format!("\\{separator}"))
}

#[cfg(test)]
mod tests {
    use super::{context, dedup, partition, run};
    use crate::expr::{Budget, Expr, FixedScope};
    use crate::value::{Timestamp, Value};

    fn key(per: &str, tenant: Option<&str>) -> String {
        let roots = Value::from_json(r#"{"new": {"customer": 7, "name": "", "none": null}}"#).expect("JSON");
        let scope = FixedScope::new(roots, Timestamp(0));
        let own = context(tenant, Some("orders"), Some("42"), "orders.updated");
        partition(Some(&Expr::parse(per).expect("an expression")), &scope, &mut Budget::default(), tenant, &own)
    }

    #[test]
    fn an_empty_or_failing_partition_is_the_events_own_key_and_never_global_r000_40() {
        assert_eq!(key("new.customer", None), "per 7");
        assert_eq!(key("new.name", None), "entity orders:42");
        assert_eq!(key("new.none", None), "entity orders:42");
        assert_eq!(key("1 / 0", None), "entity orders:42");
    }

    #[test]
    fn runs_exclude_each_other_by_key_or_else_by_entity_d13() {
        let roots = Value::from_json(r#"{"new": {"customer": 7.0, "none": null}}"#).expect("JSON");
        let scope = FixedScope::new(roots, Timestamp(0));
        let entity = Some(("orders", "42"));
        let key = |text: Option<&str>, entity| {
            let key = text.map(|text| Expr::parse(text).expect("an expression"));
            run(key.as_ref(), &scope, &mut Budget::default(), None, entity)
        };
        assert_eq!(key(Some("new.customer"), entity).as_deref(), Some("key 7"));
        assert_eq!(key(Some("new.none"), entity).as_deref(), Some("entity orders:42"));
        assert_eq!(key(None, entity).as_deref(), Some("entity orders:42"));
        assert_eq!(key(None, None), None);
    }

    #[test]
    fn events_without_a_dedup_key_are_never_the_same_r001_41() {
        let roots = Value::from_json(r#"{"new": {"id": 7, "none": null}}"#).expect("JSON");
        let scope = FixedScope::new(roots, Timestamp(0));
        let key = |text| dedup(&Expr::parse(text).expect("an expression"), &scope, &mut Budget::default(), Some("t"));
        assert_eq!(key("new.id").as_deref(), Some("t/key 7"));
        assert_eq!(key("new.none"), None);
        assert_eq!(key("1 / 0"), None);
    }

    #[test]
    fn tenants_are_apart_whatever_they_are_called_d19() {
        assert_eq!(key("new.customer", Some("acme")), "acme/per 7");
        assert_eq!(context(None, None, None, "shop.sold"), "topic shop.sold");
        assert_ne!(
            context(Some("a/entity x"), Some("k"), Some("1"), ""),
            context(Some("a"), Some("x/k"), Some("1"), "")
        );
        assert_ne!(context(None, Some("a:b"), Some("c"), ""), context(None, Some("a"), Some("b:c"), ""));
    }

    #[test]
    fn long_keys_stay_apart_and_short() {
        let (a, b) = ("x".repeat(5000), "x".repeat(4999) + "y");
        let (a, b) = (context(None, None, None, &a), context(None, None, None, &b));
        assert!(a != b && a.len() <= 200 && b.len() <= 200, "{} {}", a.len(), b.len());
    }
}
