//! SQL with `{{ expr }}`: each expression becomes a bound parameter, never text.
//!
//! The statement is read as Postgres reads it, so that braces inside strings, quoted names, dollar quotes and
//! comments are recognised: a parameter cannot stand there, and saying so beats running something else.

use super::placeholder;
use crate::expr::{Budget, Expr, ExprError, ExprErrorKind, References, Scope};

/// A statement with its parameters taken out.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlTemplate {
    text: String,
    sql: String,
    params: Vec<Expr>,
    /// Where each parameter's expression starts in the text.
    starts: Vec<usize>,
    /// For each copied stretch and each placeholder: character offsets in `sql` and in `text`, and whether it is
    /// copied.
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq)]
struct Segment {
    sql_chars: usize,
    text_chars: usize,
    copied: bool,
}

impl SqlTemplate {
    /// Parses a statement.
    pub fn parse(text: &str) -> Result<SqlTemplate, ExprError> {
        let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, copied: 0, out: SqlTemplate::empty(text) };
        reader.run()?;
        Ok(reader.out)
    }

    fn empty(text: &str) -> SqlTemplate {
        SqlTemplate {
            text: text.to_owned(),
            sql: String::with_capacity(text.len()),
            params: Vec::new(),
            starts: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statement with `$1`, `$2`, ... in place of the expressions.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The expression of each parameter in order.
    pub fn params(&self) -> &[Expr] {
        &self.params
    }

    /// The byte offset in the text of each parameter's expression.
    pub fn param_starts(&self) -> &[usize] {
        &self.starts
    }

    /// The parameters as the texts Postgres reads them from; `None` is null.
    pub fn bind(&self, scope: &dyn Scope, budget: &mut Budget) -> Result<Vec<Option<String>>, ExprError> {
        let texts = self.params.iter().zip(&self.starts);
        texts.map(|(expr, start)| Ok(expr.eval(scope, budget).map_err(|e| e.shifted(*start))?.to_text())).collect()
    }

    /// The entities the parameters read.
    pub fn references(&self) -> References {
        let mut all = References::default();
        self.params.iter().for_each(|expr| all.extend(expr.references()));
        all
    }

    /// Maps a position that Postgres reports for [`SqlTemplate::sql`] to the text the user wrote; both count
    /// characters from 1. A position inside `$n` maps to the opening braces.
    pub fn map_position(&self, position: usize) -> usize {
        let offset = position.saturating_sub(1);
        let segment = self.segments.iter().rev().find(|s| s.sql_chars <= offset);
        segment.map_or(position, |s| s.text_chars + if s.copied { offset - s.sql_chars } else { 0 } + 1)
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Up to where the text has been copied to the statement.
    copied: usize,
    out: SqlTemplate,
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), ExprError> {
        while self.at < self.bytes.len() {
            let start = self.at;
            match self.bytes[start] {
                b'\'' => {
                    self.skip_quoted(b'\'', self.is_escape_string(start));
                    self.refuse_inside(start, "a quoted string", "Take the quotes away; a parameter needs none.")?;
                }
                b'"' => {
                    self.skip_quoted(b'"', false);
                    self.refuse_inside(start, "a quoted name", "Only values can be parameters, names cannot.")?;
                }
                b'-' if self.peek(1) == Some(b'-') => {
                    self.at = self.text[start..].find('\n').map_or(self.bytes.len(), |i| start + i);
                    self.refuse_inside(start, "a comment", "Take it out of the comment.")?;
                }
                b'/' if self.peek(1) == Some(b'*') => {
                    self.skip_comment()?;
                    self.refuse_inside(start, "a comment", "Take it out of the comment.")?;
                }
                b'$' if !self.after_name(start) => self.dollar(start)?,
                b'{' if self.peek(1) == Some(b'{') => self.parameter(start)?,
                _ => self.at += 1,
            }
        }
        self.copy_to(self.bytes.len());
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// Does the character before belong to a name, so that the characters from `at` on continue it?
    fn after_name(&self, at: usize) -> bool {
        at > 0 && is_name_byte(self.bytes[at - 1])
    }

    /// `E'...'`: a lone E before the quote.
    fn is_escape_string(&self, quote: usize) -> bool {
        quote > 0 && matches!(self.bytes[quote - 1], b'e' | b'E') && !self.after_name(quote - 1)
    }

    fn skip_quoted(&mut self, quote: u8, escapes: bool) {
        self.at += 1;
        while let Some(b) = self.peek(0) {
            self.at += 1;
            match b {
                b'\\' if escapes => self.at += 1,
                b if b == quote && self.peek(0) == Some(quote) => self.at += 1,
                b if b == quote => break,
                _ => {}
            }
        }
        self.at = self.at.min(self.bytes.len());
    }

    /// Postgres reads `/*` and all operator characters after it once per level, so many levels take it minutes; and one
    /// without an end as well.
    fn skip_comment(&mut self) -> Result<(), ExprError> {
        let start = self.at;
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.bytes[self.at], self.peek(1)) {
                (b'/', Some(b'*')) if depth == MOST_COMMENTS => {
                    let detail = format!("Comments nest more than {MOST_COMMENTS} levels.");
                    return Err(ExprError::new(
                        ExprErrorKind::TooComplex,
                        self.at..self.at + 2,
                        "statement is too complex",
                    )
                    .with_detail(detail));
                }
                (b'/', Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => self.at += 1,
            }
        }
        Err(ExprError::new(ExprErrorKind::Syntax, start..start + 2, "unterminated /* comment"))
    }

    fn dollar(&mut self, start: usize) -> Result<(), ExprError> {
        if self.peek(1).is_some_and(|b| b.is_ascii_digit()) {
            let digits =
                self.text[start + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len() - start - 1);
            let span = start..start + 1 + digits;
            let message = format!("there is no parameter {}", &self.text[span.clone()]);
            return Err(ExprError::new(ExprErrorKind::UnknownName, span, message)
                .with_hint("Write {{ expression }} where the value belongs."));
        }
        let tag_length = self.text[start + 1..].find(|c: char| !(c.is_alphanumeric() || c == '_'));
        match tag_length {
            Some(length) if self.bytes[start + 1 + length] == b'$' => {
                let tag = &self.text[start..start + length + 2];
                let body = start + tag.len();
                self.at = self.text[body..].find(tag).map_or(self.bytes.len(), |i| body + i + tag.len());
                self.refuse_inside(
                    start,
                    "a dollar-quoted string",
                    "Pass the value as a parameter of a function instead.",
                )
            }
            _ => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// An expression in braces inside a quoted stretch is a mistake; braces that are not one, as in an array literal,
    /// are just text.
    fn refuse_inside(&self, start: usize, place: &str, hint: &str) -> Result<(), ExprError> {
        let inside = &self.text[start..self.at];
        let mut from = 0;
        while let Some(open) = inside[from..].find("{{").map(|i| from + i) {
            from = open + 1;
            if let Ok((expr, _, after)) = placeholder(inside, open)
                && expr.reads_something()
            {
                let message = format!("an expression cannot stand inside {place}");
                let span = start + open..start + after;
                return Err(ExprError::new(ExprErrorKind::Syntax, span, message).with_hint(hint));
            }
        }
        Ok(())
    }

    fn parameter(&mut self, start: usize) -> Result<(), ExprError> {
        self.copy_to(start);
        let (expr, expr_start, after) = placeholder(self.text, start)?;
        // a name or digits next to the braces would run into $n
        if self.after_name(start) {
            self.out.sql.push(' ');
        }
        self.segment(start, false);
        self.out.params.push(expr);
        self.out.starts.push(expr_start);
        let number = self.out.params.len();
        self.out.sql.push_str(&format!("${number}"));
        if self.bytes.get(after).copied().is_some_and(is_name_byte) {
            self.out.sql.push(' ');
        }
        self.at = after;
        self.copied = after;
        Ok(())
    }

    fn copy_to(&mut self, end: usize) {
        if end > self.copied {
            self.segment(self.copied, true);
            self.out.sql.push_str(&self.text[self.copied..end]);
            self.copied = end;
        }
    }

    fn segment(&mut self, text_offset: usize, copied: bool) {
        let sql_chars = self.out.sql.chars().count();
        let text_chars = self.text[..text_offset].chars().count();
        self.out.segments.push(Segment { sql_chars, text_chars, copied });
    }
}

/// Deepest nesting of comments.
const MOST_COMMENTS: usize = 32;

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> String {
        match SqlTemplate::parse(text) {
            Ok(t) => {
                format!("{} <- {}", t.sql(), t.params().iter().map(|e| e.text().trim()).collect::<Vec<_>>().join(", "))
            }
            Err(e) => format!("{} at {:?}", e.message, e.span),
        }
    }

    #[test]
    fn expressions_become_numbered_parameters() {
        assert_eq!(
            sql("UPDATE o SET p = {{ new.p }} WHERE id = {{new.id}} AND q = {{ new.p }}"),
            "UPDATE o SET p = $1 WHERE id = $2 AND q = $3 <- new.p, new.id, new.p"
        );
        assert_eq!(sql("SELECT {{ 'it''s }}' }}"), "SELECT $1 <- 'it''s }}'");
        assert_eq!(sql("SELECT a{{ new.b }}c"), "SELECT a $1 c <- new.b");
        assert_eq!(sql("SELECT 1"), "SELECT 1 <- ");
    }

    #[test]
    fn an_expression_inside_quotes_is_refused() {
        assert!(sql("SELECT '{{ new.id }}'").starts_with("an expression cannot stand inside a quoted string at 8..20"));
        assert!(sql("SELECT E'\\'{{ new.id }}'").contains("quoted string"));
        assert!(sql("SELECT \"{{ new.id }}\"").contains("a quoted name"));
        assert!(sql("SELECT 1 -- {{ new.id }}").contains("a comment"));
        assert!(sql("SELECT 1 /* /* */ {{ new.id }} */").contains("a comment"));
        assert!(sql("DO $x$ {{ new.id }} $x$").contains("dollar-quoted"));
        assert!(sql("SELECT $1").contains("there is no parameter $1"));
    }

    #[test]
    fn comments_end_and_do_not_nest_without_end() {
        assert_eq!(sql("SELECT /* /* a */ b */ 1"), "SELECT /* /* a */ b */ 1 <- ");
        assert_eq!(sql("SELECT 1 /* /* a */"), "unterminated /* comment at 9..11");
        assert!(sql(&"/*".repeat(100_000)).starts_with("statement is too complex"));
    }

    #[test]
    fn braces_that_are_no_expression_stay_text() {
        for text in
            ["SELECT '{{1,2},{3,4}}'::int[]", "SELECT '{{1}}'::int[]", "SELECT a$1b, $x$ } $x$", "SELECT E'a\\\\'"]
        {
            assert_eq!(sql(text), format!("{text} <- "));
        }
    }

    #[test]
    fn quotes_end_where_postgres_ends_them() {
        assert_eq!(sql("SELECT 'it''s', {{ new.id }}"), "SELECT 'it''s', $1 <- new.id");
        assert_eq!(sql("SELECT 'a\\', {{ new.id }}"), "SELECT 'a\\', $1 <- new.id");
        assert_eq!(sql("SELECT E'a\\'', {{ new.id }}"), "SELECT E'a\\'', $1 <- new.id");
        assert_eq!(sql("SELECT some'a\\', {{ new.id }}"), "SELECT some'a\\', $1 <- new.id");
    }

    #[test]
    fn positions_lead_back_to_the_users_text() {
        let text = "SELECT é, {{ new.identifier }}, wrong";
        let template = SqlTemplate::parse(text).unwrap();
        let at = |needle: &str, hay: &str| {
            hay.chars().collect::<String>().find(needle).map(|b| hay[..b].chars().count() + 1).unwrap()
        };
        assert_eq!(template.map_position(at("wrong", template.sql())), at("wrong", text));
        assert_eq!(template.map_position(at("$1", template.sql()) + 1), at("{{", text));
        assert_eq!(template.map_position(1), 1);
    }
}
