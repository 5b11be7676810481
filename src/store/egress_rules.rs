//! Egress rules: the hosts and networks to which messages of a role may go.
use pgrx::pg_sys;

use crate::pg::clock::Micros;
use crate::pg::engine_sql::{Arg, execute, query};
use crate::pg::identity::as_engine;

/// A host that a role's messages may go to.
pub struct EgressRule {
    /// A name, an address, or `*.suffix`.
    pub host: String,
    /// The one port that is allowed; None for the usual ports.
    pub port: Option<u16>,
    /// Private addresses that the host may have.
    pub cidr: Option<String>,
}

const ALLOW: &str = "
    INSERT INTO automation_internal.egress_rule (role, role_name, host, port, cidr, created_at)
    VALUES ($1, $2, $3, $4, $5::cidr, $6)
        ON CONFLICT DO NOTHING";

/// False if it was there already.
pub fn allow(role: pg_sys::Oid, role_name: &str, rule: &EgressRule, now: Micros) -> bool {
    let port = rule.port.map(i32::from);
    let (host, cidr) = (rule.host.as_str(), rule.cidr.as_deref());
    as_engine(|| {
        execute(ALLOW, &[role.into(), role_name.into(), host.into(), port.into(), cidr.into(), Arg::timestamp(now)])
    }) == 1
}

const DENY: &str = "
    DELETE FROM automation_internal.egress_rule AS r
     WHERE r.role = $1 AND r.host = $2 AND r.port IS NOT DISTINCT FROM $3 AND r.cidr IS NOT DISTINCT FROM $4::cidr";

/// False if there was none.
pub fn deny(role: pg_sys::Oid, rule: &EgressRule) -> bool {
    let port = rule.port.map(i32::from);
    as_engine(|| execute(DENY, &[role.into(), rule.host.as_str().into(), port.into(), rule.cidr.as_deref().into()]))
        == 1
}

// A superuser is a member of every role, and must not use rules that were made for other roles only.
const OF: &str = "
    SELECT r.host, r.port, r.cidr::text
      FROM automation_internal.egress_rule AS r
      JOIN pg_catalog.pg_roles AS o ON o.oid = $1
     WHERE r.role = $1
        OR (NOT o.rolsuper AND pg_catalog.pg_has_role($1, r.role, 'USAGE'))
     ORDER BY r.id";

/// The rules for messages of automations that a role owns: its own, and those of roles whose rights it has.
pub fn of(owner: pg_sys::Oid) -> Vec<EgressRule> {
    let found = as_engine(|| {
        query(OF, &[owner.into()], |row| {
            let port = row.int4(2).and_then(|port| u16::try_from(port).ok());
            Some(EgressRule { host: row.text(1)?, port, cidr: row.text(3) })
        })
    });
    found.into_iter().flatten().collect()
}

const FORGET: &str = "
    DELETE FROM automation_internal.egress_rule AS r
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS a WHERE a.oid = r.role)";

/// Forgets the rules of roles that are gone.
pub fn forget_dropped() {
    as_engine(|| execute(FORGET, &[]));
}
