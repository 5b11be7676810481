//! The types of a statement's parameters: from their places in the statement where these ask for a type, else from the
//! values.
use std::ffi::CStr;

use pgrx::pg_sys;

use super::catch::{PgError, catch};
use super::raw::unguarded;
use super::server_text;
use super::subtransaction::in_subtransaction;

/// The types as which a value can be bound where its place in the statement asks for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnType {
    /// Where any type will do, as in `jsonb_build_object('n', {{ n }})`.
    pub plain: pg_sys::Oid,
    /// Where an operator or a function must be chosen by it, as in `-{{ n }}`: to be tried in this order.
    pub choices: Vec<pg_sys::Oid>,
}

/// Where the type of a parameter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its place in the statement.
    Place,
    /// The value's own type, where any will do.
    Plain,
    /// The value's own type, which chose an operator or a function.
    Choice,
}

/// Most readings of one statement in search of types.
const MOST_READINGS: usize = 64;

/// The type of each parameter, if nothing is known of the values: text where its place asks for none.
pub fn of_places(sql: &CStr, parameters: usize) -> Result<Vec<pg_sys::Oid>, PgError> {
    let mut types = read(sql, &vec![pg_sys::InvalidOid; parameters])?.types;
    for slot in types.iter_mut().filter(|slot| **slot == pg_sys::UNKNOWNOID) {
        *slot = pg_sys::TEXTOID;
    }
    Ok(types)
}

/// The type of each parameter, and where it comes from.
pub fn of_values(sql: &CStr, own: &[OwnType]) -> Result<Vec<(pg_sys::Oid, Origin)>, PgError> {
    let mut search = Search { sql, own, chosen: vec![pg_sys::InvalidOid; own.len()], readings: 0 };
    let first = match search.read() {
        Ok(reading) => return Ok(search.with_own(reading)),
        Err(error) => error,
    };
    match is_about_types(&first).then(|| search.choose(&first)).flatten() {
        Some(reading) => Ok(search.with_own(reading)),
        None => Err(first),
    }
}

/// The types that the parser found for the parameters of a statement.
struct Reading {
    /// UNKNOWNOID where nothing asks for a type.
    types: Vec<pg_sys::Oid>,
    /// Parameters that are columns of the result: Postgres calls them text for want of anything better.
    results: Vec<usize>,
}

struct Search<'a> {
    sql: &'a CStr,
    own: &'a [OwnType],
    chosen: Vec<pg_sys::Oid>,
    readings: usize,
}

impl Search<'_> {
    /// Reads the statement with the types chosen so far. In a subtransaction of its own: an error leaves nothing open.
    fn read(&mut self) -> Result<Reading, PgError> {
        self.readings += 1;
        in_subtransaction(|| read(self.sql, &self.chosen))
    }

    /// Gives one parameter after the other a type of its own, those next to the place of the error first.
    fn choose(&mut self, error: &PgError) -> Option<Reading> {
        for parameter in self.nearest_to(error.position) {
            for choice in self.own[parameter].choices.clone() {
                if self.readings >= MOST_READINGS {
                    return None;
                }
                self.chosen[parameter] = choice;
                match self.read() {
                    Ok(reading) => return Some(reading),
                    // This parameter is settled; at another place the parser lacks a type.
                    Err(next) if is_about_types(&next) && next.position != error.position => {
                        if let Some(reading) = self.choose(&next) {
                            return Some(reading);
                        }
                    }
                    Err(_) => {}
                }
                self.chosen[parameter] = pg_sys::InvalidOid;
            }
        }
        None
    }

    /// The parameters without a type: those behind the position first, the nearest before all others.
    fn nearest_to(&self, position: Option<usize>) -> Vec<usize> {
        let at = position.unwrap_or_default().saturating_sub(1);
        let text = server_text::read_c(self.sql);
        let (mut places, mut from) = (Vec::new(), 0);
        for number in 1..=self.own.len() {
            let place = text[from..].find(&format!("${number}")).map_or(from, |found| from + found);
            places.push(text[..place].chars().count());
            from = place;
        }
        let mut order: Vec<usize> = (0..self.own.len()).filter(|i| self.chosen[*i] == pg_sys::InvalidOid).collect();
        order.sort_by_key(|i| (places[*i] < at, places[*i].abs_diff(at)));
        order
    }

    fn with_own(&self, reading: Reading) -> Vec<(pg_sys::Oid, Origin)> {
        let typed = |(i, found): (usize, &pg_sys::Oid)| {
            let by_default = *found == pg_sys::TEXTOID && reading.results.contains(&i);
            if self.chosen[i] != pg_sys::InvalidOid {
                (self.chosen[i], Origin::Choice)
            } else if *found == pg_sys::UNKNOWNOID || by_default {
                (self.own[i].plain, Origin::Plain)
            } else {
                (*found, Origin::Place)
            }
        };
        reading.types.iter().enumerate().map(typed).collect()
    }
}

