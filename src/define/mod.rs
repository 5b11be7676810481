//! `define()`: reads a document, checks it completely, and saves it if it changed.
#![allow(unsafe_code)]
pub mod cycles;
mod notices;
mod rights;
pub mod webhooks;

use automation_core::check::{self, ColumnType, KnownKind, Names, TableShape};
use automation_core::definition::{self, Document, Problem};
use automation_core::expr::{ExprError, ExprErrorKind};
use automation_core::ids::AutomationId;
use automation_core::lifecycle::{Refusal, Status};
use automation_core::program::{Program, Step, compile_parts};
use automation_core::steps::{Checked, Touch};
use automation_core::suggest::nearest;
use automation_core::template::SqlTemplate;
use automation_core::topic::engine::Wanted;
use automation_core::value::Value;
use pgrx::pg_sys;

use crate::definitions::by_name::{Named, typed};
use crate::definitions::schedules;
use crate::definitions::topics;
use crate::error::{EngineError, EngineResult};
use crate::executor::{call_statement, own_type};
use crate::pg::catch::PgError;
use crate::pg::parameter_types::OwnType;
use crate::pg::server_text;
use crate::pg::statement::{Spi, Statement};
use crate::pg::subtransaction::in_subtransaction;
use crate::pg::writes::Write;
use crate::pg::{clock, identity, names, query_pages, settings};
use crate::store::automations::{self, Automation, NewVersion};
use crate::store::gates;
use crate::store::kinds::{self, Kind};
use crate::store::log;
use crate::{capture, gucs};

/// The result of define().
pub struct Defined {
    pub name: String,
    pub version: i32,
    pub status: String,
    pub notices: Vec<String>,
}

/// A problem ready to be raised or listed, with its path in the document.
pub struct Finding {
    pub path: String,
    pub error: EngineError,
}

/// Reads and checks a document as `owner` would run it. Every problem is found, not only the first.
pub fn examine(json: &serde_json::Value, owner: pg_sys::Oid) -> Result<(Document, Program, Vec<Write>), Vec<Finding>> {
    let name = json.get("name").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let raise =
        |problems: Vec<Problem>| problems.into_iter().map(|problem| finding(&name, problem)).collect::<Vec<_>>();
    let document = definition::read(json).map_err(raise)?;
    let (program, mut problems) = compile_parts(&document);
    problems.extend(names_problems(&document, &program));
    let mut findings = raise(problems);
    let mut writes = Vec::new();
    findings.extend(rights::closed_tables(&document, &program, owner));
    findings.extend(statements(&document, &program, owner, &mut writes));
    findings.extend(webhooks::unknown_names(&document.name, &program, owner));
    if findings.is_empty() { Ok((document, program, writes)) } else { Err(findings) }
}

fn finding(name: &str, problem: Problem) -> Finding {
    let place = format!("{} of automation \"{name}\"", problem.place);
    let error = match &problem.text {
        Some(text) => EngineError::expression(&place, text, &problem.error),
        None => {
            let message = problem.error.message.clone();
            let mut error = match problem.error.kind {
                ExprErrorKind::UnknownName if problem.path.ends_with(".kind") => EngineError::undefined(message),
                ExprErrorKind::UnknownName => EngineError::undefined_name(message),
                ExprErrorKind::NotSupported => EngineError::not_supported(message),
                _ => EngineError::invalid(message),
            };
            error = error.detail(match problem.path.as_str() {
                "" => format!("In automation \"{name}\"."),
                path => format!("In automation \"{name}\", at {path}."),
            });
            match &problem.error.hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        }
    };
    let inner = problem.error.path();
    let path = match (problem.path.as_str(), inner.as_str()) {
        (path, "") => path.to_owned(),
        (path, inner) if inner.starts_with('[') => format!("{path}{inner}"),
        (path, inner) => format!("{path}.{inner}"),
    };
    // Deep inside a document, the line and the caret alone do not show the position.
    let error = if inner.is_empty() { error } else { error.detail_also(format!("It is at {path}.")) };
    Finding { path, error }
}

