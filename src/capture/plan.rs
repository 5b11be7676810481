//! How to turn a row of one relation into an event: worked out once, kept until the catalog changes.
#![allow(unsafe_code)]
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;

use pgrx::pg_sys;
use serde::{Deserialize, Serialize};

use crate::pg::encode::{Encoding, write_string};
use crate::pg::engine_sql::Arg;
use crate::pg::{names, raw, server_text};

/// The arguments of watch_table(); travels as the argument of the trigger, so that it changes with the table's
/// own catalog entry and no row of ours needs to be read while capturing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    pub kind: String,
    pub id: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub columns: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ignore: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant: Option<String>,
}

/// One column of the image.
#[derive(Debug)]
pub struct Column {
    pub index: usize,
    pub name: String,
    /// `"name":`
    pub label: Vec<u8>,
    pub encoding: Encoding,
    pub by_value: bool,
    pub length: i16,
    /// Part of the entity's id.
    pub is_key: bool,
}

/// How rows of one relation become events.
#[derive(Debug)]
pub struct Plan {
    pub watch: Watch,
    pub columns: Vec<Column>,
    /// Positions in the row of the columns that make the id, in the order of the id.
    pub key: Vec<(usize, Encoding)>,
    pub tenant: Option<(usize, Encoding)>,
    /// Row-level security is on: events carry the key and the names of the changed columns, no values.
    pub key_only: bool,
    /// Some column's text depends on settings of the session.
    pub needs_canonical: bool,
    /// The table that events name: for a partition its root.
    pub relation: pg_sys::Oid,
    pub width: usize,
    /// The columns that the last update changed, and their names: the next one is likely to change the same.
    last_changed: RefCell<(Vec<usize>, Option<Rc<NameList>>)>,
}

/// Names as a text[] in memory of its own, to be copied from.
#[derive(Debug)]
pub struct NameList(Vec<u64>);

impl NameList {
    fn of(names: &[&str]) -> Self {
        let datum = Arg::texts(names).datum().unwrap_or(pg_sys::Datum::from(0usize));
        // SAFETY: a plain array that was just made; it is copied and freed.
        unsafe {
            let array: *mut pg_sys::varlena = datum.cast_mut_ptr();
            let size = pgrx::varsize_any(array);
            let mut words = vec![0u64; size.div_ceil(8)];
            std::ptr::copy_nonoverlapping(array.cast::<u8>(), words.as_mut_ptr().cast::<u8>(), size);
            pg_sys::pfree(array.cast());
            NameList(words)
        }
    }

    pub fn datum(&self) -> pg_sys::Datum {
        pg_sys::Datum::from(self.0.as_ptr())
    }
}

impl Plan {
    /// Names of the columns at these places, sorted.
    pub fn names_of(&self, places: &[usize]) -> Rc<NameList> {
        if let (known, Some(names)) = &*self.last_changed.borrow()
            && known == places
        {
            return names.clone();
        }
        let mut names: Vec<&str> = places.iter().map(|i| self.columns[*i].name.as_str()).collect();
        names.sort_unstable();
        let names = Rc::new(NameList::of(&names));
        self.last_changed.replace((places.to_vec(), Some(names.clone())));
        names
    }
}

type Cache = HashMap<(pg_sys::Oid, pg_sys::Oid), (u64, Rc<Plan>)>;
thread_local!(static PLANS: RefCell<Cache> = RefCell::new(HashMap::new()));

/// The plan for a trigger on a relation.
pub fn plan_for(relation: pg_sys::Relation, trigger: &pg_sys::Trigger) -> Option<Rc<Plan>> {
    // SAFETY: an open relation.
    let oid = unsafe { (*relation).rd_id };
    let key = (oid, trigger.tgoid);
    let generation = names::catalog_generation();
    if let Some(plan) = PLANS.with(|plans| match plans.borrow().get(&key) {
        Some((known, plan)) if *known == generation => Some(plan.clone()),
        _ => None,
    }) {
        return Some(plan);
    }
    // SAFETY: tgargs has tgnargs NUL-terminated strings.
    let argument = unsafe {
        if trigger.tgnargs < 1 {
            return None;
        }
        CStr::from_ptr(*trigger.tgargs).to_bytes()
    };
    let watch: Watch = serde_json::from_str(&server_text::read(argument)).ok()?;
    let plan = Rc::new(build(relation, watch));
    PLANS.with(|plans| {
        let mut plans = plans.borrow_mut();
        plans.retain(|_, (known, _)| *known == generation);
        plans.insert(key, (names::catalog_generation(), plan.clone()));
    });
    Some(plan)
}

/// Names and places of the live columns of a relation.
pub fn live_columns(relation: pg_sys::Relation) -> Vec<(usize, String, pg_sys::Oid, bool, i16)> {
    // SAFETY: an open relation and its own descriptor.
    unsafe {
        let descriptor = (*relation).rd_att;
        (0..(*descriptor).natts as usize)
            .filter_map(|index| {
                let attribute = raw::attribute(descriptor, index);
                (!(*attribute).attisdropped).then(|| {
                    let name = server_text::read_c(CStr::from_ptr((*attribute).attname.data.as_ptr()));
                    (index, name, (*attribute).atttypid, (*attribute).attbyval, (*attribute).attlen)
                })
            })
            .collect()
    }
}

