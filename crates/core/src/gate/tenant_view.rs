//! A tenant's view of a change that moves an entity from one tenant to another: a deletion if the entity leaves the
//! tenant, a creation if it comes to the tenant. The old values belong to the first tenant, the new values to the
//! second.

/// Most bytes of a tenant's name: counters and pauses of tenants are indexed by it.
pub const MAX_TENANT: usize = 200;

/// May rows and events of a tenant start runs? Names that begin with an underscore are reserved, and a name can be too
/// long.
pub fn starts_runs(tenant: &str) -> bool {
    !tenant.starts_with('_') && tenant.len() <= MAX_TENANT
}

/// A viewer's view of an update that moves an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The update, with old and new values: for automations and runs without a tenant, and if the tenant stays the
    /// same.
    AsItIs,
    /// The entity comes into being: no old values.
    Came,
    /// The entity is gone: no new values.
    Left,
    /// Nothing.
    Nothing,
}

/// The view that `viewer` has of an update: a tenant, or None for automations and runs without a tenant. `from` and
/// `to` are the entity's tenants before and after.
pub fn view(viewer: Option<&str>, from: Option<&str>, to: Option<&str>) -> View {
    match viewer {
        None => View::AsItIs,
        viewer if from == to => {
            if viewer == to {
                View::AsItIs
            } else {
                View::Nothing
            }
        }
        viewer if viewer == to => View::Came,
        viewer if viewer == from => View::Left,
        Some(_) => View::Nothing,
    }
}

/// May a run of a tenant, or of none, see an entity that belongs to a tenant, or to none?
pub fn may_see_entity(viewer: Option<&str>, of: Option<&str>) -> bool {
    match (viewer, of) {
        (Some(viewer), Some(of)) => viewer == of,
        (None, _) | (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{View, may_see_entity, starts_runs, view};

    #[test]
    fn tenants_with_reserved_or_too_long_names_start_nothing() {
        assert!(starts_runs("a") && starts_runs(&"x".repeat(200)));
        assert!(!starts_runs("_a") && !starts_runs(&"x".repeat(201)));
    }

    const A: Option<&str> = Some("a");
    const B: Option<&str> = Some("b");

    #[test]
    fn an_entity_that_changes_its_tenant_is_gone_for_the_one_and_new_for_the_other_r004_16() {
        for (viewer, from, to, sees) in [
            (A, A, B, View::Left),
            (B, A, B, View::Came),
            (Some("c"), A, B, View::Nothing),
            (None, A, B, View::AsItIs),
            (A, A, None, View::Left),
            (A, None, A, View::Came),
            (A, A, A, View::AsItIs),
            (A, B, B, View::Nothing),
        ] {
            assert_eq!(view(viewer, from, to), sees, "{viewer:?} sees {from:?} to {to:?}");
        }
    }

    #[test]
    fn a_tenants_run_sees_its_own_entities_and_those_of_no_tenant() {
        assert!(
            may_see_entity(A, A) && may_see_entity(A, None) && may_see_entity(None, A) && may_see_entity(None, None)
        );
        assert!(!may_see_entity(A, B));
    }
}
