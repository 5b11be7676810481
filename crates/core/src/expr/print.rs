//! A tree back to text, such that parsing it gives the same tree.

use super::ast::{Access, Kind, Node, StateRead};
use crate::value::{Value, write_json_string};

/// Prints a tree. Everything compound is put in parentheses; this is for machines and logs, not for style.
pub fn print(node: &Node) -> String {
    let mut out = String::new();
    write(node, &mut out);
    out
}

fn write(node: &Node, out: &mut String) {
    match &node.kind {
        Kind::Literal(value) => literal(value, out),
        Kind::Root(name) => out.push_str(name),
        Kind::State(read) => state(read, out),
        Kind::Path(base, steps) => {
            operand(base, out);
            steps.iter().for_each(|step| access(step, out));
        }
        Kind::List(items) => separated(items, "[", ", ", "]", out),
        Kind::Object(entries) => {
            out.push('{');
            for (i, (key, value)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_json_string(key, out);
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
        Kind::Not(inner) => prefix("not ", inner, out),
        Kind::Negate(inner) => prefix("-", inner, out),
        Kind::And(nodes) => operands(nodes, " and ", out),
        Kind::Or(nodes) => operands(nodes, " or ", out),
        Kind::Arithmetic(first, rest) => {
            operand(first, out);
            for (op, node) in rest {
                out.push_str(&format!(" {} ", op.symbol()));
                operand(node, out);
            }
        }
        Kind::Compare(op, pair) => infix(&pair.0, &format!(" {} ", op.symbol()), &pair.1, out),
        Kind::In(pair, negated) => {
            operand(&pair.0, out);
            out.push_str(if *negated { " not in " } else { " in " });
            match pair.1.kind {
                // a constant in parentheses would be a list of one
                Kind::Literal(_) => write(&pair.1, out),
                _ => operand(&pair.1, out),
            }
        }
        Kind::Like(pair, flags) => {
            let not = if flags.negated { "not " } else { "" };
            let word = if flags.any_case { "ilike" } else { "like" };
            infix(&pair.0, &format!(" {not}{word} "), &pair.1, out);
        }
        Kind::Between(three, negated) => {
            infix(&three.0, if *negated { " not between " } else { " between " }, &three.1, out);
            out.push_str(" and ");
            operand(&three.2, out);
        }
        Kind::Is(inner, wanted, negated) => {
            operand(inner, out);
            out.push_str(if *negated { " is not " } else { " is " });
            literal(wanted, out);
        }
        Kind::Becomes(three) => infix(&three.0, " becomes ", &three.2, out),
        Kind::Changed(pair) => {
            operand(&pair.0, out);
            out.push_str(" changed");
        }
        Kind::Ternary(three) => {
            infix(&three.0, " ? ", &three.1, out);
            out.push_str(" : ");
            operand(&three.2, out);
        }
        Kind::Call(function, args) => {
            out.push_str(function.name);
            separated(args, "(", ", ", ")", out);
        }
        Kind::Join(parts) => {
            out.push_str("join(");
            separated(parts, "[", ", ", "]", out);
            out.push(')');
        }
    }
}

/// A part that must not run into its neighbours.
fn operand(node: &Node, out: &mut String) {
    let simple = matches!(
        node.kind,
        Kind::Root(_) | Kind::State(_) | Kind::Path(..) | Kind::List(_) | Kind::Object(_) | Kind::Call(..)
    ) || matches!(&node.kind, Kind::Literal(Value::Text(_) | Value::Bool(_) | Value::Null))
        || matches!(&node.kind, Kind::Literal(Value::Number(n)) if !n.is_negative());
    if simple {
        write(node, out);
    } else {
        out.push('(');
        write(node, out);
        out.push(')');
    }
}

fn operands(nodes: &[Node], separator: &str, out: &mut String) {
    for (i, node) in nodes.iter().enumerate() {
        out.push_str(if i > 0 { separator } else { "" });
        operand(node, out);
    }
}

fn separated(nodes: &[Node], open: &str, separator: &str, close: &str, out: &mut String) {
    out.push_str(open);
    for (i, node) in nodes.iter().enumerate() {
        out.push_str(if i > 0 { separator } else { "" });
        write(node, out);
    }
    out.push_str(close);
}

fn prefix(word: &str, node: &Node, out: &mut String) {
    out.push_str(word);
    operand(node, out);
}

fn infix(left: &Node, word: &str, right: &Node, out: &mut String) {
    operand(left, out);
    out.push_str(word);
    operand(right, out);
}

fn state(read: &StateRead, out: &mut String) {
    out.push_str("state");
    for node in [&read.kind, &read.id] {
        out.push('[');
        write(node, out);
        out.push(']');
    }
}

fn access(step: &Access, out: &mut String) {
    match step {
        Access::Member(name, _) => {
            out.push('[');
            write_json_string(name, out);
            out.push(']');
        }
        Access::Index(node) => {
            out.push('[');
            write(node, out);
            out.push(']');
        }
    }
}

fn literal(value: &Value, out: &mut String) {
    match value {
        Value::Duration(d) => {
            // whole parts in the units they are kept in; a negative one only arises from folding
            out.push_str(&format!("{} months {} days {} microseconds", d.months, d.days, d.micros));
        }
        Value::Time(t) => out.push_str(&format!("time('{t}')")),
        Value::Date(d) => out.push_str(&format!("date('{d}')")),
        other => other.write_json(out),
    }
}