/// Plans a relation. Columns that have been renamed or dropped since watch_table() must not make writes fail: they
/// are left out, and a key that has lost a column falls back to the primary key.
pub fn build(relation: pg_sys::Relation, watch: Watch) -> Plan {
    let live = live_columns(relation);
    let place =
        |name: &String| live.iter().find(|(_, column, ..)| column == name).map(|(i, _, type_oid, ..)| (*i, *type_oid));
    let mut key_columns: Vec<(usize, pg_sys::Oid)> = watch.id.iter().filter_map(place).collect();
    if key_columns.len() != watch.id.len() {
        let primary = primary_key(relation);
        key_columns = live.iter().filter(|(i, ..)| primary.contains(i)).map(|(i, _, t, ..)| (*i, *t)).collect();
    }
    // SAFETY: an open relation; the root of a partition is looked up in the catalog.
    let (key_only, root) = unsafe {
        let oid = (*relation).rd_id;
        let class = &*(*relation).rd_rel;
        let root = if class.relispartition { root_of(oid) } else { oid };
        (class.relrowsecurity || has_row_security(root), root)
    };
    let columns: Vec<Column> = live
        .iter()
        .filter(|(i, name, ..)| {
            key_columns.iter().any(|(key, _)| key == i)
                // A change of the tenant must be seen as one: each of the two tenants is shown its side of it alone.
                || watch.tenant.as_ref() == Some(name)
                || (watch.columns.as_ref().is_none_or(|wanted| wanted.contains(name)) && !watch.ignore.contains(name))
        })
        .map(|(index, name, type_oid, by_value, length)| {
            let mut label = Vec::new();
            write_string(&mut label, &server_text::write(name));
            label.push(b':');
            Column {
                index: *index,
                name: name.clone(),
                label,
                encoding: Encoding::of_type(*type_oid),
                by_value: *by_value,
                length: *length,
                is_key: key_columns.iter().any(|(key, _)| key == index),
            }
        })
        .collect();
    let tenant = watch.tenant.as_ref().and_then(place).map(|(i, type_oid)| (i, Encoding::of_type(type_oid)));
    let key = key_columns.into_iter().map(|(i, type_oid)| (i, Encoding::of_type(type_oid))).collect();
    let needs_canonical = columns.iter().any(|column| column.encoding.depends_on_settings());
    // SAFETY: an open relation.
    let width = unsafe { (*(*relation).rd_att).natts as usize };
    Plan {
        watch,
        columns,
        key,
        tenant,
        key_only,
        needs_canonical,
        relation: root,
        width,
        last_changed: RefCell::default(),
    }
}

/// Policies of a partitioned table hold for rows that are read through it.
fn has_row_security(relation: pg_sys::Oid) -> bool {
    // SAFETY: looks at the catalog entry of an existing relation and releases it again.
    unsafe {
        let opened = pg_sys::RelationIdGetRelation(relation);
        if opened.is_null() {
            return false;
        }
        let has = (*(*opened).rd_rel).relrowsecurity;
        pg_sys::RelationClose(opened);
        has
    }
}

/// Places (from 0) of the columns of the primary key.
pub fn primary_key(relation: pg_sys::Relation) -> Vec<usize> {
    // SAFETY: an open relation; the bitmap is offset by FirstLowInvalidHeapAttributeNumber.
    unsafe {
        let bitmap =
            pg_sys::RelationGetIndexAttrBitmap(relation, pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_PRIMARY_KEY);
        let mut places = Vec::new();
        let mut member = -1;
        loop {
            member = pg_sys::bms_next_member(bitmap, member);
            if member < 0 {
                return places;
            }
            places.push((member + pg_sys::FirstLowInvalidHeapAttributeNumber - 1) as usize);
        }
    }
}

/// The topmost partitioned table above a partition.
pub fn root_of(partition: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: catalog look-ups; the list is palloc'd.
    unsafe {
        let ancestors = raw::get_partition_ancestors(partition);
        let length = if ancestors.is_null() { 0 } else { (*ancestors).length as usize };
        if length == 0 { partition } else { (*(*ancestors).elements.add(length - 1)).oid_value }
    }
}

/// (name, type) of the live columns of a table, None if it is gone.
pub fn typed_columns(relation: pg_sys::Oid) -> Option<Vec<(String, String)>> {
    // SAFETY: the table is opened for the look and closed again; type names are palloc'd.
    unsafe {
        let opened = pg_sys::try_relation_open(relation, pg_sys::AccessShareLock as i32);
        if opened.is_null() {
            return None;
        }
        let columns = live_columns(opened)
            .into_iter()
            .map(|(_, name, type_oid, ..)| {
                let base = pg_sys::getBaseType(type_oid);
                let text = server_text::read_c(CStr::from_ptr(pg_sys::format_type_be(base)));
                (name, text)
            })
            .collect();
        pg_sys::relation_close(opened, pg_sys::AccessShareLock as i32);
        Some(columns)
    }
}
