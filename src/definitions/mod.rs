//! Knowledge about automations in every process: compiled versions, the topics of an event and the roles that hear
//! them, the values that expressions see of an event, the automation that a name means. Read from tables, and read
//! again when a definition changes.
pub mod allowance;
pub mod by_name;
pub mod derived;
pub mod hearing;
pub mod numeric;
pub mod quotas;
pub mod schedules;
pub mod scope;
pub mod tenant_view;
pub mod topics;
pub mod versions;
