//! Which automation a name means. Names are unique within a tenant, and among the automations without one.

/// The caller that gives the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker<'a> {
    /// A person's or an application's session.
    Session,
    /// A run, which belongs to a tenant or to none.
    Run(Option<&'a str>),
}

/// The automation that a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant {
    /// The automation at this place of the candidates.
    One(usize),
    /// No automation.
    Nothing,
    /// Any of several: the tenant has to be named.
    Several,
}

/// Which of the automations of one name is meant: `candidates` are their tenants. `tenant` is the tenant that the call
/// names besides; the empty text stands for the automation without a tenant. A call in a run that names no tenant means
/// the automation of the run's tenant, else the automation without a tenant.
pub fn meant(candidates: &[Option<&str>], tenant: Option<&str>, asker: Asker<'_>) -> Meant {
    let of = |wanted: Option<&str>| candidates.iter().position(|candidate| *candidate == wanted);
    if let Some(tenant) = tenant {
        return of(Some(tenant).filter(|tenant| !tenant.is_empty())).map_or(Meant::Nothing, Meant::One);
    }
    let near = match asker {
        Asker::Session => None,
        Asker::Run(own) => own.and_then(|own| of(Some(own))).or_else(|| of(None)),
    };
    match (near, candidates.len()) {
        (Some(place), _) => Meant::One(place),
        (None, 0) => Meant::Nothing,
        (None, 1) => Meant::One(0),
        (None, _) => Meant::Several,
    }
}

/// The candidates in words, for a DETAIL.
pub fn told(candidates: &[Option<&str>]) -> String {
    let tenants: Vec<String> = candidates.iter().flatten().map(|tenant| format!("\"{tenant}\"")).collect();
    let of = if tenants.len() == 1 { "of tenant" } else { "each of tenants" };
    match (candidates.contains(&None), tenants.is_empty()) {
        (true, true) => "There is one without a tenant.".to_owned(),
        (true, false) => format!("There is one without a tenant, and one {of} {}.", tenants.join(", ")),
        (false, _) => format!("There is one {of} {}.", tenants.join(", ")),
    }
}

/// A call of a function of the engine for an automation, as a HINT shows it.
pub fn call(function: &str, name: &str, tenant: Option<&str>) -> String {
    let name = name.replace('\'', "''");
    match tenant {
        Some(tenant) => format!("SELECT automation.{function}('{name}', tenant => '{}')", tenant.replace('\'', "''")),
        None => format!("SELECT automation.{function}('{name}')"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Meant, call, meant, told};

    const A: Option<&str> = Some("a");
    const B: Option<&str> = Some("b");

    #[test]
    fn a_bare_name_in_a_session_means_the_only_automation_of_that_name() {
        for (candidates, means) in [
            (&[][..], Meant::Nothing),
            (&[None], Meant::One(0)),
            (&[B], Meant::One(0)),
            (&[None, A], Meant::Several),
            (&[A, B], Meant::Several),
        ] {
            assert_eq!(meant(candidates, None, Asker::Session), means, "{candidates:?}");
        }
    }

    #[test]
    fn with_a_tenant_a_name_means_that_tenants_automation_and_no_other() {
        for asker in [Asker::Session, Asker::Run(B)] {
            assert_eq!(meant(&[None, A, B], A, asker), Meant::One(1));
            assert_eq!(meant(&[None, A], B, asker), Meant::Nothing);
            assert_eq!(meant(&[None, A], Some(""), asker), Meant::One(0), "the empty text: the one without a tenant");
            assert_eq!(meant(&[A], Some(""), asker), Meant::Nothing);
        }
    }

    #[test]
    fn a_run_means_its_own_tenants_automation_then_the_one_without_a_tenant() {
        assert_eq!(meant(&[None, A, B], None, Asker::Run(B)), Meant::One(2));
        assert_eq!(meant(&[None, A], None, Asker::Run(B)), Meant::One(0));
        assert_eq!(meant(&[None, A], None, Asker::Run(None)), Meant::One(0));
        assert_eq!(meant(&[A], None, Asker::Run(B)), Meant::One(0), "the caller says that it is another tenant's");
        assert_eq!(meant(&[A, B], None, Asker::Run(None)), Meant::Several);
        assert_eq!(meant(&[], None, Asker::Run(B)), Meant::Nothing);
    }

    #[test]
    fn candidates_and_calls_are_told_so_that_the_call_can_be_typed() {
        assert_eq!(told(&[None, A]), "There is one without a tenant, and one of tenant \"a\".");
        assert_eq!(told(&[A, B]), "There is one each of tenants \"a\", \"b\".");
        assert_eq!(call("pause", "x", None), "SELECT automation.pause('x')");
        assert_eq!(call("pause", "it's", Some("o'b")), "SELECT automation.pause('it''s', tenant => 'o''b')");
    }
}