/// The columns of a table, None for a kind without a table.
fn shape(kind: &Kind) -> Option<TableShape> {
    let relation = kind.relation?;
    let columns = capture::columns_of(relation)?;
    let name = names::relation_name(relation)?;
    let typed = columns.into_iter().map(|(name, type_name)| (name, ColumnType::from_postgres(&type_name)));
    Some(TableShape { name, columns: typed.collect(), unwatched: Vec::new() })
}

/// The columns of a table that events carry.
pub fn recorded_shape(kind: &Kind) -> Option<TableShape> {
    let mut shape = shape(kind)?;
    let (columns, others): (Vec<_>, Vec<_>) = shape.columns.into_iter().partition(|(name, _)| kind.records(name));
    shape.columns = columns;
    shape.unwatched = others.into_iter().map(|(name, _)| name).collect();
    Some(shape)
}

/// Checks kinds, columns and names in expressions against the kinds that are watched now.
fn names_problems(document: &Document, program: &Program) -> Vec<Problem> {
    let all = kinds::all();
    let known: Vec<KnownKind> =
        all.iter().map(|kind| KnownKind { name: kind.kind.clone(), shape: shape(kind) }).collect();
    let triggers = Some(program.triggers.iter().map(|trigger| trigger.id.clone()).collect::<Vec<_>>());
    let mut problems = Vec::new();
    let mut shapes: Vec<Option<TableShape>> = Vec::new();
    for trigger in &program.triggers {
        let i = document.triggers.iter().position(|def| def.id.as_ref() == Some(&trigger.id)).unwrap_or_default();
        let (path, place) = (format!("triggers[{i}]"), format!("trigger \"{}\"", trigger.id));
        let row = match &trigger.kind {
            None => None,
            Some(kind) => match all.iter().find(|known| known.kind == *kind) {
                Some(found) => recorded_shape(found),
                None => {
                    problems.push(unwatched(kind, &known, &path, &place));
                    None
                }
            },
        };
        if let Some(shape) = &row {
            for column in trigger.columns.iter().flatten() {
                if !shape.columns.iter().any(|(name, _)| name == column) {
                    problems.push(no_column(column, shape, &format!("{path}.columns"), &place));
                }
            }
            // A field may be a path into a document.
            let field = trigger.field().map(|field| field.split('.').next().unwrap_or(field));
            if let Some(field) = field.filter(|field| !shape.columns.iter().any(|(name, _)| name == field)) {
                problems.push(no_column(field, shape, &format!("{path}.field"), &place));
            }
            let errors = trigger.change.meant().problems(shape).into_iter();
            problems.extend(errors.map(|error| Problem {
                path: path.clone(),
                place: place.clone(),
                text: None,
                error,
            }));
        }
        for (field, expr) in trigger.expressions() {
            let names = Names { kinds: Some(known.clone()), triggers: triggers.clone(), ..Names::filter(row.clone()) };
            let (path, place) = (format!("{path}.{field}"), format!("{field} of {place}"));
            add(&mut problems, check::check_expr(expr, &names), &path, &place, expr.text());
        }
        if let Some(filter) = &trigger.filter {
            let names = Names { kinds: Some(known.clone()), triggers: triggers.clone(), ..Names::filter(row.clone()) };
            let text = text_of(document.triggers.get(i).and_then(|def| def.filter.as_ref()));
            let (path, place) = (format!("{path}.filter"), format!("filter of {place}"));
            add(&mut problems, check::check_condition(filter, &names), &path, &place, &text);
        }
        shapes.push(row);
    }
    // If all triggers are about the same kind of row, the steps can be checked against it.
    let row = match shapes.first() {
        Some(first)
            if shapes.iter().all(|shape| shape.as_ref().map(|s| &s.name) == first.as_ref().map(|s| &s.name)) =>
        {
            first.clone()
        }
        _ => None,
    };
    let names = Names { kinds: Some(known), triggers, ..Names::step(row) };
    if let Some(condition) = &program.condition {
        let text = text_of(document.condition.as_ref());
        add(&mut problems, check::check_condition(condition, &names), "condition", "condition", &text);
    }
    if let Some(key) = &program.key {
        add(&mut problems, check::check_expr(key, &names), "key", "key", key.text());
    }
    let json = serde_json::to_value(document).unwrap_or_default();
    let bulks: Vec<String> = program
        .steps
        .iter()
        .filter(|step| at_path(&json, &step.path).is_some_and(|given| given["do"] == "bulk"))
        .map(|step| format!("{}.steps[", step.path))
        .collect();
    let of_rows = names.bulk_step();
    for step in &program.steps {
        let inside = bulks.iter().any(|bulk| step.path.starts_with(bulk));
        step_names(&json, step, if inside { &of_rows } else { &names }, &mut problems);
    }
    problems
}

