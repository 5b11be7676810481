//! Matches over kinds of steps, triggers and changes that have an arm for the rest: they would swallow a new kind silently.

/// A mention of one of these in a pattern makes a match one over kinds.
const KINDS: [&str; 4] = ["Action::", "StepKind::", "On::", "Change::"];

/// Each place in a file that has an answer for kinds it does not name: `line: text`.
pub fn swallowed(source: &str) -> Vec<String> {
    let code = without_texts(source);
    let mut found: Vec<usize> = Vec::new();
    for at in words(&code, "match") {
        let Some(open) = opening(&code, at + "match".len()) else { continue };
        let patterns = patterns(&code[open + 1..closing(&code, open)]);
        if patterns.iter().any(|pattern| names_kinds(pattern) > 0) && patterns.iter().any(|p| is_catch_all(p)) {
            found.push(at);
        }
    }
    // `matches!` is a match whose arm for the rest says false.
    for at in words(&code, "matches!") {
        let open = at + "matches!".len();
        if code[open..].starts_with('(') && names_kinds(&code[open..closing(&code, open)]) > 0 {
            found.push(at);
        }
    }
    // `if let` and `let ... else` may ask for one kind; for several they are a list of kinds.
    for at in words(&code, "let") {
        let end = code[at..].find('=').map_or(code.len(), |length| at + length);
        if names_kinds(&code[at..end]) > 1 {
            found.push(at);
        }
    }
    found.sort_unstable();
    let line_of = |at: usize| code[..at].matches('\n').count();
    let lines: Vec<&str> = source.lines().collect();
    found.into_iter().map(|at| format!("{}: {}", line_of(at) + 1, lines[line_of(at)].trim())).collect()
}

/// How many kinds a piece of code names.
fn names_kinds(code: &str) -> usize {
    KINDS.iter().map(|kind| words(code, kind).count()).sum()
}

/// Where a word stands that is not the end of a longer one.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let after = code[at + word.len()..].chars().next();
        !code[..*at].ends_with(is_name) && (!word.ends_with(is_name) || !after.is_some_and(is_name))
    })
}

/// The brace that opens the arms of a match whose value begins at `from`.
fn opening(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(from + i),
            ';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// The bracket that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (i, c) in code[open..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + i;
        }
    }
    code.len()
}

/// The patterns of the arms of a match, guards included.
fn patterns(arms: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut at, mut begin) = (0, 0);
    while at < arms.len() {
        let rest = &arms[at..];
        if rest.starts_with("=>") {
            found.push(arms[begin..at].trim());
            at += 2;
            at += arms[at..].len() - arms[at..].trim_start().len();
            let is_block = arms[at..].starts_with('{');
            if is_block {
                at = closing(arms, at) + 1;
            }
            // A block may be the beginning of an expression, as in `{ a }.b()`, and need not be followed by a comma.
            let next = arms[at.min(arms.len())..].trim_start();
            if !is_block || next.starts_with([',', '.', '?']) {
                while at < arms.len() && !arms[at..].starts_with(',') {
                    at = if arms[at..].starts_with(['(', '[', '{']) { closing(arms, at) + 1 } else { after(arms, at) };
                }
                at = (at + 1).min(arms.len());
            }
            begin = at;
        } else if rest.starts_with(['(', '[', '{']) {
            at = (closing(arms, at) + 1).min(arms.len());
        } else {
            at = after(arms, at);
        }
    }
    found
}

/// The place behind the character at a place.
fn after(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Does a pattern take every value: `_`, a name, or a pair of those?
fn is_catch_all(pattern: &str) -> bool {
    let pattern = words(pattern, "if").next().map_or(pattern, |guard| &pattern[..guard]).trim();
    let pattern = pattern.trim_start_matches('|').trim();
    match pattern.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => !inner.trim().is_empty() && inner.split(',').all(|part| part.trim().is_empty() || is_name(part)),
        None => is_name(pattern),
    }
}