/// Errors that say that the parser could not choose for want of a type, or not with the types it has.
fn is_about_types(error: &PgError) -> bool {
    // ambiguous_function, undefined_function, indeterminate_datatype, datatype_mismatch
    matches!(error.sqlstate.as_str(), "42725" | "42883" | "42P18" | "42804")
}

/// Asks the parser which type each parameter should have, where `given` does not say it.
fn read(sql: &CStr, given: &[pg_sys::Oid]) -> Result<Reading, PgError> {
    let mut reading = Reading { types: vec![pg_sys::UNKNOWNOID; given.len()], results: Vec::new() };
    if given.is_empty() {
        return Ok(reading);
    }
    // SAFETY: C calls with pointers that outlive them; the array that the parser may grow is palloc'd by it.
    unsafe {
        let source = sql.as_ptr();
        let tree = catch(|| unguarded::raw_parser(source, pg_sys::RawParseMode::RAW_PARSE_DEFAULT))?;
        for statement in pgrx::PgList::<pg_sys::RawStmt>::from_pg(tree).iter_ptr() {
            // Analysis adds its own notes to the tree, so it is looked at before; SPI_prepare parses the text afresh.
            reading.results.extend(result_parameters((*statement).stmt));
            let mut count = given.len() as i32;
            let mut found = pg_sys::palloc0(size_of_val(given)).cast::<pg_sys::Oid>();
            std::ptr::copy_nonoverlapping(given.as_ptr(), found, given.len());
            let (found_at, count_at) = (&raw mut found, &raw mut count);
            catch(|| unguarded::parse_analyze_varparams(statement, source, found_at, count_at, std::ptr::null_mut()))?;
            for (i, slot) in reading.types.iter_mut().enumerate().take(count as usize) {
                let oid = *found.add(i);
                if oid != pg_sys::InvalidOid && oid != pg_sys::UNKNOWNOID {
                    *slot = oid;
                }
            }
        }
    }
    Ok(reading)
}

/// The parameters that are, with nothing around them, columns of the result of a statement; counted from 0.
unsafe fn result_parameters(statement: *mut pg_sys::Node) -> Vec<usize> {
    // SAFETY: nodes of a parse tree are read as the types that their tags name; the lists belong to the tree.
    unsafe {
        let list = match (*statement).type_ {
            pg_sys::NodeTag::T_SelectStmt => (*statement.cast::<pg_sys::SelectStmt>()).targetList,
            pg_sys::NodeTag::T_InsertStmt => (*statement.cast::<pg_sys::InsertStmt>()).returningList,
            pg_sys::NodeTag::T_UpdateStmt => (*statement.cast::<pg_sys::UpdateStmt>()).returningList,
            pg_sys::NodeTag::T_DeleteStmt => (*statement.cast::<pg_sys::DeleteStmt>()).returningList,
            _ => std::ptr::null_mut(),
        };
        let targets = pgrx::PgList::<pg_sys::ResTarget>::from_pg(list);
        let mut found = Vec::new();
        for target in targets.iter_ptr() {
            let value = (*target).val;
            if !value.is_null() && (*value).type_ == pg_sys::NodeTag::T_ParamRef {
                found.push((*value.cast::<pg_sys::ParamRef>()).number.saturating_sub(1) as usize);
            }
        }
        std::mem::forget(targets);
        found
    }
}