/// The value at a path such as `steps[0].lanes[1].until`.
fn at_path<'a>(document: &'a serde_json::Value, path: &str) -> Option<&'a serde_json::Value> {
    path.split(['.', '[']).try_fold(document, |found, part| match part.strip_suffix(']') {
        Some(index) => found.get(index.parse::<usize>().ok()?),
        None => found.get(part),
    })
}

/// Checks the names in the expressions of a step.
fn step_names(document: &serde_json::Value, step: &Step, names: &Names, problems: &mut Vec<Problem>) {
    let own = step.condition.iter().map(|condition| ("condition".to_owned(), Checked::Condition(condition)));
    for (field, checked) in own.chain(step.action.expressions()) {
        let (path, place) = (format!("{}.{field}", step.path), format!("{field} of step \"{}\"", step.id));
        let text = checked.text().map_or_else(|| text_of(at_path(document, &path)), str::to_owned);
        add(problems, checked.problems(names), &path, &place, &text);
    }
}

fn text_of(given: Option<&serde_json::Value>) -> String {
    match given {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn add(problems: &mut Vec<Problem>, errors: Vec<ExprError>, path: &str, place: &str, text: &str) {
    problems.extend(errors.into_iter().map(|error| Problem {
        path: path.to_owned(),
        place: place.to_owned(),
        text: Some(text.to_owned()),
        error,
    }));
}

fn unwatched(kind: &str, known: &[KnownKind], path: &str, place: &str) -> Problem {
    let mut problem = Problem::shape(format!("{path}.kind"), place, format!("kind \"{kind}\" is not watched"));
    problem.error.kind = ExprErrorKind::UnknownName;
    let close = nearest(kind, known.iter().map(|known| known.name.as_str()));
    problem.error = problem.error.with_hint(match close {
        Some(close) => format!("Did you mean \"{close}\"?"),
        None => format!("Watch the table first: SELECT automation.watch_table('{kind}')."),
    });
    problem
}

fn no_column(column: &str, shape: &TableShape, path: &str, place: &str) -> Problem {
    let error = shape.no_column(column, 0..0);
    Problem { path: path.to_owned(), place: place.to_owned(), text: None, error }
}

/// Prepares every statement as the owner would, with the search path of this session, and notes the tables it writes.
fn statements(document: &Document, program: &Program, owner: pg_sys::Oid, writes: &mut Vec<Write>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for step in &program.steps {
        let place = |field: &str| format!("{field} of step \"{}\" of automation \"{}\"", step.id, document.name);
        for touch in step.action.touches() {
            let finding = match touch {
                Touch::Statement(field, statement) => match prepare(owner, statement.sql(), statement.params().len()) {
                    Ok(written) => {
                        writes.extend(written.into_iter().filter(|_| step.enabled));
                        None
                    }
                    Err(error) => Some((field, refused(&place(field), statement, error))),
                },
                Touch::Query(field, query) => {
                    prepare_query(owner, query).err().map(|error| (field, refused(&place(field), query, error)))
                }
                Touch::Function(field, function) => {
                    let prepared = identity::as_role(owner, || call_statement(function))
                        .and_then(|statement| prepare(owner, &statement, 1));
                    let refused = |error| EngineError::statement(&place(field), function, &error, None);
                    prepared.err().map(|error| (field, refused(error)))
                }
                Touch::Topic(field, topic) if topic.is_constant() => {
                    topics::check_published(topic.text()).err().map(|error| (field, error.place(&place(field))))
                }
                // A computed topic is checked when the run gets there; a missing automation is a notice; the names in a
                // message are looked up by `webhooks`.
                Touch::Topic(..) | Touch::State(_) | Touch::Automation(_) | Touch::Message(_) => None,
            };
            let path = |field| format!("{}.{field}", step.path);
            findings.extend(finding.map(|(field, error)| Finding { path: path(field), error }));
        }
    }
    findings
}

/// The error for a statement that cannot be prepared, with the position in the text that its author wrote.
fn refused(place: &str, template: &SqlTemplate, error: PgError) -> EngineError {
    let at = error.position.map(|position| template.map_position(position));
    EngineError::statement(place, template.text(), &in_users_words(template, error), at)
}

/// Replaces $1, $2 in an error of the parser by the expressions that the author wrote.
fn in_users_words(template: &SqlTemplate, mut error: PgError) -> PgError {
    for (i, expr) in template.params().iter().enumerate() {
        let (ours, theirs) = (format!("\"${}\"", i + 1), format!("\"{{{{{}}}}}\"", expr.text()));
        if error.message.contains(&ours) {
            error.message = error.message.replace(&ours, &theirs);
            error.hint.get_or_insert_with(|| {
                "An expression stands for a value; the name of a table or column cannot be one.".to_owned()
            });
        }
    }
    error
}

/// The types of parameters whose values are known only when the statement runs.
fn unknown_types(parameters: usize) -> Vec<OwnType> {
    vec![own_type(&Value::Null); parameters]
}

fn prepare_query(owner: pg_sys::Oid, query: &SqlTemplate) -> Result<(), PgError> {
    identity::as_role(owner, || {
        in_subtransaction(|| {
            let spi = Spi::open();
            let (statement, _) = query_pages::prepare(&spi, query.sql(), &unknown_types(query.params().len()))?;
            drop(statement);
            spi.close();
            Ok(())
        })
    })
}

fn prepare(owner: pg_sys::Oid, sql: &str, parameters: usize) -> Result<Vec<Write>, PgError> {
    identity::as_role(owner, || {
        in_subtransaction(|| {
            let spi = Spi::open();
            let statement = Statement::prepare_for(&spi, sql, &unknown_types(parameters))?;
            let writes = statement.writes();
            drop(statement);
            spi.close();
            Ok(writes)
        })
    })
}

/// The owner of an automation: the caller, or a role that the caller can become.
pub fn resolve_owner(run_as: Option<&str>) -> EngineResult<pg_sys::Oid> {
    let caller = identity::current_user();
    let owner = match run_as {
        None => caller,
        Some(name) => identity::role_by_name(name).ok_or_else(|| EngineError::unknown_role(name))?,
    };
    let owner_name = names::role_name(owner).unwrap_or_default();
    if owner != caller && !identity::can_become(caller, owner) {
        return Err(EngineError::not_allowed(format!("must be able to SET ROLE \"{owner_name}\"")));
    }
    if identity::is_superuser(owner) && !gucs::allow_superuser_automations() {
        return Err(EngineError::not_allowed("automations of superusers are not allowed")
            .detail(format!(
                "Role \"{owner_name}\" is a superuser, and automation_engine.allow_superuser_automations is off."
            ))
            .hint("Name a role without superuser rights: run_as => 'role'."));
    }
    Ok(owner)
}

/// Saves a document under its name. Does nothing if it has not changed.
pub fn define(mut json: serde_json::Value, run_as: Option<&str>, status: Option<&str>) -> EngineResult<Defined> {
    let take = |json: &mut serde_json::Value, field: &str| {
        json.as_object_mut().and_then(|fields| fields.remove(field)).and_then(|value| value.as_str().map(str::to_owned))
    };
    // A document from an application may name its owner and its status itself.
    let (inner_owner, inner_status) = (take(&mut json, "run_as"), take(&mut json, "status"));
    let status = match status.map(str::to_owned).or(inner_status).as_deref() {
        None => None,
        Some(word @ ("draft" | "active")) => Status::parse(word),
        Some(other) => {
            return Err(EngineError::invalid(format!("invalid status \"{other}\"")).hint("Use active or draft."));
        }
    };
    let run_as = run_as.map(str::to_owned).or(inner_owner);
    let owner = resolve_owner(run_as.as_deref())?;
    // An automation that exists keeps its owner, so the document has to work with the rights of that owner.
    let text = |field: &str| json.get(field).and_then(serde_json::Value::as_str);
    let known = text("name").filter(|_| run_as.is_none()).and_then(|name| {
        let tenant = Some(text("tenant").unwrap_or_default());
        Named { function: "define", name, tenant }.found().ok().flatten()
    });
    let runner = known.map_or(owner, |known| known.owner);
    let (document, program, writes) = examine(&json, runner)
        .map_err(|findings| findings.into_iter().next().map_or_else(|| EngineError::bug("no finding"), |f| f.error))?;
    save(&document, &program, &writes, owner, run_as.is_some(), status)
}

fn save(
    document: &Document,
    program: &Program,
    writes: &[Write],
    owner: pg_sys::Oid,
    owner_given: bool,
    status: Option<Status>,
) -> EngineResult<Defined> {
    let text = serde_json::to_string(document).map_err(|error| EngineError::bug(error.to_string()))?;
    let search_path = settings::current(c"search_path").map(|path| server_text::read_c(&path)).unwrap_or_default();
    let name = document.name.as_str();
    let found = match automations::lock(name, document.tenant.as_deref()) {
        Some(known) => redefine(known, document, &search_path, owner_given.then_some(owner), status)?,
        None => insert(document, owner, status)?,
    };
    let found = match found {
        Found::Unchanged(defined) => return Ok(defined),
        Found::ToSave(found) => found,
    };
    change_status(&found, name, program)?;
    let version = match &found.previous {
        Some(previous) if previous.is_same => previous.known.version,
        _ => automations::add_version(&NewVersion {
            listens_to: &listened_to(program),
            automation_id: found.id,
            document: &text,
            search_path: &search_path,
            created_by: identity::current_user(),
            tenant: document.tenant.as_deref(),
            owner: found.owner,
            owner_name: &names::role_name(found.owner).unwrap_or_default(),
        })
        .ok_or_else(|| EngineError::bug("a version was not saved"))?,
    };
    follow(&found, program);
    audit(&found, document, version);
    let mut notices = notices::of_owner(owner);
    notices.extend(about(document, program, writes, found.owner));
    cycles::remember(found.id, name, program, writes);
    notices.dedup();
    Ok(Defined { name: name.to_owned(), version, status: found.status.word().to_owned(), notices })
}

/// The automation that a definition is for.
enum Found {
    /// It is already as the document says.
    Unchanged(Defined),
    ToSave(ToSave),
}

/// An automation, locked, whose definition or status is to be saved.
struct ToSave {
    id: AutomationId,
    owner: pg_sys::Oid,
    status: Status,
    previous: Option<Previous>,
}

/// The automation as it was before.
struct Previous {
    known: Automation,
    /// The document, the search path and the owner are the same: only the status changes.
    is_same: bool,
}

/// An automation that is there already. `owner` is the new owner, if one was given.
fn redefine(
    known: Automation,
    document: &Document,
    search_path: &str,
    owner: Option<pg_sys::Oid>,
    status: Option<Status>,
) -> EngineResult<Found> {
    let name = document.name.as_str();
    if !identity::has_role(identity::current_user(), known.owner) {
        return Err(
            EngineError::taken(format!("automation \"{name}\" already exists")).detail("It belongs to another role.")
        );
    }
    let owner = owner.unwrap_or(known.owner);
    let status = status.or(Status::parse(&known.status)).unwrap_or(Status::Active);
    let before: Option<Document> = serde_json::from_str(&known.document).ok();
    let is_same = before.as_ref() == Some(document) && known.search_path == search_path && known.owner == owner;
    if is_same && status.word() == known.status {
        let (version, status) = (known.version, known.status);
        let notices = vec!["unchanged".to_owned()];
        return Ok(Found::Unchanged(Defined { name: name.to_owned(), version, status, notices }));
    }
    Ok(Found::ToSave(ToSave { id: known.id, owner, status, previous: Some(Previous { known, is_same }) }))
}

/// An automation that is new.
fn insert(document: &Document, owner: pg_sys::Oid, status: Option<Status>) -> EngineResult<Found> {
    let (name, tenant) = (document.name.as_str(), document.tenant.as_deref());
    let status = status.unwrap_or(Status::Active);
    let role = names::role_name(owner).unwrap_or_default();
    crate::definitions::quotas::room_for_automation(owner)?;
    let id = automations::insert(name, owner, &role, status.word(), tenant, clock::now()).ok_or_else(|| {
        EngineError::taken(format!("automation \"{name}\" already exists"))
            .detail("Another session defined it at the same time.")
    })?;
    Ok(Found::ToSave(ToSave { id, owner, status, previous: None }))
}

/// Makes the automation active if it is to be; refuses a status that define() does not give.
fn change_status(found: &ToSave, name: &str, program: &Program) -> EngineResult<()> {
    let previous = found.previous.as_ref().map(|previous| &previous.known);
    if found.status == Status::Active {
        let (steps, triggers) = (program.steps.len(), program.triggers.len());
        Status::Draft.transition(Status::Active, steps, triggers).map_err(not_activatable)?;
        if let Some(known) = previous {
            let from = Status::parse(&known.status).unwrap_or(Status::Draft);
            if let Ok(Some(action)) = from.transition(Status::Active, steps, triggers) {
                automations::set_status(known.id, &known.status, "active", "user", &serde_json::json!({}));
                crate::runs::pause::tell(known, from, Status::Active, action);
            }
        }
        return Ok(());
    }
    match previous.filter(|known| known.status != found.status.word()) {
        Some(known) => {
            Err(EngineError::wrong_state(format!("cannot make automation \"{name}\" a {}", found.status.word()))
                .detail(format!("It is {}.", known.status))
                .hint(
                    ["pause", "revert_to_draft"]
                        .map(|function| typed(function, name, known.tenant.as_deref()))
                        .join("; ")
                        + ";",
                ))
        }
        None => Ok(()),
    }
}

/// Brings schedules, holds and the breaker in step with the new definition.
fn follow(found: &ToSave, program: &Program) {
    match found.status {
        Status::Active => {
            let was_active =
                found.previous.as_ref().is_some_and(|previous| previous.known.status == Status::Active.word());
            schedules::follow(found.id, program, !was_active);
        }
        Status::Paused | Status::Draft => schedules::rest(found.id),
    }
    automations::note_change();
    // The change may have repaired the automation: its failures do not count any more.
    gates::forget_failures(found.id);
    if found.previous.is_some() {
        crate::runs::holds::drop_changed(found.id, &program.triggers);
    }
}

fn audit(found: &ToSave, document: &Document, version: i32) {
    let action = if found.previous.is_some() { "automation.redefined" } else { "automation.defined" };
    let mut details = serde_json::json!({ "version": version, "status": found.status.word() });
    if let Some(tenant) = &document.tenant {
        details["tenant"] = tenant.as_str().into();
    }
    log::audit_of(Some(found.owner), action, &document.name, &details);
}

/// What the author should know about a definition that is saved all the same.
fn about(document: &Document, program: &Program, writes: &[Write], owner: pg_sys::Oid) -> Vec<String> {
    let name = document.name.as_str();
    let mut notices = Vec::new();
    notices.extend(notices::missing_automations(name, program));
    notices.extend(webhooks::doubts(program, owner));
    notices.extend(notices::nearly_derived(program));
    notices.extend(notices::never_told(program));
    notices.extend(notices::closed_kinds(program, owner));
    notices.extend(program.triggers.iter().flat_map(check::kind_in_filter));
    notices.extend(cycles::warnings(name, program, writes));
    notices
}

/// The topics of engine events that the automation's triggers listen to.
fn listened_to(program: &Program) -> Vec<String> {
    let patterns = program.triggers.iter().flat_map(|trigger| trigger.patterns.iter());
    patterns.filter(|pattern| Wanted::by([pattern]).any()).cloned().collect()
}

fn not_activatable(refusal: Refusal) -> EngineError {
    let message = refusal.message();
    let error = EngineError::wrong_state(message[..1].to_lowercase() + &message[1..]);
    match refusal {
        Refusal::NoSteps => error.hint("Give it steps, or define it with status => 'draft'."),
        _ => error.hint("Give it a trigger, automation.on_call() for one that is only started by hand."),
    }
}