fn is_name(pattern: &str) -> bool {
    let name = pattern.trim().trim_start_matches('&').trim_start_matches("ref ").trim_start_matches("mut ");
    // `true` and `false` are values.
    !matches!(name, "" | "true" | "false")
        && name.chars().all(|c| c.is_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The code with its comments, texts and characters blanked out, of the same length and with the same lines.
fn without_texts(source: &str) -> String {
    let end = source.find("#[cfg(test)]").unwrap_or(source.len());
    let source = &source[..end];
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < source.len() {
        let length = blank(source, at);
        if length > 0 {
            let blanked = source[at..at + length].chars();
            out.extend(blanked.flat_map(|c| std::iter::repeat_n(if c == '\n' { '\n' } else { ' ' }, c.len_utf8())));
            at += length;
        } else {
            let c = source[at..].chars().next().unwrap_or(' ');
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

/// The length of the comment, text or character that begins at a place; 0 if none does.
fn blank(source: &str, at: usize) -> usize {
    let rest = &source[at..];
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    let is_word = source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if rest.starts_with('r') && !is_word {
        let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
        if rest[1 + hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let begin = hashes + 2;
            return rest[begin..].find(&close).map_or(rest.len(), |end| begin + end + close.len());
        }
    }
    match rest.chars().next() {
        Some('"') => until_unescaped(rest, '"'),
        // A lifetime has no second quote behind one character.
        Some('\'') if rest[1..].starts_with('\\') => until_unescaped(rest, '\''),
        Some('\'') => {
            let mut inner = rest[1..].chars();
            match (inner.next(), inner.next()) {
                (Some(c), Some('\'')) => 2 + c.len_utf8(),
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// The length up to and with the next quote that has no backslash before it.
fn until_unescaped(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return i + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[test]
fn the_rule_finds_each_way_to_swallow_a_kind() {
    for swallowing in [
        "match action { Action::Sql(_) => 1, _ => 2 }",
        "match &step.action {\n Action::Sql(s) if s.x => { a } other => b,\n}",
        "match (code, &trigger.change) { (_, Change::Any) => {} (_, _) => {} }",
        "match def.kind() { StepKind::Webhook => f(|| { _ }), _ if x => g(), StepKind::Sql => {} }",
        "match on { On::Cron | On::Call => Some(match x { true => 1, false => 2 }), _ => None }",
        "match x { 1 => match on { On::Cron => 1, rest => 2 }, _ => 3 }",
        "let a = matches!(step.action, Action::Sql(_) | Action::Call(_));",
        "if let Action::Sql(x) | Action::Call(x) = action { }",
        "match action { Action::Sql(_) => '{', _ => \"}\" }",
    ] {
        assert_eq!(swallowed(swallowing).len(), 1, "{swallowing}");
    }
}

#[test]
fn the_rule_lets_matches_be_that_name_every_kind() {
    for sound in [
        "match action { Action::Sql(_) => match x { 1 => 1, _ => 2 }, Action::Call(_) => 3 }",
        "match word { \"sql\" => Some(StepKind::Sql), _ => None }",
        "match x { Reaction::Sql => 1, _ => 2 }",
        "// match action { Action::Sql(_) => 1, _ => 2 }",
        "let text = \"match action { Action::Sql(_) => 1, _ => 2 }\";",
        "if let Action::Bulk(bulk) = action { match bulk.rate { None => 1, _ => 2 } }",
        "let Some(on) = On::named(word) else { return On::Call };",
        "fn f<'a>(x: &'a Action) -> &'a str { match x { Action::Sql(_) => \"_ => \", Action::Call(_) => r#\"_ => \"# } }",
        "#[cfg(test)]\nmod tests { fn f() { match action { Action::Sql(_) => 1, _ => 2 } } }",
    ] {
        assert_eq!(swallowed(sound), Vec::<String>::new(), "{sound}");
    }
}
