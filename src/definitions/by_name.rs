//! Finds the automation that the name in a call means. Automations of roles whose rights the caller lacks do not exist
//! for the caller: they neither answer to a name nor make it ambiguous.
use automation_core::by_name::{Asker, Meant, call, meant, told};

use crate::error::{EngineError, EngineResult};
use crate::pg::identity;
use crate::provenance;
use crate::store::automations::{self, Automation};

/// A name as a call gives it.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// The function that was called, for the HINT.
    pub function: &'a str,
    pub name: &'a str,
    /// The tenant that was named. The empty text stands for the automation without a tenant.
    pub tenant: Option<&'a str>,
}

/// The call of a function for an automation, as a HINT shows it: with its tenant if the name alone is ambiguous.
pub fn typed(function: &str, name: &str, tenant: Option<&str>) -> String {
    let tenant = Some(tenant.unwrap_or_default()).filter(|_| visible(name).len() > 1);
    call(function, name, tenant)
}

/// The automations of a name that belong to roles whose rights the caller has.
fn visible(name: &str) -> Vec<Automation> {
    let user = identity::current_user();
    automations::of_name(name).into_iter().filter(|found| identity::has_role(user, found.owner)).collect()
}

impl Named<'_> {
    /// The automation that the name means; an error if there is none.
    pub fn find(&self) -> EngineResult<Automation> {
        self.found()?.ok_or_else(|| self.unknown())
    }

    /// The tenant's automation, or else the one without a tenant, which works for that tenant as well.
    pub fn find_for_tenant(&self) -> EngineResult<Automation> {
        self.found_for_tenant()?.ok_or_else(|| self.unknown())
    }

    /// Like `find_for_tenant`, but None if there is neither of the two.
    pub fn found_for_tenant(&self) -> EngineResult<Option<Automation>> {
        match self.found()? {
            Some(found) => Ok(Some(found)),
            None => Named { tenant: Some(""), ..*self }.found(),
        }
    }

    /// The automation that the name means, None if there is none; an error if the name means several.
    pub fn found(&self) -> EngineResult<Option<Automation>> {
        let mut known = visible(self.name);
        let tenants: Vec<Option<&str>> = known.iter().map(|known| known.tenant.as_deref()).collect();
        let own = provenance::tenant();
        let asker = if provenance::run().is_some() { Asker::Run(own.as_deref()) } else { Asker::Session };
        match meant(&tenants, self.tenant, asker) {
            Meant::One(place) => Ok(Some(known.swap_remove(place))),
            Meant::Nothing => Ok(None),
            Meant::Several => {
                let first = tenants.iter().flatten().next().copied().unwrap_or_default();
                let hint = format!("Name the tenant: {}.", call(self.function, self.name, Some(first)));
                let without = tenants.contains(&None).then_some(" The one without a tenant is tenant => ''.");
                Err(EngineError::ambiguous(format!("automation name \"{}\" is not unique", self.name))
                    .detail(told(&tenants))
                    .hint(hint + without.unwrap_or_default()))
            }
        }
    }

    fn unknown(&self) -> EngineError {
        let known = visible(self.name);
        let Some(tenant) = self.tenant.filter(|_| !known.is_empty()) else {
            return EngineError::unknown_automation(self.name);
        };
        let tenants: Vec<Option<&str>> = known.iter().map(|known| known.tenant.as_deref()).collect();
        let message = match tenant {
            "" => format!("there is no automation \"{}\" without a tenant", self.name),
            tenant => format!("tenant \"{tenant}\" has no automation \"{}\"", self.name),
        };
        EngineError::undefined(message).detail(told(&tenants)).hint(format!(
            "{}.",
            call(self.function, self.name, (tenants.len() > 1).then(|| tenants[0].unwrap_or_default()))
        ))
    }
}
