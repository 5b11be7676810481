//! An automation without a tenant works for all tenants. Its limits count the runs of each tenant apart: a tenant whose
//! runs are too many, or fail, is held back alone.
use serde_json::{Value as Json, json};

/// The tenant that a run is counted with, and that is held back if its runs are too many: only where the automation has
/// no tenant and the run has one. Otherwise the whole automation is counted and paused.
pub fn tenant<'a>(automation: Option<&str>, run: Option<&'a str>) -> Option<&'a str> {
    run.filter(|_| automation.is_none())
}

/// Details of a pause, with the tenant that is held back.
pub fn details(mut details: Json, tenant: Option<&str>) -> Json {
    if let (Some(tenant), Some(members)) = (tenant, details.as_object_mut()) {
        members.insert("tenant".to_owned(), json!(tenant));
    }
    details
}

/// Says which automation was paused, and for which tenant.
pub fn paused(automation: &str, tenant: Option<&str>) -> String {
    match tenant {
        Some(tenant) => format!("automation \"{automation}\" was paused for tenant \"{tenant}\""),
        None => format!("automation \"{automation}\" was paused"),
    }
}

#[cfg(test)]
mod tests {
    use super::tenant;

    #[test]
    fn only_a_shared_automation_is_counted_and_held_back_by_tenant_r002_13_r003_9() {
        assert_eq!(tenant(None, Some("noisy")), Some("noisy"));
        assert_eq!(tenant(None, None), None, "what belongs to no tenant counts together");
        assert_eq!(tenant(Some("noisy"), Some("noisy")), None, "the automation is the tenant's own");
    }
}
